//! Batches of calls by the grader's own clock, which cannot tell short calls one by one: against what the candidate's process says they took, and
//! against single calls. On a CPU they are batches in which inputs change, and the same without changes (`bursts`).

use super::bursts::{self, Both};
use super::clocks::{JITTER_US, overhead_us};
use super::told_by_times;
use crate::grade::Grade;
use crate::protocol::Device;
use crate::reason::{Failure, Reason};
use crate::rig::{Manner, Rig};
use crate::stats::median;

/// What is claimed of a batch, which is long beside what an exchange varies by.
const BATCH_SHARE: f64 = 0.85;
/// A single call beside one of a batch, which finds its inputs in the caches; a machine may be busy meanwhile.
const ALONE_SHARE: f64 = 0.6;

/// A batch of calls by the grader's own clock, against what the candidate's process says it took. `wall`: of single calls on weights that are fixed, as here.
pub fn audit(grade: &mut Grade<'_>, rig: &mut Rig, seq: usize, wall: f64) -> Result<(), Failure> {
    let calls = bursts::calls(wall, grade.plan.timeout.as_secs_f64() * 1e6);
    let stream = grade.stream.child(80).child(seq as u64);
    let content = grade.bank.bases(seq)[0].fresh_tokens(stream);
    let manner = Manner { repeat: calls, snapshot: false, ..Manner::CAREFUL };
    let burst = bursts::drawn(grade, &content, calls, stream.child(1));
    let (mut failure, mut by_the_machine) = (None, false);
    // A busy machine may spoil a batch or two.
    for _ in 0..3 {
        let single = single_us(grade, rig, seq)?;
        let overhead = overhead_us(rig, &content)?;
        let both = burst.as_ref().map(|burst| Both::make(grade, rig, &content, burst)).transpose()?;
        let skipped = both.as_ref().and_then(|both| both.same_time(calls, overhead, single.least).err());
        let done = match both {
            Some(both) => both.still,
            None => rig.call(&content, &manner)?,
        };
        content.judge(&done.accuracy).map_err(|f| grade.diagnose(&content, f).during("audit batch"))?;
        let ours = done.wall.as_secs_f64() * 1e6 - overhead;
        let claimed = done.called.wall_us;
        let (ours_each, claimed_each) = (ours / calls as f64, claimed / calls as f64);
        let alone = ours - done.waited.as_secs_f64() * 1e6;
        let single = single.median.max(wall);
        by_the_machine |= claimed >= BATCH_SHARE * alone - JITTER_US && single >= ALONE_SHARE * alone / calls as f64;
        if claimed < BATCH_SHARE * ours - JITTER_US {
            let message =
                format!("{calls} calls took {ours:.0} us by the grader's clock, but {claimed:.0} are claimed");
            failure = Some(told_by_times(Reason::TimingInconsistent, message, by_the_machine));
        } else if single < ALONE_SHARE * ours_each {
            let message =
                format!("a call took {ours_each:.0} us by the grader's clock, but {single:.0} are claimed for one");
            failure = Some(told_by_times(Reason::TimingInconsistent, message, by_the_machine));
        } else if skipped.is_some() {
            failure = skipped;
        } else {
            grade.report.notes.push(format!(
                "seq {seq}: {calls} calls took {ours_each:.1} us each by the grader's clock, {claimed_each:.1} by the \
                 candidate's process"
            ));
            return Ok(());
        }
    }
    failure.map_or(Ok(()), Err)
}

/// Single calls just now, in us.
struct Singles {
    median: f64,
    /// Without what threads waited.
    least: f64,
}

/// What single calls claim right now: they may be too short for the grader's clock, a batch of them is not.
fn single_us(grade: &mut Grade<'_>, rig: &mut Rig, seq: usize) -> Result<Singles, Failure> {
    let base = &grade.bank.bases(seq)[0];
    let stream = grade.stream.child(81).child(seq as u64);
    // As most calls of the report: where all weights are compared before each, there is time to prepare them.
    let manner = Manner { check_weights: grade.plan.device == Device::Cuda, ..Manner::CAREFUL };
    let (mut claims, mut least) = (Vec::new(), f64::INFINITY);
    for k in 0..3 {
        let done = grade.checked(rig, &base.fresh_tokens(stream.child(k)), &manner)?;
        claims.push(done.called.wall_us);
        least = least.min(done.called.wall_us - done.waited.as_secs_f64() * 1e6);
    }
    Ok(Singles { median: median(&claims), least })
}
