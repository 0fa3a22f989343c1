//! How the exact kernel of a graph of `solve()` on Hopper sleeps: as a node that is disabled, until a kernel of the graph has found alarms and enables it
//! (cuda/exact/wake_sm90a.cuh). So a call without alarms does not wait for its launch.

use super::WORDS;
use crate::cuda::launch::{Arguments, Edge, Function, Residency, Step};

/// Of one graph.
#[derive(Clone, Copy)]
pub struct Sleep {
    /// Blocks of the exact kernel, which starts when the chain has ended.
    pub blocks: u32,
    /// Who wakes it.
    pub waker: Waker,
}

/// What wakes a sleeping exact kernel.
#[derive(Clone, Copy)]
pub enum Waker {
    /// This kernel, in a launch of its own behind the step of this number and beside the last product, which may raise alarms, too.
    Beside(Function, usize),
    /// The same in front of the last product, where the one before raises none: then the graph has one end, and its next call need not wait for two.
    Ahead(Function, usize),
}

impl Sleep {
    /// The steps of a graph whose last step sleeps, without it and with what wakes it, which the device calls `node`; `awake` is the address of an int
    /// that no other graph has.
    pub fn replace(&self, steps: &mut Vec<Step>, node: u64, awake: u64) {
        let Some(mut exact) = steps.pop() else { return };
        let (Waker::Beside(function, _) | Waker::Ahead(function, _)) = self.waker;
        // x, output and weights it has from the first kernel.
        (0..3).for_each(|word| exact.arguments.set_word(word, 0));
        steps.push(wake(function, Arguments::new().containing(&exact.arguments, &[node, awake])));
    }
}

fn wake(function: Function, arguments: Arguments) -> Step {
    Step {
        what: "launch of what wakes the exact block",
        function,
        grid: [1, 1, 1],
        threads: 32,
        shared: 0,
        pairs: false,
        edge: Edge::Programmatic,
        residency: Residency::Any,
        arguments,
    }
}

/// A launch of the same kernel that is never to run.
#[must_use]
pub fn idle(function: Function) -> Step {
    // ExactArgs, the node and where it is noted whether that is awake
    wake(function, Arguments::new().words(&[0; WORDS + 2]))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn steps() -> Vec<Step> {
        let step = |arguments| wake(Function::NONE, arguments);
        let exact = Arguments::new().words(&[1, 2, 3, 4, 5]);
        vec![step(Arguments::each(&[8])), step(Arguments::each(&[9]).containing(&exact, &[0, 0])), step(exact)]
    }

    /// It does not read the buffers of the call that the graph was built for.
    #[test]
    fn the_exact_kernel_leaves_its_place_to_what_wakes_it() {
        let replaced = |waker| {
            let mut steps = steps();
            Sleep { blocks: 132, waker }.replace(&mut steps, 40, 41);
            steps.iter().map(|step| step.arguments.each_word().take(9).collect::<Vec<_>>()).collect::<Vec<_>>()
        };
        let beside =
            [vec![8, 0, 0, 0, 0, 0, 0, 0, 0], vec![9, 1, 2, 3, 4, 5, 0, 0, 0], vec![0, 0, 0, 4, 5, 40, 41, 0, 0]];
        assert_eq!(replaced(Waker::Beside(Function::NONE, 0)), beside);
        assert_eq!(replaced(Waker::Ahead(Function::NONE, 0)), beside);
    }
}
