//! What a call takes the thread that makes it, until it returns: a run of calls of which none is waited for, each on the x and output of the one before,
//! and each on others. As the candidate's process tells it: the grader's clock cannot see when a call returns.

use super::{Kind, Samples};
use crate::grade::Grade;
use crate::reason::Failure;
use crate::rig::{Manner, Rig};

/// Runs, and calls of each: few enough that all of their launches find room in the driver's queue, and an odd number, so that the first one reads x.
const RUNS: u64 = 15;
const CALLS: usize = 33;

/// The clock's names, without and with other places.
const CLOCKS: [&str; 2] = ["host", "moved"];

/// Whether a clock of this name shows the host's time, of which the length asks nothing.
pub fn is_host(clock: &str) -> bool {
    CLOCKS.contains(&clock)
}

/// Both kinds of runs at this length, on a GPU.
pub fn measure(grade: &mut Grade<'_>, rig: &mut Rig, seq: usize) -> Result<(), Failure> {
    let bases = grade.bank.bases(seq);
    for (elsewhere, clock) in [false, true].into_iter().zip(CLOCKS) {
        let kind = Kind { cache: "hot", clock, method: "unwaited", weights: "fixed", headline: true };
        let manner = Manner {
            repeat: CALLS,
            elsewhere,
            snapshot: false,
            check_weights: false,
            same_place: true,
            ..Manner::CAREFUL
        };
        let stream = grade.stream.child(75).child(seq as u64).child(u64::from(elsewhere));
        let mut samples = Samples { ended_by: "number of runs", ..Samples::default() };
        for k in 0..RUNS {
            let content = bases[0].fresh_tokens(stream.child(k));
            let done = rig.call(&content, &manner)?;
            content.judge(&done.accuracy).map_err(|f| grade.diagnose(&content, f).during("after a run of calls"))?;
            samples.us.push(done.called.host_us / CALLS as f64);
            samples.clocks.push(None);
        }
        grade.record(seq, kind, samples);
    }
    Ok(())
}
