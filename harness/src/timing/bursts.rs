//! Batches of calls on a CPU, beside single calls: x, the weights and the output change while a batch goes on, and every call of it is looked at. Whoever
//! leaves calls out when they follow each other closely, or works with what was there a moment ago, is exposed. A batch in which the same copies change
//! nothing takes as long.

use std::sync::Arc;

use super::{looks, told_by_times};
use crate::content::Content;
use crate::dims::{D, W_ATTN, W_FC, W_PROJ, W_QKV};
use crate::grade::Grade;
use crate::inputs;
use crate::protocol::{Api, Device};
use crate::reason::{Failure, Reason};
use crate::rig::{Changes, Done, Manner, Rig};
use crate::rng::Stream;

/// A batch is about so long, in us, where its number of calls allows that: the least that tells calls of a batch from single ones, and the most.
const BATCH_US: f64 = 60_000.0;
const CALLS: (f64, f64) = (4.0, 64.0);
/// A batch of long calls takes so long, in us, but has two calls, if those take no more than this share of what a request may.
const LONGEST_US: f64 = 4e6;
const OF_TIMEOUT: f64 = 0.5;
/// Different inputs in a batch, at most: the answer to each is computed.
const STATES: usize = 4;
/// Calls of a batch in which nothing changes that take less than this share of the others' time skip work.
const SKIPPED: f64 = 0.5;
/// Nor are calls of any batch faster than single ones by more than this: there the weights come from memory, here they may lie in caches, which are not ten
/// times as fast.
const FAR_LESS: f64 = 0.1;

/// Calls of a batch at this time of one, in us.
pub fn calls(call_us: f64, timeout_us: f64) -> usize {
    let (least, most) = CALLS;
    let calls = (BATCH_US / call_us).clamp(least, most).min((LONGEST_US / call_us).max(2.0));
    calls.min(OF_TIMEOUT * timeout_us / call_us).max(1.0) as usize
}

/// What changes in a batch.
pub struct Burst {
    changes: Changes,
    /// What each call works on, the last on the content itself.
    states: Vec<Content>,
    /// The first call of each state.
    starts: Vec<usize>,
}

impl Burst {
    /// For a batch of so many calls that ends on this content.
    pub fn draw(content: &Content, calls: usize, api: Api, stream: Stream) -> Self {
        let later = STATES.min(calls) - 1;
        let mut starts: Vec<usize> =
            stream.child(1).permutation(calls - 1).into_iter().take(later).map(|call| call as usize + 1).collect();
        starts.sort_unstable();
        let known = |k: usize| content.rows[stream.child(2).below(k as u64, content.rows.len())];
        let mut changes =
            Changes { spare: inputs::tokens(inputs::CHALLENGE, later, stream.child(3)), ..Default::default() };
        for (k, &start) in starts.iter().enumerate() {
            changes.tokens.push((start, known(k), content.seq + k));
        }
        // A handle is told of new weights between calls of its own.
        if api == Api::Solve {
            for (m, p) in [W_QKV, W_ATTN, W_FC, W_PROJ].into_iter().enumerate() {
                let rows = stream.child(4 + m as u64).permutation(p.rows);
                let pairs = rows.chunks_exact(2).map(|pair| (pair[0] as usize, pair[1] as usize));
                changes.weights.extend(starts.iter().zip(pairs).map(|(&start, (a, b))| (start, p, a, b)));
            }
        }
        let states = states(content, &changes, &starts);
        starts.insert(0, 0);
        // The row of x that is new, and any other row in the other calls of a state.
        let row =
            |call: usize| changes.tokens.iter().find(|t| t.0 == call).map_or_else(|| known(later + call), |t| t.1);
        changes.looks = (0..calls).map(|call| (call, row(call))).collect();
        Self { changes, states, starts }
    }

    /// The same copies, but rows trade places with themselves.
    fn still(&self) -> Changes {
        Changes {
            tokens: self.changes.tokens.iter().map(|&(call, row, _)| (call, row, row)).collect(),
            weights: self.changes.weights.iter().map(|&(call, p, row, _)| (call, p, row, row)).collect(),
            ..self.changes.clone()
        }
    }

    /// What a call works on.
    fn state(&self, call: usize) -> &Content {
        &self.states[self.starts.partition_point(|&start| start <= call) - 1]
    }
}

/// What the calls work on until each of these changes, and in the end.
fn states(content: &Content, changes: &Changes, starts: &[usize]) -> Vec<Content> {
    let (mut rows, mut weights) = ([&content.x[..], &changes.spare].concat(), content.weights.to_vec());
    let mut states = vec![content.clone()];
    for &start in starts.iter().rev() {
        for &(_, a, b) in changes.tokens.iter().filter(|t| t.0 == start) {
            (0..D).for_each(|c| rows.swap(a * D + c, b * D + c));
        }
        for &(_, p, a, b) in changes.weights.iter().filter(|w| w.0 == start) {
            (0..p.cols).for_each(|c| weights.swap(p.offset + a * p.cols + c, p.offset + b * p.cols + c));
        }
        states.push(content.changed(rows[..content.x.len()].to_vec(), Arc::new(weights.clone())));
    }
    states.reverse();
    states
}

/// Both batches, every call of them right.
pub struct Both {
    /// In which nothing changed.
    pub still: Done,
    changing: Done,
}

impl Both {
    /// Makes them.
    pub fn make(grade: &Grade<'_>, rig: &mut Rig, content: &Content, burst: &Burst) -> Result<Self, Failure> {
        let changing = batch(grade, rig, content, &burst.changes, &|call| burst.state(call))?;
        Ok(Self { still: batch(grade, rig, content, &burst.still(), &|_| content)?, changing })
    }

    /// Do calls take the same time whether their inputs change or not, and not far less than single ones, of which one took so long at least?
    pub fn same_time(&self, calls: usize, overhead: f64, single: f64) -> Result<(), Failure> {
        let each = |us: f64| us / calls as f64;
        let us = |done: &Done| done.wall.as_secs_f64() * 1e6 - overhead;
        let changing = us(&self.changing);
        let alone = changing - self.changing.waited.as_secs_f64() * 1e6;
        told(each(us(&self.still)), [changing, alone].map(each), single)
    }
}

/// A batch that ends on this content, all of its calls right.
fn batch<'a>(
    grade: &Grade<'_>,
    rig: &mut Rig,
    content: &Content,
    changes: &Changes,
    state: &dyn Fn(usize) -> &'a Content,
) -> Result<Done, Failure> {
    let manner = Manner { repeat: changes.looks.len(), snapshot: false, ..Manner::CAREFUL };
    let done = rig.call_changing(content, &manner, changes).map_err(looks::left_out)?;
    looks::judge_each(changes, &done, state)?;
    content.judge(&done.accuracy).map_err(|f| grade.diagnose(content, f).during("after a batch of calls"))?;
    Ok(done)
}

/// Times of a call, in us: where nothing changes; where inputs do, and without what threads waited; and of a single one.
fn told(still: f64, [changing, alone]: [f64; 2], single: f64) -> Result<(), Failure> {
    if still < SKIPPED * changing {
        let message = format!(
            "{still:.1} us a call of a batch in which nothing changes, {changing:.1} us of one in which inputs change: \
             work is skipped on repeats"
        );
        return Err(told_by_times(Reason::Caching, message, still >= SKIPPED * alone));
    }
    if still.max(changing) < FAR_LESS * single {
        let message = format!("{changing:.1} us a call of a batch, {single:.1} us for a single one: work is skipped");
        return Err(Failure::new(Reason::Caching, message));
    }
    Ok(())
}

/// Batches in which inputs change are for a CPU: on a GPU runs of calls are looked into (`looks`).
pub fn drawn(grade: &Grade<'_>, content: &Content, calls: usize, stream: Stream) -> Option<Burst> {
    let many = grade.plan.device == Device::Cpu && calls > 1;
    many.then(|| Burst::draw(content, calls, grade.plan.api, stream))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bank::Bank;
    use crate::check;
    use crate::oracle::{self, Rounding};

    #[test]
    fn a_batch_is_of_several_calls_and_takes_a_bounded_time() {
        let of = |us| calls(us, 60e6);
        assert_eq!([100.0, 2e3, 20e3, 0.9e6, 1.5e6, 20e6, 40e6].map(of), [64, 30, 4, 4, 2, 1, 1]);
        assert_eq!(calls(190e3, 6e6), 4);
    }

    #[test]
    fn work_that_is_skipped_shows_in_times_and_warm_caches_do_not() {
        let reason = |still, changing, single| told(still, changing, single).err().map(|failure| failure.reason);
        assert_eq!(reason(300.0, [420.0; 2], 2500.0), None);
        assert_eq!(reason(900.0, [420.0; 2], 400.0), None);
        assert_eq!(reason(200.0, [420.0; 2], 420.0), Some(Reason::Caching));
        assert_eq!(reason(200.0, [420.0, 390.0], 420.0), Some(Reason::TooNoisy), "a busy machine");
        assert_eq!(reason(40.0, [42.0; 2], 800.0), Some(Reason::Caching));
    }

    /// Every call of this batch is right, but for one: the first on the last state works with what `stale` leaves of the first one.
    fn judged(burst: &Burst, stale: &dyn Fn(&mut Content, &Content)) -> Result<(), Failure> {
        let kept = burst.changes.looks.iter().flat_map(|&(call, row)| {
            let mut state = burst.state(call).clone();
            let known = state.rows.iter().position(|&r| r == row).expect("a row that is known");
            let mut expected = state.expected[known * D..][..D].to_vec();
            if burst.starts.last() == Some(&call) {
                stale(&mut state, &burst.states[0]);
                expected = oracle::forward(&state.x, &state.weights, &[row], Rounding::None).output;
            }
            expected.into_iter().map(|v| v as f32)
        });
        let done = Done {
            output: Vec::new(),
            accuracy: check::Accuracy::default(),
            called: Default::default(),
            wall: Default::default(),
            idle_us: None,
            waited: Default::default(),
            kept: kept.collect(),
        };
        looks::judge_each(&burst.changes, &done, &|call| burst.state(call))
    }

    #[test]
    fn calls_on_what_was_there_before_are_wrong() {
        for seq in [1, 70] {
            let content = Bank::new(1).bases(seq)[0].fresh_tokens(Stream::new(7, 7));
            let burst = Burst::draw(&content, 6, Api::Solve, Stream::new(seq as u64, 3));
            assert!(judged(&burst, &|_, _| ()).is_ok(), "{seq} tokens");
            assert!(judged(&burst, &|now, then| now.x = then.x.clone()).is_err(), "{seq} tokens, x");
            for p in [W_QKV, W_ATTN, W_FC, W_PROJ] {
                let old = |now: &mut Content, then: &Content| {
                    let mut weights = now.weights.to_vec();
                    p.of_mut(&mut weights).copy_from_slice(p.of(&then.weights));
                    now.weights = Arc::new(weights);
                };
                assert!(judged(&burst, &old).is_err(), "{seq} tokens, {p:?}");
            }
        }
    }

    #[test]
    fn the_first_state_is_what_the_grader_writes_and_still_copies_change_nothing() {
        let content = Bank::new(1).bases(3)[0].fresh_tokens(Stream::new(7, 7));
        let burst = Burst::draw(&content, 9, Api::Solve, Stream::new(1, 3));
        assert!(burst.changes.first_rows(&content).0 == burst.states[0].x);
        for (at, row) in burst.changes.first_weights(&content) {
            assert!(burst.states[0].weights[at..][..row.len()] == *row);
        }
        let still = burst.still();
        assert!(still.first_rows(&content).0 == content.x);
        assert!(still.first_weights(&content).iter().all(|(at, row)| content.weights[*at..][..row.len()] == **row));
        let handle = Burst::draw(&content, 2, Api::Prepared, Stream::new(1, 3));
        assert!(handle.changes.weights.is_empty() && handle.starts == [0, 1]);
    }
}
