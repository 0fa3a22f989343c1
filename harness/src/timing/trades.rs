//! Runs in which two tokens trade places before every call, beside runs in which each trades with itself: the same copies, but the inputs of the call before.
//! Who compares all inputs on the GPU and leaves out what was computed before is faster in the latter.

use super::Shape;
use crate::content::Content;
use crate::grade::Grade;
use crate::reason::{Failure, Reason};
use crate::rig::{Changes, Manner, Rig};
use crate::rng::Stream;
use crate::stats::median;

/// Runs of each kind in a round.
const RUNS: usize = 3;
/// Calls of a run, at most.
const CALLS: usize = 64;
/// Tokens that trade places: eight have 40,320 orders.
const TRADING: usize = 8;
/// Runs in which nothing changes and that take less than this share of the others' time skip work.
const SKIPPED: f64 = 0.85;
/// Rounds that must all look odd before anything is said.
const ROUNDS: u64 = 3;

/// Runs of calls back to back, or each waited for, take the same time whether their inputs change or not.
pub fn same_time(
    grade: &mut Grade<'_>,
    rig: &mut Rig,
    seq: usize,
    shape: Shape,
    wait_each: bool,
) -> Result<(), Failure> {
    if seq < 2 {
        return Ok(());
    }
    let base = &grade.bank.bases(seq)[0];
    let stream = grade.stream.child(74).child(seq as u64).child(u64::from(wait_each));
    let mut message = String::new();
    for round in 0..ROUNDS {
        let mut times = [Vec::new(), Vec::new()];
        for (k, which) in stream.child(round).permutation(2 * RUNS).into_iter().enumerate() {
            let (s, trading) = (stream.child(100 + round).child(k as u64), which as usize % 2);
            let (content, shape) = (base.fresh_tokens(s), shape.at_most(CALLS).drawn(s.child(1)));
            let manner = Manner { wait_each, ..shape.manner() };
            let changes = trades(&content, manner.repeat, trading == 1, s.child(2));
            let done = rig.call_changing(&content, &manner, &changes)?;
            content.judge(&done.accuracy).map_err(|f| grade.diagnose(&content, f).during("after a run of calls"))?;
            let us = if wait_each { done.called.wall_us } else { done.called.device_us.unwrap_or(f64::NAN) };
            times[trading].push(us / manner.repeat as f64);
        }
        let [same, trading] = times.map(|times| median(&times));
        if same >= SKIPPED * trading {
            return Ok(());
        }
        message = format!(
            "{same:.1} us a call on the inputs of the call before, {trading:.1} us where tokens trade places: work is \
             skipped on repeats"
        );
    }
    Err(Failure::new(Reason::Caching, message))
}

/// A trade before each of so many calls.
fn trades(content: &Content, calls: usize, trading: bool, stream: Stream) -> Changes {
    let tokens = stream.child(1).permutation(content.seq);
    let tokens = &tokens[..content.seq.min(TRADING)];
    let pair = |call: usize| {
        let s = stream.child(2).child(call as u64);
        let a = s.below(0, tokens.len());
        let b = if trading { (a + 1 + s.below(1, tokens.len() - 1)) % tokens.len() } else { a };
        (call, tokens[a] as usize, tokens[b] as usize)
    };
    Changes { tokens: (0..calls).map(pair).collect(), ..Changes::default() }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::contract::Limits;
    use crate::dims::D;

    #[test]
    fn every_call_has_other_inputs_or_none_has() {
        for seq in [2, 3, 40] {
            let content = Content {
                seq,
                x: (0..seq * D).map(|i| (i / D) as f32).collect(),
                weights: Arc::new(Vec::new()),
                rows: Vec::new(),
                expected: Vec::new(),
                limits: Limits::tolerance(0.0),
            };
            for seed in 0..50 {
                let traded = trades(&content, 30, true, Stream::new(seed, 0));
                assert!(
                    traded.tokens.iter().enumerate().all(|(k, &(call, a, b))| k == call && a != b && a.max(b) < seq)
                );
                let same = trades(&content, 30, false, Stream::new(seed, 0));
                assert!(same.tokens.iter().enumerate().all(|(k, &(call, a, b))| k == call && a == b && a < seq));
                assert_eq!(same.first_x(&content), content.x);
            }
        }
    }
}
