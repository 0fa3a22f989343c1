//! A library against itself, again and again: how often the grader sees a difference where there is none.

use super::interleaved::{self, Contest};
use super::{Comparison, FEWEST, Tally, Word};
use crate::bank::Bank;
use crate::cli::{Grading, Itself};
use crate::machine::Machine;
use crate::plans;
use crate::reason::{Failure, Reason};
use crate::rig::Rig;
use crate::rng::Stream;
use crate::run;
use crate::stats::{median, quantile, sorted};
use crate::ui::say;

/// Comparisons after which all processes start anew. Until then each comparison deals them out in another way.
const ANEW: usize = 20;
/// The share of comparisons that must end with the right word.
const RIGHT: f64 = 0.95;
/// Medians of two runs are at most so far apart.
const APART: f64 = 0.005;

/// Makes the comparisons at every length and counts the words.
pub fn run(args: &Itself) -> Result<Reason, Failure> {
    let gpu = Machine::gpu(args.calls.device)?;
    let device = plans::device(args.calls.device, gpu.as_ref())?;
    let plan = plans::plan(&args.calls, &Grading::default(), device, gpu.as_ref());
    let scratch = run::Scratch;
    let mut candidates = run::candidates(&args.calls)?;
    let (name, path) = candidates.remove(0);
    if let Some((other, _)) = candidates.first() {
        return Err(Failure::new(
            Reason::Usage,
            format!("itself compares one library with itself, not {name} with {other}"),
        ));
    }
    let library = run::library(&path, &plan, &scratch, gpu.as_ref())?;
    let mut bank = Bank::new(plan.seed);
    let mut good = true;
    for &seq in &plan.seqs {
        let mut comparisons: Vec<Comparison> = Vec::new();
        let mut medians: Vec<(f64, f64)> = Vec::new();
        while comparisons.len() < args.repeat {
            let stream = Stream::new(plan.seed, 9).child(seq as u64).child(comparisons.len() as u64);
            let mut rigs = interleaved::start(&[&library; 2 * FEWEST], &plan, stream)?;
            for k in 0..ANEW.min(args.repeat - comparisons.len()) as u64 {
                let stream = stream.child(2).child(k);
                let (mut tally, mut times) = (Tally::default(), [Vec::new(), Vec::new()]);
                'sittings: for dealt in 0.. {
                    for (sitting, pair) in deal(&mut rigs, stream.child(dealt)).chunks_exact_mut(2).enumerate() {
                        let stream = stream.child(dealt).child(sitting as u64);
                        let seen = Contest::new(pair, &plan, &mut bank, seq, stream)?.times()?;
                        tally.add(interleaved::against_first(&seen).remove(0), stream);
                        times.iter_mut().zip(seen).for_each(|(all, new)| all.extend(new));
                        if tally.decided() {
                            break 'sittings;
                        }
                    }
                }
                comparisons.push(Comparison::new(seq, "itself", &name, &name, tally.pairs, tally.interval));
                medians.push((median(&times[0]), median(&times[1])));
            }
        }
        good &= print(seq, &comparisons, &medians);
    }
    Ok(if good { Reason::Pass } else { Reason::Selftest })
}

/// The processes in random order.
fn deal(rigs: &mut [Rig], stream: Stream) -> Vec<&mut Rig> {
    let order = stream.permutation(rigs.len());
    let mut dealt: Vec<(u32, &mut Rig)> = order.into_iter().zip(rigs).collect();
    dealt.sort_by_key(|(place, _)| *place);
    dealt.into_iter().map(|(_, rig)| rig).collect()
}

fn print(seq: usize, comparisons: &[Comparison], medians: &[(f64, f64)]) -> bool {
    let n = comparisons.len();
    let count = |word| comparisons.iter().filter(|c| c.word == word).count();
    let same = count(Word::Same);
    say!(
        "seq {seq}: {same} of {n} SAME, {} FASTER, {} SLOWER, {} INCONCLUSIVE, {:.0} samples each",
        count(Word::Faster),
        count(Word::Slower),
        count(Word::Inconclusive),
        comparisons.iter().map(|c| c.pairs as f64).sum::<f64>() / n as f64
    );
    let apart = sorted(&medians.iter().map(|(a, b)| (b / a - 1.0).abs()).collect::<Vec<_>>());
    let close = apart.iter().filter(|d| **d <= APART).count();
    say!(
        "seq {seq}: medians {:.2} us, {close} of {n} pairs of them within {:.1} %, {:.2} % apart in the middle, {:.2} % at 95 of 100",
        median(&medians.iter().map(|m| m.0).collect::<Vec<_>>()),
        100.0 * APART,
        100.0 * quantile(&apart, 0.5),
        100.0 * quantile(&apart, 0.95)
    );
    same as f64 >= RIGHT * n as f64
}
