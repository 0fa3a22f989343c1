//! Where the addresses of the caller's buffers stand among the arguments of a graph's launches: to point those at other buffers takes a few stores then,
//! where planning the call and writing all arguments anew took 4 us at 4096 rows.

use super::launch::Step;

/// Those of one call.
pub type Addresses = [u64; 3];

/// The bits in which [`elsewhere`] differs: all that an address below 2^47 may have and that say nothing of its alignment. Of one of them less, so that no two
/// of the three move by as much.
const BITS: Addresses = [0x7fff_ffff_fe00, 0x7fff_ffff_ff00, 0x7fff_ffff_ff00];

/// Other addresses, of the same alignment. Nothing needs to be there.
#[must_use]
pub fn elsewhere(addresses: Addresses) -> Addresses {
    std::array::from_fn(|buffer| addresses[buffer] ^ BITS[buffer])
}

/// The words of the arguments that hold an address in one of the buffers, by step.
#[derive(Clone, Default)]
pub struct Words(Vec<Word>);

#[derive(Clone)]
struct Word {
    step: usize,
    /// In the arguments, in words.
    offset: usize,
    buffer: usize,
    /// What is added to the buffer's address.
    more: u64,
}

impl Words {
    /// Of `steps`, which are those of a call with the buffers at `from`, by comparison with those of the same call with buffers at `to`. None if
    /// they differ in anything but words that move with one of the buffers.
    #[must_use]
    pub fn find(steps: &[Step], from: Addresses, others: &[Step], to: Addresses) -> Option<Self> {
        if steps.len() != others.len() {
            return None;
        }
        let mut words = Vec::new();
        for (number, (step, other)) in steps.iter().zip(others).enumerate() {
            if (Step { arguments: step.arguments.clone(), ..other.clone() }) != *step {
                return None;
            }
            for (offset, (word, other)) in step.arguments.each_word().zip(other.arguments.each_word()).enumerate() {
                if word != other {
                    let moved = |&buffer: &usize| other.wrapping_sub(word) == to[buffer].wrapping_sub(from[buffer]);
                    let buffer = (0..from.len()).find(moved)?;
                    words.push(Word { step: number, offset, buffer, more: word.wrapping_sub(from[buffer]) });
                }
            }
        }
        Some(Self(words))
    }

    /// Forgets those of all steps but so many first.
    pub fn truncate(&mut self, steps: usize) {
        self.0.retain(|word| word.step < steps);
    }

    /// Points `steps` from some buffers at others, and hands each that this changes to `changed`.
    pub fn follow<E>(
        &self,
        steps: &mut [Step],
        from: Addresses,
        to: Addresses,
        mut changed: impl FnMut(usize, &Step) -> Result<(), E>,
    ) -> Result<(), E> {
        for words in self.0.chunk_by(|one, next| one.step == next.step) {
            let step = &mut steps[words[0].step];
            for word in words {
                step.arguments.set_word(word.offset, to[word.buffer].wrapping_add(word.more));
            }
            if words.iter().any(|word| from[word.buffer] != to[word.buffer]) {
                changed(words[0].step, step)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::launch::{Arguments, Edge, Function, Residency, pair};
    use super::*;

    const X: u64 = 0x7f12_3456_7800;
    const WEIGHTS: u64 = 0x7f98_7654_3210;

    fn step(arguments: Arguments) -> Step {
        Step {
            what: "a kernel",
            function: Function::NONE,
            grid: [132, 1, 1],
            threads: 384,
            shared: 0,
            pairs: false,
            edge: Edge::Full,
            residency: Residency::Any,
            arguments,
        }
    }

    fn steps([x, output, weights]: Addresses) -> Vec<Step> {
        let numbers = [pair(1024, 768), 0, u64::MAX];
        vec![
            step(Arguments::each(&[x, 4096]).words(&numbers)),
            step(Arguments::each(&numbers)),
            step(Arguments::each(&[4096, output]).words(&[weights + 3072, output, x])),
        ]
    }

    fn find(at: Addresses) -> Option<Words> {
        Words::find(&steps(at), at, &steps(elsewhere(at)), elsewhere(at))
    }

    #[test]
    fn steps_follow_the_buffers() {
        // The second in place, the third with weights that lie in x, the fourth of a block that has none.
        for at in [[X, X + 0x1000, WEIGHTS], [X, X, WEIGHTS], [X, X + 0x1000, X], [X, X + 0x1000, 0]] {
            let Some(words) = find(at) else { panic!("{at:x?}: each word moves with one of the buffers") };
            for to in [[X, X, WEIGHTS + 4], [WEIGHTS, X + 16, X], at] {
                let mut pointed = steps(at);
                let outcome = words.follow(&mut pointed, at, to, |_, _| Ok::<(), ()>(()));
                assert_eq!(outcome, Ok(()));
                assert!(pointed == steps(to), "{at:x?} to {to:x?}");
            }
        }
    }

    #[test]
    fn only_steps_with_other_words_have_changed() {
        let at = [X, X + 0x1000, WEIGHTS];
        let Some(words) = find(at) else { panic!("each word moves with one of the buffers") };
        let changed = |to| {
            let mut numbers = Vec::new();
            let outcome = words.follow(&mut steps(at), at, to, |number, _| {
                numbers.push(number);
                Ok::<(), ()>(())
            });
            assert_eq!(outcome, Ok(()));
            numbers
        };
        assert_eq!(changed(at), []);
        assert_eq!(changed([X, X + 0x2000, WEIGHTS]), [2]);
        assert_eq!(changed([X + 0x4000, X + 0x1000, WEIGHTS]), [0, 2]);
    }

    /// As of the exact kernel that sleeps: its node is the device's to change.
    #[test]
    fn steps_that_are_forgotten_stay() {
        let at = [X, X + 0x1000, WEIGHTS];
        let Some(mut words) = find(at) else { panic!("each word moves with one of the buffers") };
        words.truncate(2);
        let (to, mut pointed) = (elsewhere(at), steps(at));
        assert_eq!(words.follow(&mut pointed, at, to, |_, _| Ok::<(), ()>(())), Ok(()));
        assert!(pointed[..2] == steps(to)[..2] && pointed[2] == steps(at)[2]);
    }

    #[test]
    fn what_moves_otherwise_is_not_followed() {
        let at = [X, X + 0x1000, WEIGHTS];
        let to = elsewhere(at);
        let find = |others: &[Step]| Words::find(&steps(at), at, others, to);
        let mut others = steps(to);
        others[1].arguments.set_word(0, X);
        assert!(find(&others).is_none(), "a word that is no address");
        let mut others = steps(to);
        others[1].grid[0] += 1;
        assert!(find(&others).is_none(), "another grid");
        assert!(find(&steps(to)[..2]).is_none(), "fewer steps");
    }
}
