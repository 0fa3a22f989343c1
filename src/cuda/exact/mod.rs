//! The exact kernel: the whole block at nearly fp32's accuracy in one resident launch, with the same arguments on every architecture. It is the call
//! itself in precision exact, but on Hopper for the rows that there is a chain of launches for, and for the fewest, which cuda/small/fp32.cuh computes. In
//! the others it comes last and looks at the alarms: usually it ends at once, else it computes output again. Where the host knows that there are no alarms
//! it does not come at all; in a graph of `solve()` on Hopper it sleeps until a warp beside the last products wakes it ([`sleep`]), and up to 32 rows
//! there, or of a handle, it never comes, as the fast kernel itself goes on with its work (cuda/small/again.cuh).

pub mod chain;
pub mod long;
pub mod sleep;
pub mod work;

use super::arch::Arch;
use super::block::{Buffers, Shape};
use super::launch::{Arguments, Edge, Function, Residency, Step, pair};
use super::modules::Modules;
use crate::error::Error;
use crate::precision::SolvePrecision;
use work::Call;

/// What an architecture's file in cuda/exact/ has as constants; tests/layout.rs asks the compiler whether they agree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Form {
    /// Threads of a block, of which there is one on every SM.
    pub threads: u32,
    /// Bytes of dynamic shared memory of a block.
    pub shared: u32,
    /// Bytes of memory that do not depend on the rows: counters, scales, split weights. A multiple of 256.
    pub fixed: usize,
    /// Bytes more where it keeps prepared weights, also a multiple of 256.
    pub prepared: usize,
    /// Bytes of memory a row, of values on their way from one phase to the next. Nothing of them outlives a launch.
    pub per_row: usize,
    /// Whether a launch that may have to compute is a plain one, of which those blocks compute that find a place.
    pub gathers: bool,
}

/// Rows up to which Hopper has a kernel that needs no split weights in memory (cuda/exact/exact_few_sm90a.cuh), and up to which it is the faster way where
/// a handle has them already; measured on an H200.
pub const FEW_ROWS: usize = 64;
const FEW_PREPARED_ROWS: usize = 48;

/// Where in its memory Hopper's has prepared weights as they came.
pub const PLAIN: usize = 28_388_608;

/// Threads of a block of that kernel.
pub const FEW_THREADS: u32 = 512;

/// The form of this architecture.
#[must_use]
pub fn form(arch: Arch) -> Form {
    let portable =
        |shared| Form { threads: 256, shared, fixed: 28_366_336, prepared: 0, per_row: 15_360, gathers: false };
    match arch {
        Arch::Sm75 => portable(46_080),
        Arch::Sm80 => portable(87_552),
        Arch::Sm90a => Form {
            threads: 384,
            shared: 226_432,
            fixed: 40_971_520,
            prepared: 28_351_488,
            per_row: 21_504,
            gathers: true,
        },
    }
}

/// The exact kernel of a device.
pub struct Kernel {
    function: Function,
    /// That of up to [`FEW_ROWS`], on Hopper.
    few: Option<Function>,
    /// Those of a middling number of rows in precision exact, on Hopper.
    chain: Option<chain::Chain>,
    /// Those of many rows in precision exact, on Hopper.
    long: Option<long::Chain>,
    form: Form,
}

/// 8-byte words of its arguments; all 0 where a kernel that computes calls again itself need not.
pub const WORDS: usize = 9;

/// What comes before it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Behind {
    /// Kernels that know nothing of griddepcontrol, or nothing.
    Anything,
    /// A kernel that looks at the alarms and, where it must, computes again itself: the exact one is not launched.
    Itself,
    /// A chain whose last kernel raises none, so that they can be read while it works.
    Settled,
    /// A chain that raises none, of a call that looks each time: usually it ends without waiting for the chain, and who comes next must.
    Standing,
    /// A chain in whose last kernel so many warps raise them and count themselves when they have.
    Watching(u32),
}

/// What a launch does, as `ExactArgs::phases` says it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Phases {
    /// Brings the weights into its memory and raises alarms about them.
    Cast = 1,
    /// Computes with what is there.
    Forward = 2,
    Both = 3,
}

impl Kernel {
    /// Finds it among the architecture's files.
    pub fn load(modules: &Modules, arch: Arch) -> Result<Self, Error> {
        let form = form(arch);
        let function = |name| modules.function(name, form.shared);
        let on_hopper = |name| (arch == Arch::Sm90a).then(|| function(name)).transpose();
        let few = on_hopper("exact_few")?;
        let chain = (arch == Arch::Sm90a).then(|| chain::Chain::load(modules)).transpose()?;
        let long = (arch == Arch::Sm90a).then(|| long::Chain::load(modules)).transpose()?;
        Ok(Self { function: function("exact")?, few, chain, long, form })
    }

    /// Brings the weights of `buffers` into their workspace, for later calls.
    #[must_use]
    pub fn prepare(&self, sms: usize, shape: Shape, buffers: &Buffers) -> Step {
        self.step(sms, shape, buffers, Phases::Cast, Behind::Anything)
    }

    /// Computes output in precision exact.
    #[must_use]
    pub fn alone(&self, sms: usize, shape: Shape, buffers: &Buffers) -> Vec<Step> {
        let resident = self.forward(sms, shape, buffers, Behind::Anything);
        if shape.rescued {
            return vec![resident];
        }
        let (rows, arguments) = (buffers.rows, &resident.arguments);
        let chain = self.chain.as_ref().and_then(|chain| chain.steps(rows, shape.prepared, arguments));
        let long = || {
            let long = self.long.as_ref().filter(|_| rows >= long::FROM_ROWS);
            let (seq_len, causal, casts) = (buffers.seq_len, shape.causal, !shape.prepared);
            long.map(|long| {
                let call = Call { sms, fours: long.fours.min(sms / 4), rows, seq_len, causal, casts };
                long.steps(call, arguments)
            })
        };
        chain.or_else(long).unwrap_or_else(|| vec![resident])
    }

    /// Computes output, or looks whether that is needed.
    #[must_use]
    pub fn forward(&self, sms: usize, shape: Shape, buffers: &Buffers, behind: Behind) -> Step {
        let phases = if shape.prepared { Phases::Forward } else { Phases::Both };
        self.step(sms, shape, buffers, phases, behind)
    }

    fn step(&self, sms: usize, shape: Shape, buffers: &Buffers, phases: Phases, behind: Behind) -> Step {
        let Buffers { x, output, weights, x_copy, parts, .. } = *buffers;
        let x = if x_copy == 0 { x } else { x_copy };
        let rule = match shape.precision {
            _ if phases == Phases::Cast => 0,
            SolvePrecision::Exact => 0,
            SolvePrecision::Fast => 1,
            SolvePrecision::Auto => 2,
        };
        // What is known about prepared weights stays true for the next call.
        let keep_alarms = u32::from(shape.prepared);
        // As many blocks as have a place before the last of the kernel in front of them has ended. On half of the SMs they take 1.5 times as long where
        // they must compute; a product that watches weights leaves a quarter idle.
        let gathers = self.form.gathers && rule != 0;
        let blocks = match behind {
            _ if !gathers => sms,
            Behind::Watching(_) => sms.div_ceil(4),
            _ => sms.div_ceil(2),
        };
        let watchers = match behind {
            Behind::Anything | Behind::Itself => u32::MAX,
            Behind::Settled => 0,
            Behind::Standing => u32::MAX - 1,
            Behind::Watching(warps) => warps,
        };
        let numbers = [
            pair(buffers.rows as u32, buffers.seq_len as u32),
            pair(u32::from(shape.causal), phases as u32),
            pair(rule, keep_alarms),
            pair(watchers, sms as u32),
        ];
        let words = [x, output, weights, parts.exact, parts.alarms];
        let few = match phases {
            Phases::Cast => None,
            Phases::Forward => self.few.filter(|_| buffers.rows <= FEW_PREPARED_ROWS),
            Phases::Both => self.few.filter(|_| buffers.rows <= FEW_ROWS),
        };
        Step {
            what: "launch of the exact block",
            function: few.unwrap_or(self.function),
            grid: [blocks as u32, 1, 1],
            threads: if few.is_some() { FEW_THREADS } else { self.form.threads },
            shared: self.form.shared,
            pairs: false,
            edge: match behind {
                Behind::Anything => Edge::Full,
                Behind::Standing => Edge::Beside,
                _ => Edge::Programmatic,
            },
            residency: if gathers { Residency::Any } else { Residency::Cooperative },
            arguments: Arguments::new().words(&[&words[..], &numbers].concat()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cuda::block::Buffers;
    use crate::cuda::workspace::Parts;
    use SolvePrecision::{Auto, Exact, Fast};
    use std::ptr;

    const SMS: usize = 132;

    fn kernel(arch: Arch) -> Kernel {
        let function = |number| Function(ptr::without_provenance_mut(number));
        let few = (arch == Arch::Sm90a).then(|| function(2));
        Kernel { function: function(1), few, chain: None, long: None, form: form(arch) }
    }

    fn step(prepared: bool, precision: SolvePrecision, rows: usize, behind: Behind, arch: Arch) -> Step {
        let kernel = kernel(arch);
        let (batch, seq_len, causal) = (1, rows, false);
        let shape = Shape { batch, seq_len, causal, prepared, precision, guarded: precision != Exact, rescued: false };
        let parts = Parts { alarms: 11, exact: 12, ..Parts::NONE };
        let buffers = Buffers { x: 21, output: 22, weights: 23, x_copy: 0, rows, seq_len, parts };
        if rows == 0 { kernel.prepare(SMS, shape, &buffers) } else { kernel.forward(SMS, shape, &buffers, behind) }
    }

    /// The words of `ExactArgs`
    fn words(step: &Step) -> Vec<u64> {
        step.arguments.each_word().take(WORDS).collect()
    }

    #[test]
    fn the_arguments_are_the_kernels() {
        // The rule by which the device judges alarms: RULE_EXACT, RULE_FAST, RULE_AUTO (tests/layout.rs).
        for (precision, rule) in [(Exact, 0), (Fast, 1), (Auto, 2)] {
            let [stateless, prepared, cast] = [(false, 100), (true, 100), (true, 0)]
                .map(|(prepared, rows)| words(&step(prepared, precision, rows, Behind::Anything, Arch::Sm90a)));
            let anything = pair(u32::MAX, SMS as u32);
            let first = [21, 22, 23, 12, 11];
            assert_eq!(stateless, [&first[..], &[pair(100, 100), pair(0, 3), pair(rule, 0), anything]].concat());
            assert_eq!(prepared, [&first[..], &[pair(100, 100), pair(0, 2), pair(rule, 1), anything]].concat());
            assert_eq!(cast, [&first[..], &[pair(0, 0), pair(0, 1), pair(0, 1), anything]].concat());
        }
        let watchers = |behind| words(&step(false, Fast, 100, behind, Arch::Sm90a))[8] as u32;
        let all =
            [Behind::Anything, Behind::Itself, Behind::Settled, Behind::Watching(40), Behind::Standing].map(watchers);
        assert_eq!(all, [u32::MAX, u32::MAX, 0, 40, u32::MAX - 1]);
    }

    #[test]
    fn few_rows_have_a_kernel_of_their_own_and_who_only_looks_has_few_blocks() {
        let few = |prepared, rows| {
            let step = step(prepared, Fast, rows, Behind::Settled, Arch::Sm90a);
            let few = step.function == Function(ptr::without_provenance_mut(2));
            assert_eq!(step.threads, if few { FEW_THREADS } else { 384 });
            few
        };
        let all =
            [(false, 64), (false, 65), (true, 48), (true, 49), (true, 0)].map(|(prepared, rows)| few(prepared, rows));
        assert_eq!(all, [true, false, true, false, false]);
        let blocks = |precision, behind, arch| {
            let step = step(false, precision, 1000, behind, arch);
            (step.grid[0], step.edge == Edge::Full, step.residency == Residency::Cooperative)
        };
        assert_eq!(blocks(Fast, Behind::Settled, Arch::Sm90a), (66, false, false));
        assert_eq!(blocks(Auto, Behind::Watching(9), Arch::Sm90a), (33, false, false));
        // Who computes needs all of them at once, and so does everybody on other GPUs.
        assert_eq!(blocks(Exact, Behind::Anything, Arch::Sm90a), (132, true, true));
        assert_eq!(blocks(Fast, Behind::Anything, Arch::Sm80), (132, true, true));
        assert_eq!(step(true, Fast, 1000, Behind::Standing, Arch::Sm90a).edge, Edge::Beside);
    }
}
