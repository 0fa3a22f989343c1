//! The block on a GPU: the steps of one forward, or of a preparation, from whichever family of kernels the device runs.

use super::addresses::Addresses;
use super::arch::Arch;
use super::device::Device;
use super::exact::Behind;
use super::exact::sleep::{Sleep, Waker};
use super::launch::{Edge, Residency, Step};
use super::workspace::Parts;
use super::{exact, hopper, portable};
use crate::dims::{D, FFN, QKV};
use crate::error::Error;
use crate::precision::SolvePrecision;

/// What one forward reads and writes, all device addresses; x and output are 16-byte aligned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Buffers {
    /// (rows, D) float
    pub x: u64,
    /// (rows, D) float, may be x
    pub output: u64,
    /// The caller's weights; not read by a prepared block.
    pub weights: u64,
    /// (rows, D) float: where the first kernel of a call in place keeps x, which the exact kernel may still want; else 0
    pub x_copy: u64,
    /// Rows of x.
    pub rows: usize,
    /// Tokens in a sequence.
    pub seq_len: usize,
    /// The workspace, with room for the rows.
    pub parts: Parts,
}

impl Buffers {
    /// Those of one call.
    #[must_use]
    pub fn new(x: u64, output: u64, weights: u64, shape: &Shape, parts: Parts) -> Self {
        let x_copy = if x == output && shape.guarded { parts.x_copy } else { 0 };
        let parts = Parts { x1: if parts.x1 == 0 { output } else { parts.x1 }, ..parts };
        Self { x, output, weights, x_copy, rows: shape.rows(), seq_len: shape.seq_len, parts }
    }

    /// Where the caller's are.
    #[must_use]
    pub fn addresses(&self) -> Addresses {
        [self.x, self.output, self.weights]
    }

    /// Those of the same call with the caller's elsewhere.
    #[must_use]
    pub fn at(&self, [x, output, weights]: Addresses) -> Self {
        let x1 = if self.parts.x1 == self.output { output } else { self.parts.x1 };
        Self { x, output, weights, parts: Parts { x1, ..self.parts }, ..*self }
    }

    /// Those of a preparation.
    #[must_use]
    pub fn of_weights(weights: u64, parts: Parts) -> Self {
        Self { x: 0, output: 0, weights, x_copy: 0, rows: 0, seq_len: 0, parts }
    }
}

/// Everything that a plan depends on, beside the GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Shape {
    /// Sequences.
    pub batch: usize,
    /// Tokens in each.
    pub seq_len: usize,
    /// Token i attends to tokens 0..=i only.
    pub causal: bool,
    /// The weights are already cast.
    pub prepared: bool,
    /// Of the matrix products.
    pub precision: SolvePrecision,
    /// It is looked whether the fast kernels' result stands, by the exact kernel behind them or, of few rows on Hopper, by themselves: always where the
    /// weights come with the call, but not in precision exact, where there are no fast ones.
    pub guarded: bool,
    /// In precision exact: it takes the place of fast kernels whose result does not stand, as the exact kernel behind them did before the host knew, so that
    /// a call keeps its bits.
    pub rescued: bool,
}

impl Shape {
    /// Rows of x.
    #[must_use]
    pub fn rows(&self) -> usize {
        self.batch * self.seq_len
    }
}

/// The four matrix products.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "named after their weights")]
pub enum Gemm {
    Qkv,
    AttnProj,
    Fc,
    Proj,
}

impl Gemm {
    /// In the order of the block.
    pub const ALL: [Self; 4] = [Self::Qkv, Self::AttnProj, Self::Fc, Self::Proj];

    /// Columns of its output.
    #[must_use]
    pub fn columns(self) -> usize {
        match self {
            Self::Qkv => QKV,
            Self::Fc => FFN,
            Self::AttnProj | Self::Proj => D,
        }
    }

    /// Its launch, for error messages.
    #[must_use]
    pub fn what(self) -> &'static str {
        match self {
            Self::Qkv => "launch of the QKV product",
            Self::AttnProj => "launch of the attention projection",
            Self::Fc => "launch of the first feed-forward product",
            Self::Proj => "launch of the second feed-forward product",
        }
    }

    /// Rows of its weights.
    #[must_use]
    pub fn depth(self) -> usize {
        if self == Self::Proj { FFN } else { D }
    }
}

/// The loaded kernels of a device's family.
#[allow(clippy::large_enum_variant, reason = "a device has one")]
pub enum Kernels {
    /// Turing and Ampere.
    Portable(portable::kernels::Kernels),
    /// Hopper.
    Hopper(hopper::kernels::Kernels),
}

impl Kernels {
    /// Loads the architecture's files into the current context, for good, on a GPU of so many SMs.
    pub fn load(arch: Arch, capability: (u32, u32), sms: usize) -> Result<Self, Error> {
        match arch {
            Arch::Sm75 | Arch::Sm80 => portable::kernels::Kernels::load(arch, capability).map(Self::Portable),
            Arch::Sm90a => hopper::kernels::Kernels::load(capability, sms).map(Self::Hopper),
        }
    }

    /// The exact kernel of the family.
    #[must_use]
    pub fn exact(&self) -> &exact::Kernel {
        match self {
            Self::Portable(kernels) => &kernels.exact,
            Self::Hopper(kernels) => &kernels.exact,
        }
    }
}

/// Whether a call is computed in fp32, so that it is the same in every precision and no exact kernel stands behind it.
#[must_use]
pub fn in_fp32(device: &Device, shape: &Shape) -> bool {
    matches!(device.kernels, Kernels::Hopper(_)) && hopper::plan::in_fp32(shape)
}

/// The steps of one forward. `alone`: no other grids of this library run beside them.
pub fn forward(device: &Device, shape: Shape, buffers: &Buffers, alone: bool) -> Result<Vec<Step>, Error> {
    if shape.precision == SolvePrecision::Exact && !in_fp32(device, &shape) {
        return Ok(device.kernels.exact().alone(device.sms, shape, buffers));
    }
    let (mut steps, behind) = match &device.kernels {
        Kernels::Portable(kernels) => {
            let plan = portable::plan::forward(device.arch, device.sms, shape);
            (portable::block::steps(kernels, &plan, buffers), Behind::Anything)
        }
        Kernels::Hopper(kernels) => hopper::block::forward(kernels, shape, buffers, waiting(&shape, alone))?,
    };
    if !shape.guarded {
        return Ok(steps);
    }
    let exact = device.kernels.exact().forward(device.sms, shape, buffers, behind);
    match steps.last_mut() {
        Some(last) if behind == Behind::Itself => {
            last.arguments = last.arguments.clone().containing(&exact.arguments, &[])
        }
        _ => steps.push(exact),
    }
    Ok(steps)
}

/// How blocks that wait for others of their rows come together. Beside nothing else of this library their predecessors end, and their successors start when
/// all of them have started. Then a plain launch, which saves up to 1.7 us, will do where the call can be computed again: others' cooperative grids that wait
/// for their turn may keep out the last of these blocks, and the first then leave (cuda/gemm/statistics_sm90a.cuh).
fn waiting(shape: &Shape, alone: bool) -> Residency {
    if alone && shape.guarded && !shape.prepared { Residency::Any } else { Residency::Cooperative }
}

/// The steps of one forward in a graph of the caller's, where it may begin while what comes before it ends.
pub fn captured(device: &Device, shape: Shape, buffers: &Buffers) -> Result<Vec<Step>, Error> {
    // Who else is there when the graph is launched?
    let mut steps = forward(device, shape, buffers, false)?;
    if let (Kernels::Hopper(kernels), [_, .., guard]) = (&device.kernels, &mut steps[..])
        && shape.guarded
    {
        *guard = kernels.exact.forward(device.sms, shape, buffers, Behind::Standing);
    }
    if let Some(first) = steps.first_mut()
        && waits_itself(device, &shape)
    {
        first.edge = Edge::Programmatic;
    }
    Ok(steps)
}

/// How the exact kernel sleeps in a graph that has so many steps, the last of which it is. None: it does not.
#[must_use]
pub fn sleep(device: &Device, shape: Shape, steps: usize) -> Option<Sleep> {
    let Kernels::Hopper(kernels) = &device.kernels else { return None };
    if shape.prepared || !shape.guarded || !device.nodes_wake || shape.rows() <= hopper::plan::FEW_ROWS {
        return None;
    }
    // Behind what raises the last alarms in front of proj: FC where it raises any, else the attention projection.
    let waker = match shape.rows() {
        rows if hopper::plan::fc_watches(kernels.chip, rows) => Waker::Beside(kernels.wake, steps - 3),
        _ => Waker::Ahead(kernels.wake, steps - 4),
    };
    Some(Sleep { blocks: device.sms as u32, waker })
}

/// A step that never runs, for the end of a graph in which nothing sleeps: passing over it while the last of several kernels still runs is worth 0.2 to
/// 0.4 us at the end of that one (H200, driver 580; why is not known).
#[must_use]
pub fn idle(device: &Device) -> Option<Step> {
    let Kernels::Hopper(kernels) = &device.kernels else { return None };
    device.nodes_wake.then(|| exact::sleep::idle(kernels.wake))
}

/// Whether a call may be launched while what comes before it runs: its first kernel waits for that itself, and lets its successors start only then.
fn waits_itself(device: &Device, shape: &Shape) -> bool {
    let is_fast = shape.precision != SolvePrecision::Exact || in_fp32(device, shape);
    is_fast && matches!(device.kernels, Kernels::Hopper(_))
}

/// The priority of a call that may begin while the one before it ends, if it is one launch. None: its kernels are not made for that.
#[must_use]
pub fn early(device: &Device, shape: Shape) -> Option<i32> {
    device.foremost.filter(|_| hopper::plan::is_few(&shape))
}

/// The steps that bring the weights of `buffers` into its workspace.
pub fn prepare(device: &Device, shape: Shape, buffers: &Buffers) -> Result<Vec<Step>, Error> {
    let mut steps = match &device.kernels {
        _ if shape.precision == SolvePrecision::Exact => Vec::new(),
        Kernels::Portable(kernels) => portable::block::steps(kernels, &[portable::plan::cast()], buffers),
        Kernels::Hopper(kernels) => hopper::block::prepare(kernels, buffers)?,
    };
    steps.push(device.kernels.exact().prepare(device.sms, shape, buffers));
    Ok(steps)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(x1: u64) -> Parts {
        Parts { x1, x_copy: 77, ..Parts::NONE }
    }

    #[test]
    fn what_a_call_in_place_needs_follows_its_buffers() {
        let (batch, seq_len, precision) = (2, 3, SolvePrecision::Fast);
        let shape = Shape { batch, seq_len, causal: false, prepared: false, precision, guarded: true, rescued: false };
        let x_copy = |x, output, guarded| Buffers::new(x, output, 5, &Shape { guarded, ..shape }, parts(9)).x_copy;
        // Only where the exact kernel may want x when output is written.
        assert_eq!([x_copy(1, 1, true), x_copy(1, 2, true), x_copy(1, 1, false)], [77, 0, 0]);
        // x1 in the output, and of its own
        let at = |x1| {
            let built = Buffers::new(1, 2, 5, &shape, parts(x1));
            assert_eq!((built.rows, built.seq_len, built.addresses()), (6, 3, [1, 2, 5]));
            let moved = built.at([11, 12, 15]);
            assert_eq!(moved.addresses(), [11, 12, 15]);
            [built.parts.x1, moved.parts.x1]
        };
        assert_eq!([at(0), at(9)], [[2, 12], [9, 9]]);
    }
}
