//! Calls in an order that no honest candidate minds: contents that follow each other closely, differ in one place,
//! come back, or come with weights rewritten in place.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::content::{Base, Content};
use crate::dims::{D, W_PROJ, W_QKV};
use crate::grade::Grade;
use crate::processes::ROUNDING;
use crate::protocol::{Api, Device};
use crate::reason::{Failure, Reason};
use crate::report::Trap;
use crate::rig::{Manner, Rig};
use crate::rng::Stream;
use crate::timing::told_by_times;

/// The length at which traps are set.
pub const SEQ: usize = 48;
/// Traps.
pub const STEPS: usize = 7;
/// Repeats and new contents whose times are compared.
const TIMED: usize = 4;
/// A repeated call this much faster than a new one did not do the work.
const SUSPICIOUS: f64 = 0.8;

/// Threads may spin so long after a call.
const SPINNING: Duration = Duration::from_millis(250);
/// After that there is so long a look at what they do. The last is so long that what the rounding of times can add is no reason to fail.
const LOOKS: [Duration; 3] = [Duration::from_millis(150), Duration::from_millis(150), Duration::from_millis(800)];
/// So often in each it is looked whether a process has been started: what one has done that nobody waits for is not known any more when it has ended.
const GLANCES: u32 = 10;
/// More of a processor than this is no rest.
const RESTLESS: f64 = 0.03;
const _: () = assert!(LOOKS[2].as_millis() as f64 * RESTLESS > ROUNDING.as_millis() as f64);

/// So much work on new weights before a call is none worth a word: reading them takes longer.
const AHEAD: Duration = Duration::from_millis(3);
/// How long after a flush that is looked at.
const AFTERWARDS: Duration = Duration::from_millis(20);

/// What a trap found, in words.
pub type Sprung = Result<String, Failure>;

/// All traps.
pub fn spring(grade: &mut Grade<'_>, rig: &mut Rig) -> Result<(), Failure> {
    let bases = grade.bank.bases(SEQ);
    let stream = grade.stream.child(50);
    set(grade, "fresh weights in place", |g| fresh_weights(g, rig, &bases, stream.child(1)))?;
    set(grade, "tokens in another order", |g| fresh_tokens(g, rig, &bases, stream.child(2)))?;
    set(grade, "one token changed", |g| near_duplicate(g, rig, &bases[0], stream.child(3)))?;
    set(grade, "one element changed", |g| one_element(g, rig, &bases[0], stream.child(4)))?;
    set(grade, "an old content comes back", |g| comes_back(g, rig, &bases, stream.child(5)))?;
    set(grade, "the same call again", |g| repeated(g, rig, &bases, stream.child(6)))?;
    set(grade, "rest between calls", |_| rests(rig))
}

fn set(grade: &mut Grade<'_>, name: &str, trap: impl FnOnce(&mut Grade<'_>) -> Sprung) -> Result<(), Failure> {
    grade.ui.step(name);
    let outcome = trap(grade);
    let detail = outcome.as_ref().map_or_else(ToString::to_string, Clone::clone);
    grade.report.traps.push(Trap { name: name.into(), pass: outcome.is_ok(), detail });
    outcome.map(|_| ()).map_err(|f| f.during(name))
}

fn fresh_weights(grade: &mut Grade<'_>, rig: &mut Rig, bases: &[Base], stream: Stream) -> Sprung {
    for i in 0..5 {
        let content = bases[i % bases.len()].fresh(stream.child(i as u64));
        grade.checked(rig, &content, &Manner { settle: i == 2, ..Manner::CAREFUL })?;
    }
    Ok("5 calls right".into())
}

fn fresh_tokens(grade: &mut Grade<'_>, rig: &mut Rig, bases: &[Base], stream: Stream) -> Sprung {
    for i in 0..4 {
        let manner = Manner { same_place: i > 1, ..Manner::CAREFUL };
        grade.checked(rig, &bases[0].fresh_tokens(stream.child(i)), &manner)?;
    }
    Ok("4 calls right, 2 at old addresses".into())
}

/// Changes one token: every row of the output changes, through attention.
fn near_duplicate(grade: &mut Grade<'_>, rig: &mut Rig, base: &Base, stream: Stream) -> Sprung {
    let plain = base.plain();
    grade.checked(rig, plain, &Manner::CAREFUL)?;
    let mut x = plain.x.clone();
    let row = stream.below(0, SEQ);
    for (c, v) in x[row * D..(row + 1) * D].iter_mut().enumerate() {
        *v = stream.uniform(10 + c as u64, -6.0, 6.0) as f32;
    }
    let content = plain.changed(x, plain.weights.clone());
    grade.checked(rig, &content, &Manner::CAREFUL)?;
    Ok(format!("row {row} of {SEQ}"))
}

/// Changes single elements far too small a part of the buffers to be sampled, each with a large effect.
pub fn one_element(grade: &mut Grade<'_>, rig: &mut Rig, base: &Base, stream: Stream) -> Sprung {
    grade.checked(rig, base.plain(), &Manner::CAREFUL)?;
    for k in 0..ELEMENTS {
        grade.checked(rig, &changed_element(base, k, stream), &Manner::CAREFUL)?;
    }
    Ok("1 of x, 1 of W_qkv, 1 of W_proj".into())
}

/// Elements that are changed, one at a time.
const ELEMENTS: u64 = 3;

/// A base with one element changed: of x, of W_qkv, of W_proj.
fn changed_element(base: &Base, k: u64, stream: Stream) -> Content {
    let plain = base.plain();
    if k == 0 {
        let mut x = plain.x.clone();
        // Of a row that is checked: where there are many, others hardly see it.
        let row = plain.rows[stream.below(0, plain.rows.len())];
        x[row * D + stream.below(1, D)] += 8.0;
        return plain.changed(x, plain.weights.clone());
    }
    // Less in W_proj, where rounding of the operands grows with it.
    let (p, by) = if k == 1 { (W_QKV, 8.0) } else { (W_PROJ, 1.0) };
    let mut weights = plain.weights.to_vec();
    // In W_qkv a column of V: Q and K hardly matter where attention is flat.
    let (row, column) = (stream.below(1 + k, p.rows), p.cols - 1 - stream.below(3 + k, D));
    weights[p.offset + row * p.cols + column] += by;
    plain.changed(plain.x.clone(), Arc::new(weights))
}

/// The first content again after others, in other places and with its weights rewritten.
fn comes_back(grade: &mut Grade<'_>, rig: &mut Rig, bases: &[Base], stream: Stream) -> Sprung {
    let first = bases[0].fresh(stream.child(0));
    let second = bases[1].fresh(stream.child(1));
    for content in [&first, &second, &first] {
        grade.checked(rig, content, &Manner::CAREFUL)?;
    }
    Ok("right again".into())
}

/// Repeats must be right and must take their time.
fn repeated(grade: &mut Grade<'_>, rig: &mut Rig, bases: &[Base], stream: Stream) -> Sprung {
    let spin_us = if grade.plan.device == Device::Cuda { 200 } else { 0 };
    let manner = Manner { spin_us, ..Manner::CAREFUL };
    let same = bases[0].fresh_tokens(stream);
    let (mut ratio, mut by_the_machine) = (f64::NAN, false);
    // Noise can make one round look odd; skipped work looks odd every time.
    for round in 0..3 {
        let (mut new, mut alone, mut old) = (f64::INFINITY, f64::INFINITY, f64::INFINITY);
        for i in 0..TIMED {
            let content = bases[0].fresh_tokens(stream.child((round * TIMED + i) as u64 + 1));
            let done = grade.checked(rig, &content, &manner)?;
            new = new.min(time(&done));
            alone = alone.min(time(&done) - done.waited.as_secs_f64() * 1e6);
        }
        for _ in 0..=TIMED {
            old = old.min(time(&grade.checked(rig, &same, &manner)?));
        }
        ratio = old / new;
        if ratio >= SUSPICIOUS {
            return Ok(format!("takes {ratio:.2} of a new call"));
        }
        by_the_machine |= old >= SUSPICIOUS * alone;
    }
    let message = format!("a call on the inputs of the call before takes {ratio:.2} of the time: work is skipped");
    Err(told_by_times(Reason::Caching, message, by_the_machine))
}

/// Between calls nothing is to be done: whoever works then keeps caches warm, or gets ahead of the next call.
pub fn rests(rig: &mut Rig) -> Sprung {
    let (mut share, mut starts) = (0.0, false);
    // Pools of threads spin for a while before they sleep.
    for look in LOOKS {
        std::thread::sleep(SPINNING);
        let (there, before, start) = (rig.processes(), rig.busy(), Instant::now());
        starts = false;
        for _ in 0..GLANCES {
            std::thread::sleep(look / GLANCES);
            starts |= rig.processes().iter().any(|process| !there.contains(process));
        }
        share = rig.busy().saturating_sub(before).as_secs_f64() / start.elapsed().as_secs_f64();
        if share < RESTLESS && !starts {
            return Ok(format!("{:.1} % of a processor", 100.0 * share));
        }
    }
    if starts && share < RESTLESS {
        let message = "processes are started while nothing is asked for: work goes on between calls";
        return Err(Failure::new(Reason::DeferredWork, message));
    }
    let message = format!(
        "{:.0} % of a processor are busy while nothing is asked for: work goes on between calls (or threads that spin or \
         poll: OMP_WAIT_POLICY=passive)",
        100.0 * share
    );
    Err(Failure::new(Reason::DeferredWork, message))
}

/// New weights lie in shared memory before the clock of a call runs, and on a CPU the caches are flushed in between: whoever works on them there has that work
/// left out of its time. Looked at beside a flush with the weights that were there.
pub fn waits(grade: &Grade<'_>, rig: &mut Rig, base: &Base, stream: Stream) -> Sprung {
    if grade.plan.device != Device::Cpu || grade.plan.api != Api::Solve {
        return Ok("not looked at".into());
    }
    let mut more = Duration::ZERO;
    for k in 0..LOOKS.len() as u64 {
        let new = base.fresh(stream.child(k));
        std::thread::sleep(SPINNING);
        let (Some(without), Some(with)) = (beside(rig, None)?, beside(rig, Some(&new))?) else {
            return Ok("this kernel does not tell".into());
        };
        more = with.0.saturating_sub(without.0.mul_f64(with.1.div_duration_f64(without.1)));
        if more < AHEAD {
            return Ok(format!("{:.1} ms of work on new weights before a call", more.as_secs_f64() * 1e3));
        }
    }
    let ms = more.as_secs_f64() * 1e3;
    let message = format!("{ms:.0} ms of work are done on new weights before a call, in which they do not count");
    Err(Failure::new(Reason::DeferredWork, message))
}

/// What threads beside the one that flushes do from before these weights are there until after the flush, and how long that is.
fn beside(rig: &mut Rig, weights: Option<&Content>) -> Result<Option<(Duration, Duration)>, Failure> {
    let (start, before) = (Instant::now(), rig.busy_beside());
    rig.announce(weights)?;
    std::thread::sleep(AFTERWARDS);
    let after = rig.busy_beside();
    Ok(before.zip(after).map(|(before, after)| (after.saturating_sub(before), start.elapsed())))
}

fn time(done: &crate::rig::Done) -> f64 {
    done.called.device_us.unwrap_or_else(|| done.us())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bank::Bank;
    use crate::check;
    use crate::oracle::{self, Operands};

    #[test]
    fn a_changed_element_shows_at_every_length_and_leaves_room_for_coarse_operands() {
        let mut bank = Bank::new(1);
        for seq in [1, 48, 390, 1500] {
            let bases = bank.bases(seq);
            let plain = bases[0].plain();
            for k in 0..ELEMENTS {
                let content = changed_element(&bases[0], k, Stream::new(seq as u64, k));
                let (rows, x) = (&content.rows, &content.x);
                let of_rows: Vec<f32> = rows.iter().flat_map(|&row| x[row * D..][..D].to_vec()).collect();
                let all: Vec<usize> = (0..rows.len()).collect();
                let judged = |got: &[f32]| {
                    content.judge(&check::compare(got, &content.expected, &of_rows, &all, content.limits.slack))
                };
                let coarse = oracle::emulate(x, &content.weights, rows, Operands::Fp16);
                assert!(judged(&coarse).is_ok(), "{seq} tokens, element {k}: {:?}", judged(&coarse));
                let stale: Vec<f32> = plain.expected.iter().map(|&v| v as f32).collect();
                assert!(judged(&stale).is_err(), "{seq} tokens, element {k}");
            }
        }
    }
}
