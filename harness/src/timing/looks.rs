//! Runs of calls that are looked into. While a run goes on, x and every weight matrix change, and the output is spoilt
//! before some calls and kept after them: whoever leaves calls out of a run, or still works with the weights of the
//! call before, is exposed. To the candidate such a run looks like any other, and it must take the same time.

use super::clocks::Run;
use crate::check;
use crate::content::Content;
use crate::dims::{D, Param, W_ATTN, W_FC, W_PROJ, W_QKV};
use crate::protocol::Api;
use crate::reason::{Failure, Reason};
use crate::rig::{Changes, Done};
use crate::rng::Stream;
use crate::stats::median;

/// Calls of a run that are looked at, at most.
const LOOKS: usize = 12;
/// Rows are exchanged in sequences from here on: some must stay where they are.
const SWAPPED: usize = 4;
/// What one copy between two calls may cost the run, in us.
const COPY_US: f64 = 5.0;
/// Runs that are not looked into and take less than this share of the others' time skip work.
const SKIPPED: f64 = 0.85;

/// Changes for a run of so many calls.
pub fn draw(content: &Content, calls: usize, api: Api, stream: Stream) -> Changes {
    let seq = content.seq;
    let mut changes = Changes::default();
    if seq >= SWAPPED {
        let (a, b) = two(seq, stream.child(1));
        changes.tokens.push((stream.below(2, calls), a, b));
    }
    // A handle is told of new weights between calls of its own.
    let mut from = 0;
    if api == Api::Solve {
        from = stream.below(3, calls / 2 + 1);
        let row = |p: Param, k: u64| two(p.rows, stream.child(10 + k));
        let swap = |(k, p)| (from, p, row(p, k).0, row(p, k).1);
        changes.weights = (0..).zip([W_QKV, W_ATTN, W_FC, W_PROJ]).map(swap).collect();
    }
    let moved = |row: &usize| changes.tokens.iter().any(|&(_, a, b)| *row == a || *row == b);
    let rows: Vec<usize> = content.rows.iter().copied().filter(|row| !moved(row)).collect();
    // The first call on new weights, the last of all, and others.
    let mut at: Vec<usize> = vec![from, calls - 1];
    let others = LOOKS.min(calls / 8);
    at.extend((0..others as u64).map(|k| from + stream.child(4).below(k, calls - from)));
    at.sort_unstable();
    at.dedup();
    let row = |k: usize| rows[stream.child(5).below(k as u64, rows.len())];
    if !rows.is_empty() {
        changes.looks = at.into_iter().enumerate().map(|(k, call)| (call, row(k))).collect();
    }
    changes
}

/// Two different numbers below `n`.
fn two(n: usize, stream: Stream) -> (usize, usize) {
    let a = stream.below(0, n);
    (a, (a + 1 + stream.below(1, n - 1)) % n)
}

/// The last output of a run was spoilt before the last call: unwritten, it means that the call was left out.
pub fn left_out(failure: Failure) -> Failure {
    match failure.reason {
        Reason::NotFiniteOrUnwritten => Failure { reason: Reason::Caching, ..failure.during("the last call of a run") },
        _ => failure,
    }
}

/// Are the rows that were kept right?
pub fn judge(content: &Content, changes: &Changes, done: &Done) -> Result<(), Failure> {
    judge_each(changes, done, &|_| content)
}

/// Are they what `state` says that each call works on leads to?
pub fn judge_each<'a>(changes: &Changes, done: &Done, state: &dyn Fn(usize) -> &'a Content) -> Result<(), Failure> {
    let (mut x, mut expected, mut slack) = (Vec::new(), Vec::new(), 0.0f64);
    for &(call, row) in &changes.looks {
        let content = state(call);
        x.extend_from_slice(&content.x[row * D..][..D]);
        let known = content.rows.iter().position(|&r| r == row).unwrap_or_default();
        expected.extend_from_slice(&content.expected[known * D..][..D]);
        slack = slack.max(content.limits.slack);
    }
    let looked: Vec<usize> = (0..changes.looks.len()).collect();
    let left_out = |&k: &usize| done.kept[k * D..][..D].iter().any(|v| !v.is_finite());
    let skipped = looked.iter().copied().filter(left_out).count();
    if skipped > 0 {
        let message = format!("{skipped} of {} calls of a run did not write their output", looked.len());
        return Err(Failure::new(Reason::Caching, message));
    }
    let accuracy = check::compare(&done.kept, &expected, &x, &looked, slack);
    if accuracy.over > 0 {
        let message = format!(
            "right at the end of a run of calls, but {} numbers of {} calls in it are wrong: something is remembered \
             between calls",
            accuracy.over,
            looked.len()
        );
        return Err(Failure::new(Reason::Caching, message));
    }
    Ok(())
}

/// Time of a call of a run that was looked into, without what the copies cost at most.
pub fn per_call(run: &Run, changes: &Changes) -> f64 {
    let copies = 2 * changes.looks.len() + 3 * (changes.tokens.len() + changes.weights.len());
    (run.device - COPY_US * copies as f64).max(0.0) / run.calls as f64
}

/// Runs take the same time whether they are looked into or not.
pub fn same_time(timed: &[f64], looked: &[f64]) -> Result<(), Failure> {
    let (timed, looked) = (median(timed), median(looked));
    if timed < SKIPPED * looked {
        let message = format!(
            "{timed:.1} us a call where nothing changes, {looked:.1} us where inputs change: work is skipped on repeats"
        );
        return Err(Failure::new(Reason::Caching, message));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::contract::Limits;

    fn content(seq: usize) -> Content {
        let (rows, x) = ((0..seq).collect(), vec![0.5; seq * D]);
        Content {
            seq,
            x,
            weights: Arc::new(Vec::new()),
            rows,
            expected: vec![1.0; seq * D],
            limits: Limits::tolerance(0.0),
        }
    }

    #[test]
    fn looks_fall_on_rows_that_stay_and_calls_that_know_the_weights() {
        for seed in 0..500 {
            let (seq, calls) = (1 + seed as usize % 9, 4 + seed as usize % 100);
            let c = draw(&content(seq), calls, Api::Solve, Stream::new(seed, 0));
            let from = c.weights[0].0;
            assert!(c.looks.iter().all(|&(call, row)| call >= from && call < calls && row < seq));
            assert!(c.looks.iter().all(|(_, row)| c.tokens.iter().all(|(_, a, b)| row != a && row != b)));
            assert!(c.looks.iter().any(|l| l.0 == from) && c.looks.iter().any(|l| l.0 == calls - 1));
            assert!(c.weights.iter().all(|(_, p, a, b)| a != b && *a < p.rows && *b < p.rows));
            assert!(draw(&content(seq), calls, Api::Prepared, Stream::new(seed, 0)).weights.is_empty());
        }
    }

    #[test]
    fn one_call_left_out_is_seen() {
        let content = content(3);
        let changes = Changes { looks: vec![(0, 1), (5, 2)], ..Changes::default() };
        let done = |kept: Vec<f32>| Done {
            output: Vec::new(),
            accuracy: Default::default(),
            called: Default::default(),
            wall: Default::default(),
            idle_us: None,
            waited: Default::default(),
            kept,
        };
        assert!(judge(&content, &changes, &done(vec![1.0; 2 * D])).is_ok());
        for bad in [f32::NAN, 1.1] {
            let mut kept = vec![1.0; 2 * D];
            kept[D + 7] = bad;
            let failure = judge(&content, &changes, &done(kept)).unwrap_err();
            assert_eq!(failure.reason, Reason::Caching);
        }
    }

    #[test]
    fn work_that_is_left_out_where_nobody_looks_is_seen() {
        let changes = Changes { looks: vec![(0, 1), (5, 2)], tokens: vec![(1, 0, 1)], ..Changes::default() };
        let run = Run { process: 0, calls: 10, device: 1035.0, ours: 1035.0 };
        assert_eq!(per_call(&run, &changes), 100.0, "seven copies of 5 us at most");
        assert!(same_time(&[90.0; 3], &[100.0; 3]).is_ok() && same_time(&[100.0; 3], &[80.0; 3]).is_ok());
        assert_eq!(same_time(&[80.0; 3], &[100.0; 3]).unwrap_err().reason, Reason::Caching);
        let reason = |reason| left_out(Failure::new(reason, "")).reason;
        assert_eq!(reason(Reason::NotFiniteOrUnwritten), Reason::Caching);
        assert_eq!(reason(Reason::WrongAnswer), Reason::WrongAnswer);
    }
}
