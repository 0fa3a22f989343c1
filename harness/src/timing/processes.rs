//! More processes of the candidate for the runs back to back. What one process is given of the GPU's memory is worth 1 to
//! 2 % of a short call (H200), which no number of runs averages out.

use crate::gpu;
use crate::grade::Grade;
use crate::reason::{Failure, Reason};
use crate::rig::{Manner, Rig};

/// As many as the plan wants beside the first one, or as there is room for. One that fails its first call fails the grade.
pub fn others(grade: &mut Grade<'_>) -> Result<Vec<Rig>, Failure> {
    let mut rigs = Vec::new();
    let Some(&seq) = grade.plan.seqs.first() else { return Ok(rigs) };
    for k in 1..grade.plan.processes {
        let (free, total) = gpu::memory()?;
        let started = if free < total / 2 {
            Err(Failure::new(Reason::Environment, "less than half of the GPU's memory is free"))
        } else {
            grade.another(k as u64)
        };
        match started {
            Ok(rig) => rigs.push(rig),
            Err(f) if f.reason == Reason::Environment => {
                let note = format!("runs back to back in {k} of {} processes: {}", grade.plan.processes, f.message);
                grade.report.notes.push(note);
                break;
            }
            Err(f) => return Err(f.during("another process")),
        }
    }
    let stream = grade.stream.child(73);
    for (k, rig) in rigs.iter_mut().enumerate() {
        let content = grade.bank.bases(seq)[0].fresh_tokens(stream.child(k as u64));
        rig.call(&content, &Manner::CAREFUL)
            .and_then(|done| content.judge(&done.accuracy))
            .map_err(|f| f.during("another process"))?;
    }
    Ok(rigs)
}
