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

/// Compares every candidate with the first.
pub fn compare(
    candidates: &[(String, Library)],
    plan: &Plan,
    bank: &mut Bank,
    ui: &mut Ui,
) -> Result<Vec<Comparison>, Failure> {
    let stream = Stream::new(plan.seed, 3);
    let libraries: Vec<&Library> = candidates.iter().map(|(_, library)| library).collect();
    let mut tallies = vec![vec![Tally::default(); candidates.len() - 1]; plan.seqs.len()];
    ui.expect(FEWEST * plan.seqs.len());
    for sitting in 0.. {
        let open: Vec<usize> = (0..tallies.len()).filter(|&i| !tallies[i].iter().all(Tally::decided)).collect();
        if open.is_empty() {
            break;
        }
        if sitting >= FEWEST {
            ui.expect(open.len());
        }
        let stream = stream.child(sitting as u64);
        let mut rigs = start(&libraries, plan, stream)?;
        let mut rigs: Vec<&mut Rig> = rigs.iter_mut().collect();
        for i in open {
            let seq = plan.seqs[i];
            ui.step(&format!("comparing at seq {seq}"));
            let mut contest = Contest::new(&mut rigs, plan, bank, seq, stream.child(seq as u64))?;
            let times = contest.times()?;
            contest.repeats(bank, candidates)?;
            for (tally, ratios) in tallies[i].iter_mut().zip(against_first(&times)) {
                tally.add(ratios, stream);
            }
        }
    }
    let what = if plan.device == Device::Cuda { "hot, back to back" } else { "hot, per call" };
    let mut comparisons = Vec::new();
    for (&seq, tallies) in plan.seqs.iter().zip(&tallies) {
        for (tally, (name, _)) in tallies.iter().zip(&candidates[1..]) {
            comparisons.push(Comparison::new(seq, what, &candidates[0].0, name, tally.pairs, tally.interval));
        }
    }
    Ok(comparisons)
}

/// A process for each library, started in random order.
pub fn start(libraries: &[&Library], plan: &Plan, stream: Stream) -> Result<Vec<Rig>, Failure> {
    let mut rigs: Vec<Option<Rig>> = libraries.iter().map(|_| None).collect();
    for k in stream.permutation(libraries.len()) {
        let library = libraries[k as usize];
        let rig = Rig::start(library, &plan.setup(), stream.child(1));
        rigs[k as usize] = Some(rig.map_err(|f| f.during(&library.path.display().to_string()))?);
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
    ) -> Result<Self, Failure> {
        let bases = bank.bases(seq);
        let mut shapes = Vec::new();
        let content = bases[0].fresh_tokens(stream.child(1));
        let first = |rig: &mut Rig| {
            content.judge(&rig.call(&content, &Manner::CAREFUL)?.accuracy)?;
            let run = plan.device == Device::Cuda;
            run.then(|| timing::shape(rig, &content).map(Shape::halved)).transpose()
        };
        for rig in rigs.iter_mut() {
            shapes.push(first(rig).map_err(|failure| failure.during(&rig.path))?);
        }
        let anew = |k: usize| {
            let weights = bases[k % bases.len()].fresh(stream.child(2).child(k as u64)).weights;
            bank.anew(seq, k as u64, Some(weights))
        };
        let contents = if plan.device == Device::Cuda { Vec::new() } else { (0..ROUNDS.1).map(anew).collect() };
        Ok(Self { rigs, shapes, bases, contents, api: plan.api, stream, round: 0 })
    }

    /// Times of all candidates, round by round.
    pub fn times(&mut self) -> Result<Vec<Vec<f64>>, Failure> {
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
    fn repeats(&mut self, bank: &mut Bank, candidates: &[(String, Library)]) -> Result<(), Failure> {
        let plain = self.bases[0].plain();
        for ((rig, shape), (name, _)) in self.rigs.iter_mut().zip(&self.shapes).zip(candidates) {
            if let &Some(shape) = shape {
                let content = bank.anew(plain.seq, 0, Some(plain.weights.clone()));
                let stream = self.stream.child(3);
                timing::same_time_on_new_rows(rig, &content, shape, false, stream).map_err(|f| f.during(name))?;
            }
        }
        Ok(())
    }

    /// One round: the time of each, unless it was a round to look into what the candidates do.
    fn round(&mut self) -> Result<Option<Vec<f64>>, Failure> {
        self.round += 1;
        let s = self.stream.child(100 + self.round);
        let content = self.contents.pop().unwrap_or_else(|| self.bases[0].fresh_tokens(s));
        let mut times = vec![None; self.rigs.len()];
        for k in s.child(1).permutation(self.rigs.len()) {
            let (k, api) = (k as usize, self.api);
            let (rig, shape) = (&mut *self.rigs[k], self.shapes[k]);
            rig.move_weights();
            let timed = match shape {
                Some(shape) => timing::run(rig, &content, shape, api, s.child(2)),
                None => rig.call(&content, &Manner::CAREFUL).and_then(|done| {
                    content.judge(&done.accuracy)?;
                    Ok(Some(done.us()))
                }),
            };
            times[k] = timed.map_err(|failure| failure.during(&rig.path))?;
        }
        Ok(times.into_iter().collect())
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
