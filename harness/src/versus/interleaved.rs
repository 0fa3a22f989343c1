//! Candidates against each other in one sitting: every round gives all of them the same inputs, in random order.

use std::path::PathBuf;

use super::{Comparison, paired};
use crate::bank::Bank;
use crate::grade::{Plan, judge};
use crate::protocol::Device;
use crate::reason::Failure;
use crate::rig::{Manner, Rig};
use crate::rng::Stream;
use crate::timing;
use crate::ui::Ui;

/// Rounds on a GPU, where a round is a run of calls.
const RUNS: usize = 24;
/// Rounds on a CPU, where it is a call; no more than fit into the time.
const CALLS: usize = 30;
/// In seconds for each length.
const LONGEST: f64 = 20.0;

/// Compares every candidate with the first.
pub fn compare(
    candidates: &[(String, PathBuf)],
    plan: &Plan,
    bank: &mut Bank,
    ui: &mut Ui,
) -> Result<Vec<Comparison>, Failure> {
    let stream = Stream::new(plan.seed, 3);
    let start =
        |(name, path): &(String, PathBuf)| Rig::start(path, &plan.setup(), stream.child(1)).map_err(|f| f.during(name));
    let mut rigs = candidates.iter().map(start).collect::<Result<Vec<Rig>, Failure>>()?;
    ui.expect(plan.seqs.len());
    let mut comparisons = Vec::new();
    for &seq in &plan.seqs {
        ui.step(&format!("comparing at seq {seq}"));
        let times = rounds(&mut rigs, plan, bank, seq, stream.child(seq as u64))?;
        let what = if plan.device == Device::Cuda { "hot, back to back" } else { "hot, per call" };
        for (k, (name, _)) in candidates.iter().enumerate().skip(1) {
            let ratio = paired(&times[0], &times[k], stream.child(k as u64));
            comparisons.push(Comparison::new(seq, what, &candidates[0].0, name, times[0].len(), ratio));
        }
    }
    Ok(comparisons)
}

/// Times of all candidates, round by round.
fn rounds(
    rigs: &mut [Rig],
    plan: &Plan,
    bank: &mut Bank,
    seq: usize,
    stream: Stream,
) -> Result<Vec<Vec<f64>>, Failure> {
    let bases = bank.bases(seq);
    let gpu = plan.device == Device::Cuda;
    let mut manners = Vec::new();
    for rig in rigs.iter_mut() {
        let content = bases[0].fresh_tokens(stream.child(1));
        judge(&rig.call(&content, &Manner::CAREFUL)?.accuracy)?;
        manners.push(if gpu { timing::run_manner(rig, &content)? } else { Manner::CAREFUL });
    }
    let mut times = vec![Vec::new(); rigs.len()];
    let start = std::time::Instant::now();
    for round in 0..if gpu { RUNS } else { CALLS } as u64 {
        let s = stream.child(100 + round);
        let content = if gpu { bases[0].fresh_tokens(s) } else { bases[round as usize % bases.len()].fresh(s) };
        for k in s.child(1).permutation(rigs.len()) {
            let k = k as usize;
            let done = rigs[k].call(&content, &manners[k])?;
            judge(&done.accuracy)?;
            let us = done.called.device_us.unwrap_or(done.called.wall_us) / manners[k].repeat as f64;
            times[k].push(us);
        }
        if start.elapsed().as_secs_f64() > LONGEST && round >= 8 {
            break;
        }
    }
    Ok(times)
}
