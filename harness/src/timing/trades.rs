//! Runs in which a row of x is replaced by one never seen before every call, beside runs in which rows trade places with themselves: the same copies, but
//! the inputs of the call before. Who compares all inputs on the GPU, in whatever order, and leaves out what was computed before is faster in the latter.

use super::Shape;
use crate::content::Content;
use crate::inputs;
use crate::reason::{Failure, Reason};
use crate::rig::{Changes, Manner, Rig};
use crate::rng::Stream;
use crate::stats::median;

/// Runs of each kind in a round.
const RUNS: usize = 3;
/// Calls of a run, at most.
const CALLS: usize = 64;
/// Runs in which nothing changes and that take less than this share of the others' time skip work.
const SKIPPED: f64 = 0.85;
/// Rounds that must all look odd before anything is said.
const ROUNDS: u64 = 3;

/// Runs of calls back to back, or each waited for, take the same time whether their inputs change or not. `content`: new itself, as who knows the last inputs
/// of a run could leave out all calls on others.
pub fn same_time(
    rig: &mut Rig,
    content: &Content,
    shape: Shape,
    wait_each: bool,
    stream: Stream,
) -> Result<(), Failure> {
    let mut message = String::new();
    for round in 0..ROUNDS {
        let mut times = [Vec::new(), Vec::new()];
        for (k, which) in stream.child(round).permutation(2 * RUNS).into_iter().enumerate() {
            let (s, new) = (stream.child(100 + round).child(k as u64), which as usize % 2);
            let manner = Manner { wait_each, ..shape.at_most(CALLS).drawn(s.child(1)).manner() };
            let changes = trades(content.seq, manner.repeat, new == 1, s.child(2));
            let done = rig.call_changing(content, &manner, &changes)?;
            content.judge(&done.accuracy)?;
            let us = if wait_each { done.called.wall_us } else { done.called.device_us.unwrap_or(f64::NAN) };
            times[new].push(us / manner.repeat as f64);
        }
        let [same, new] = times.map(|times| median(&times));
        if same >= SKIPPED * new {
            return Ok(());
        }
        message = format!(
            "{same:.1} us a call on the inputs of the call before, {new:.1} us where a row of x is new: work is skipped \
             on repeats"
        );
    }
    Err(Failure::new(Reason::Caching, message))
}

/// A trade before each of so many calls, with a spare row of its own or of a row with itself.
fn trades(seq: usize, calls: usize, new: bool, stream: Stream) -> Changes {
    let tokens = |call: usize| {
        let row = stream.child(1).below(call as u64, seq);
        (call, row, if new { seq + call } else { row })
    };
    let spare = if new { inputs::tokens(inputs::CHALLENGE, calls, stream.child(2)) } else { Vec::new() };
    Changes { tokens: (0..calls).map(tokens).collect(), spare, ..Changes::default() }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::contract::Limits;
    use crate::dims::D;

    #[test]
    fn every_call_but_the_last_has_a_row_of_its_own_or_all_have_the_same_inputs() {
        for seq in [1, 2, 40] {
            let content = Content {
                seq,
                x: (0..seq * D).map(|i| (i / D) as f32).collect(),
                weights: Arc::new(Vec::new()),
                rows: Vec::new(),
                expected: Vec::new(),
                limits: Limits::tolerance(0.0),
            };
            for seed in 0..20 {
                let new = trades(seq, 30, true, Stream::new(seed, 0));
                let (mut rows, mut spare) = new.first_rows(&content);
                let mut earlier: Vec<Vec<f32>> = Vec::new();
                for (k, &(call, a, b)) in new.tokens.iter().enumerate() {
                    assert!(k == call && a < seq && b == seq + k);
                    rows[a * D..][..D].swap_with_slice(&mut spare[k * D..][..D]);
                    let row = &rows[a * D..][..D];
                    assert!(!earlier.iter().any(|old| old == row), "call {k} of {seq} tokens");
                    earlier.push(row.to_vec());
                }
                assert!(rows == content.x);
                let same = trades(seq, 30, false, Stream::new(seed, 0));
                assert!(same.tokens.iter().enumerate().all(|(k, &(call, a, b))| k == call && a == b && a < seq));
                assert!(same.first_rows(&content) == (content.x.clone(), Vec::new()));
            }
        }
    }
}
