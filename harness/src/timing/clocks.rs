//! The clocks against each other and against what is possible. The candidate shares its process with the clock
//! that it is timed by, so the grader's own has the last word.

use super::Samples;
use crate::content::Content;
use crate::floor;
use crate::grade::{Grade, judge};
use crate::protocol::{Api, Device};
use crate::reason::{Failure, Reason};
use crate::rig::{Done, Manner, Rig};
use crate::stats::{median, quantile, sorted};

/// An audit batch is about so long, in us.
const BATCH_US: f64 = 60_000.0;
/// How much an exchange may vary, in us.
const JITTER_US: f64 = 400.0;
/// Single calls are short beside the exchange, and the machine may be busy.
const SINGLE_SHARE: f64 = 0.4;
/// Batches and runs are long beside it.
const BATCH_SHARE: f64 = 0.85;
/// Runs of calls, where the grader's clock sees launching too.
const RUN_SHARE: f64 = 0.7;
/// A candidate that does the same calls in less than this share of the time of new ones skips work.
const SKIPPED: f64 = 0.4;
/// Nor is a single call faster than a call of a run by more than this.
const LEAKED: f64 = 0.7;
/// What an event pair around a single call may cost more than a call of a run, in us.
const SINGLE_US: f64 = 15.0;
/// Until everything has finished it may take so many times as long as between the events, and so many us more.
const OUTSIDE: (f64, f64) = (4.0, 100.0);

/// What asking for no call at all costs by the grader's clock, in us.
pub fn overhead_us(rig: &mut Rig, content: &Content) -> Result<f64, Failure> {
    let manner = Manner { repeat: 0, check_weights: false, ..Manner::CAREFUL };
    let once = |rig: &mut Rig| Ok(rig.call(content, &manner)?.wall.as_secs_f64() * 1e6);
    let walls = (0..7).map(|_| once(rig)).collect::<Result<Vec<f64>, Failure>>()?;
    Ok(median(&walls))
}

/// Claimed times of single calls against the grader's clock. A busy machine stretches some exchanges; a clock
/// that lies does it again and again.
pub fn same_time(samples: &Samples, overhead: f64, flushed: bool) -> Result<(), Failure> {
    // A flush takes the grader's time and not the call's.
    if flushed {
        return Ok(());
    }
    let both = samples.claimed.iter().zip(&samples.ours).map(|(claimed, ours)| (*claimed, ours - overhead));
    let shares: Vec<f64> = both.filter(|(_, ours)| *ours > 5.0 * JITTER_US).map(|(c, ours)| c / ours).collect();
    let low = quantile(&sorted(&shares), 0.3);
    if low < SINGLE_SHARE {
        let (ours, claimed) = (median(&samples.ours) - overhead, median(&samples.claimed));
        inconsistent(format!("calls took {ours:.0} us by the grader's clock, but {claimed:.0} are claimed"))?;
    }
    Ok(())
}

/// The share of a run's time by the grader's clock that its events account for.
pub fn run_share(done: &Done, spin: f64, overhead: f64) -> f64 {
    // Before the start event is reached, more than the spin may pass: launching takes its time too.
    let ours = done.wall.as_secs_f64() * 1e6 - overhead - spin - JITTER_US;
    let launching = done.called.host_us.min(ours * 0.5);
    done.called.device_us.unwrap_or(f64::INFINITY) / (ours - launching).max(1.0)
}

/// Runs whose events account for too little of the time. Another process on the GPU stretches some.
pub fn same_runs(shares: &[f64]) -> Result<(), Failure> {
    let share = quantile(&sorted(shares), 0.7);
    if share < RUN_SHARE {
        inconsistent(format!("runs of calls take {:.0} % of the grader's time between their events", 100.0 * share))?;
    }
    Ok(())
}

fn inconsistent(message: String) -> Result<(), Failure> {
    Err(Failure::new(Reason::TimingInconsistent, message))
}

/// Checks the times of this length.
pub fn agree(grade: &mut Grade<'_>, rig: &mut Rig, seq: usize) -> Result<(), Failure> {
    possible(grade, seq)?;
    let Some(wall) = grade.median(seq, |s| s.clock == "wall" && s.cache == "hot" && s.method == "per-call") else {
        return Ok(());
    };
    if let Some(device) = grade.median(seq, |s| s.clock == "device" && s.method == "per-call" && s.cache == "hot") {
        if device > 1.1 * wall + 10.0 {
            inconsistent(format!("{device:.1} us between events, but {wall:.1} us until everything had finished"))?;
        }
        let (times, more) = OUTSIDE;
        if wall > times * device + more {
            inconsistent(format!(
                "{device:.1} us on the default stream, but {wall:.1} us until everything had finished: work runs elsewhere"
            ))?;
        }
        let chained = grade.median(seq, |s| s.method == "back-to-back").unwrap_or(f64::INFINITY);
        if chained.is_finite() && device < LEAKED * chained - SINGLE_US {
            inconsistent(format!(
                "{device:.1} us for a single call, {chained:.1} us for one of many: work leaks out of its events"
            ))?;
        }
        if chained < SKIPPED * device - SINGLE_US {
            let message = format!(
                "{chained:.1} us a call on unchanged inputs, {device:.1} us on new ones: work is skipped on repeats"
            );
            return Err(Failure::new(Reason::Caching, message));
        }
    }
    audit(grade, rig, seq, wall)
}

/// No time beats the machine.
fn possible(grade: &Grade<'_>, seq: usize) -> Result<(), Failure> {
    let api = if grade.report.api == "prepared" { Api::Prepared } else { Api::Solve };
    let limit = match (&grade.plan.rates, grade.plan.device) {
        (Some(rates), Device::Cuda) => rates.impossible_us(seq, api),
        _ => floor::impossible_on_cpu_us(seq, std::thread::available_parallelism().map_or(1, usize::from)),
    };
    for s in grade.report.speed.iter().filter(|s| s.seq == seq) {
        if s.summary.median < limit {
            let (cache, clock, us) = (&s.cache, &s.clock, s.summary.median);
            return inconsistent(format!(
                "{us:.2} us ({cache}, {clock}) is less than this machine needs ({limit:.2} us)"
            ));
        }
    }
    Ok(())
}

/// A batch of calls by the grader's own clock, against what the candidate's process says it took.
fn audit(grade: &mut Grade<'_>, rig: &mut Rig, seq: usize, wall: f64) -> Result<(), Failure> {
    let calls = (BATCH_US / wall).clamp(1.0, 64.0) as usize;
    let content = grade.bank.bases(seq)[0].fresh_tokens(grade.stream.child(80).child(seq as u64));
    let manner = Manner { repeat: calls, snapshot: false, ..Manner::CAREFUL };
    let mut message = String::new();
    // A busy machine may spoil a batch or two.
    for _ in 0..3 {
        let done = rig.call(&content, &manner)?;
        judge(&done.accuracy).map_err(|f| grade.diagnose(&content, f).during("audit batch"))?;
        let ours = done.wall.as_secs_f64() * 1e6 - overhead_us(rig, &content)?;
        let claimed = done.called.wall_us;
        if claimed >= BATCH_SHARE * ours - JITTER_US {
            let each = |us: f64| us / calls as f64;
            grade.report.notes.push(format!(
                "seq {seq}: {calls} calls took {:.1} us each by the grader's clock, {:.1} by the candidate's process",
                each(ours),
                each(claimed)
            ));
            return Ok(());
        }
        message = format!("{calls} calls took {ours:.0} us by the grader's clock, but {claimed:.0} are claimed");
    }
    inconsistent(message)
}
