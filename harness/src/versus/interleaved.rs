//! Candidates against each other: every round gives all of them the same inputs, in random order. The processes start
//! anew for every sitting, in random order too, and there are as many sittings as it takes. No call on a CPU has inputs
//! that a symmetry relates to those of another in its sitting.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::{Comparison, FEWEST, Tally};
use crate::bank::Bank;
use crate::binary::Library;
use crate::content::{Base, Content};
use crate::grade::Plan;
use crate::protocol::{Api, Device};
use crate::reason::Failure;
use crate::rig::{Manner, Rig};
use crate::rng::Stream;
use crate::timing::{self, Shape};
use crate::ui::Ui;

/// Rounds of a sitting that are timed, each with the weights elsewhere: on a GPU, where a round is a run of calls, and
/// on a CPU, where it is a call.
const ROUNDS: (usize, usize) = (3, 4);
/// For each length of a sitting.
const LONGEST: Duration = Duration::from_secs(6);
/// From when a process may go on until it is called.
const WAKING: Duration = Duration::from_millis(1);

/// A failure, and whose it is: the number of a library among those that are compared.
pub struct Fault {
    whose: usize,
    failure: Failure,
}

impl From<Fault> for Failure {
    fn from(fault: Fault) -> Self {
        fault.failure
    }
}

/// What came of comparing, and who has failed meanwhile, by its number.
#[derive(Default)]
pub struct Compared {
    pub comparisons: Vec<Comparison>,
    pub failed: Vec<(usize, Failure)>,
}

/// Compares every candidate with the first. Who fails takes no further part.
pub fn compare(candidates: &[(String, Library)], plan: &Plan, bank: &mut Bank, ui: &mut Ui) -> Compared {
    let stream = Stream::new(plan.seed, 3);
    let mut left: Vec<usize> = (0..candidates.len()).collect();
    let mut failed = Vec::new();
    let mut tallies = vec![vec![Tally::default(); candidates.len()]; plan.seqs.len()];
    ui.expect(FEWEST * plan.seqs.len());
    for sitting in 0.. {
        let decided = |of: &Vec<Tally>| left.iter().skip(1).all(|&k| of[k].decided());
        let open: Vec<usize> = (0..tallies.len()).filter(|&i| !decided(&tallies[i])).collect();
        if open.is_empty() || left.first() != Some(&0) {
            break;
        }
        if sitting >= FEWEST {
            ui.expect(open.len());
        }
        let stream = stream.child(sitting as u64);
        let taking_part: Vec<_> = left.iter().map(|&k| &candidates[k]).collect();
        let sat = sit(&taking_part, plan, bank, ui, stream, &open, |i, ratios| {
            for (&k, ratios) in left[1..].iter().zip(ratios) {
                tallies[i][k].add(ratios, stream);
            }
        });
        if let Err(Fault { whose, failure }) = sat {
            failed.push((left.remove(whose), failure));
        }
    }
    let what = if plan.device == Device::Cuda { "hot, back to back" } else { "hot, per call" };
    let mut comparisons = Vec::new();
    if let [0, others @ ..] = &left[..] {
        for (&seq, tallies) in plan.seqs.iter().zip(&tallies) {
            for &k in others {
                let Tally { pairs, interval, .. } = tallies[k];
                comparisons.push(Comparison::new(seq, what, &candidates[0].0, &candidates[k].0, pairs, interval));
            }
        }
    }
    Compared { comparisons, failed }
}

/// One sitting at these of the plan's lengths. `told` is given a length's number and the times of the others over those of the first.
fn sit(
    candidates: &[&(String, Library)],
    plan: &Plan,
    bank: &mut Bank,
    ui: &mut Ui,
    stream: Stream,
    open: &[usize],
    mut told: impl FnMut(usize, Vec<Vec<f64>>),
) -> Result<(), Fault> {
    let libraries: Vec<&Library> = candidates.iter().map(|(_, library)| library).collect();
    let mut rigs = start(&libraries, plan, stream)?;
    let mut rigs: Vec<&mut Rig> = rigs.iter_mut().collect();
    for &i in open {
        let seq = plan.seqs[i];
        ui.step(&format!("comparing at seq {seq}"));
        let mut contest = Contest::new(&mut rigs, plan, bank, seq, stream.child(seq as u64))?;
        let times = contest.times()?;
        contest.repeats(bank, candidates)?;
        told(i, against_first(&times));
    }
    Ok(())
}

/// A process for each library, started in random order.
pub fn start(libraries: &[&Library], plan: &Plan, stream: Stream) -> Result<Vec<Rig>, Fault> {
    let mut rigs: Vec<Option<Rig>> = libraries.iter().map(|_| None).collect();
    for k in stream.permutation(libraries.len()) {
        let whose = k as usize;
        let library = libraries[whose];
        let rig = Rig::start(library, &plan.setup(), stream.child(1));
        let named = |failure: Failure| Fault { whose, failure: failure.during(&library.path.display().to_string()) };
        rigs[whose] = Some(rig.map_err(named)?);
    }
    Ok(rigs.into_iter().flatten().collect())
}

/// Times of the others over those of the first, round by round.
pub fn against_first(times: &[Vec<f64>]) -> Vec<Vec<f64>> {
    times[1..].iter().map(|b| times[0].iter().zip(b).map(|(a, b)| b / a).collect()).collect()
}

/// Candidates at one length in one sitting.
pub struct Contest<'a, 'b> {
    rigs: &'a mut [&'b mut Rig],
    /// How long runs are, where a round is a run and not a call.
    shapes: Vec<Option<Shape>>,
    bases: Arc<Vec<Base>>,
    /// For rounds that are calls: no symmetry relates one to another, so whoever recognises those gains nothing.
    contents: Vec<Content>,
    api: Api,
    stream: Stream,
    round: u64,
}

impl<'a, 'b> Contest<'a, 'b> {
    /// Makes the first calls.
    pub fn new(
        rigs: &'a mut [&'b mut Rig],
        plan: &Plan,
        bank: &mut Bank,
        seq: usize,
        stream: Stream,
    ) -> Result<Self, Fault> {
        let bases = bank.bases(seq);
        let mut shapes = Vec::new();
        let content = bases[0].fresh_tokens(stream.child(1));
        let first = |rig: &mut Rig| {
            content.judge(&rig.call(&content, &Manner::CAREFUL)?.accuracy)?;
            let run = plan.device == Device::Cuda;
            run.then(|| timing::shape(rig, &content).map(Shape::halved)).transpose()
        };
        for (whose, rig) in rigs.iter_mut().enumerate() {
            shapes.push(first(rig).map_err(|failure| Fault { whose, failure: failure.during(&rig.path) })?);
        }
        let anew = |k: usize| {
            let weights = bases[k % bases.len()].fresh(stream.child(2).child(k as u64)).weights;
            bank.anew(seq, k as u64, Some(weights))
        };
        let contents = if plan.device == Device::Cuda { Vec::new() } else { (0..ROUNDS.1).map(anew).collect() };
        Ok(Self { rigs, shapes, bases, contents, api: plan.api, stream, round: 0 })
    }

    /// Times of all candidates, round by round.
    pub fn times(&mut self) -> Result<Vec<Vec<f64>>, Fault> {
        let mut times = vec![Vec::new(); self.rigs.len()];
        let rounds = if self.shapes[0].is_some() { ROUNDS.0 } else { ROUNDS.1 };
        let start = Instant::now();
        while times[0].len() < rounds && (start.elapsed() < LONGEST || times[0].len() < 2) {
            if let Some(round) = self.round()? {
                times.iter_mut().zip(round).for_each(|(all, one)| all.push(one));
            }
        }
        Ok(times)
    }

    /// Whether all do the work of a run although its inputs come again, as they did in those that were timed.
    fn repeats(&mut self, bank: &mut Bank, candidates: &[&(String, Library)]) -> Result<(), Fault> {
        let plain = self.bases[0].plain();
        for (whose, ((rig, shape), (name, _))) in self.rigs.iter_mut().zip(&self.shapes).zip(candidates).enumerate() {
            if let &Some(shape) = shape {
                let content = bank.anew(plain.seq, 0, Some(plain.weights.clone()));
                let stream = self.stream.child(3);
                timing::same_time_on_new_rows(rig, &content, shape, false, stream)
                    .map_err(|failure| Fault { whose, failure: failure.during(name) })?;
            }
        }
        Ok(())
    }

    /// One round: the time of each, unless it was a round to look into what the candidates do.
    fn round(&mut self) -> Result<Option<Vec<f64>>, Fault> {
        self.round += 1;
        let s = self.stream.child(100 + self.round);
        let content = self.contents.pop().unwrap_or_else(|| self.bases[0].fresh_tokens(s));
        let mut times = vec![None; self.rigs.len()];
        for k in s.child(1).permutation(self.rigs.len()) {
            let (k, api) = (k as usize, self.api);
            let shape = self.shapes[k];
            if shape.is_none() {
                self.halt_all_but(k);
            }
            let rig = &mut *self.rigs[k];
            rig.move_weights();
            let timed = match shape {
                Some(shape) => timing::run(rig, &content, shape, api, s.child(2)),
                None => rig.call(&content, &Manner::CAREFUL).and_then(|done| {
                    content.judge(&done.accuracy)?;
                    Ok(Some(done.us()))
                }),
            };
            let path = &self.rigs[k].path;
            times[k] = timed.map_err(|failure| Fault { whose: k, failure: failure.during(path) })?;
        }
        if self.shapes[0].is_none() {
            self.rigs.iter().for_each(|rig| rig.halt(false));
        }
        Ok(times.into_iter().collect())
    }

    /// On a CPU threads of one that has been called, which spin for a while or do not rest at all, would take processors from the next.
    fn halt_all_but(&self, k: usize) {
        self.rigs.iter().for_each(|rig| rig.halt(true));
        self.rigs[k].halt(false);
        std::thread::sleep(WAKING);
    }
}

#[cfg(test)]
mod tests {
    use super::against_first;

    #[test]
    fn others_are_told_by_the_time_of_the_first() {
        let times = [vec![2.0, 4.0], vec![1.0, 8.0], vec![4.0, 4.0]];
        assert_eq!(against_first(&times), [[0.5, 2.0], [2.0, 1.0]]);
    }
}
