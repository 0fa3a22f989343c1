//! The clocks against each other and against what is possible. The candidate shares its process with the clock
//! that it is timed by, so the grader's own has the last word.

use crate::floor;
use crate::grade::Grade;
use crate::protocol::{Api, Device};
use crate::reason::{Failure, Reason};
use crate::rig::{Manner, Rig};

/// An audit batch is about so long, in us.
const BATCH_US: f64 = 60_000.0;
/// What a request and its reply cost, at most, in us.
const EXCHANGE_US: f64 = 3_000.0;
/// A candidate that does the same calls in less than this share of the time of new ones skips work.
const SKIPPED: f64 = 0.4;
/// What an event pair around a single call may cost more than a call of a run, in us.
const SINGLE_US: f64 = 15.0;

fn inconsistent(message: String) -> Result<(), Failure> {
    Err(Failure::new(Reason::TimingInconsistent, message))
}

/// Checks the times of this length.
pub fn agree(grade: &mut Grade<'_>, rig: &mut Rig, seq: usize) -> Result<(), Failure> {
    possible(grade, seq)?;
    let Some(wall) = grade.median(seq, |s| s.clock == "wall" && s.cache == "hot") else { return Ok(()) };
    if let Some(device) = grade.median(seq, |s| s.clock == "device" && s.method == "per-call" && s.cache == "hot") {
        if device > 1.1 * wall + 10.0 {
            inconsistent(format!("{device:.1} us between events, but {wall:.1} us until everything had finished"))?;
        }
        let chained = grade.median(seq, |s| s.method == "back-to-back").unwrap_or(f64::INFINITY);
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
    let done = rig.call(&content, &manner)?;
    crate::grade::judge(&done.accuracy).map_err(|f| grade.diagnose(&content, f).during("audit batch"))?;
    let (ours, claimed) = (done.wall.as_secs_f64() * 1e6, done.called.wall_us);
    let per_call = claimed / calls as f64;
    grade.report.notes.push(format!(
        "seq {seq}: {calls} calls took {:.1} us each by the grader's clock, {per_call:.1} by the candidate's process",
        ours / calls as f64
    ));
    if claimed < 0.9 * ours - EXCHANGE_US {
        return inconsistent(format!(
            "{calls} calls took {ours:.0} us by the grader's clock, but {claimed:.0} are claimed"
        ));
    }
    Ok(())
}
