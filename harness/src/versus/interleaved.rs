//! Candidates against each other in one sitting: every round gives all of them the same inputs, in random order.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::{Comparison, paired};
use crate::bank::Bank;
use crate::content::Base;
use crate::grade::{Plan, judge};
use crate::protocol::{Api, Device};
use crate::reason::Failure;
use crate::rig::{Manner, Rig};
use crate::rng::Stream;
use crate::timing::{self, Shape};
use crate::ui::Ui;

/// Timed rounds: no fewer than the first number, and up to the second while an interval is wider than [`SHARP`].
const ROUNDS: (usize, usize) = (12, 48);
/// Half the width of an interval that more rounds would not make more useful.
const SHARP: f64 = 0.0025;
/// Rounds between two looks at the intervals.
const LOOK: usize = 6;
/// Rounds after which the weights move elsewhere: where they lie changes a time by some tenths of a percent.
const MOVE: u64 = 3;
/// For each length.
const LONGEST: Duration = Duration::from_secs(20);

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
        let mut contest = Contest::new(&mut rigs, plan, bank, seq, stream.child(seq as u64))?;
        let times = contest.times()?;
        let what = if plan.device == Device::Cuda { "hot, back to back" } else { "hot, per call" };
        for (k, (name, _)) in candidates.iter().enumerate().skip(1) {
            let ratio = paired(&times[0], &times[k], stream.child(k as u64));
            comparisons.push(Comparison::new(seq, what, &candidates[0].0, name, times[0].len(), ratio));
        }
    }
    Ok(comparisons)
}

/// Candidates at one length.
pub struct Contest<'a> {
    rigs: &'a mut [Rig],
    /// How long runs are, where a round is a run and not a call.
    shapes: Vec<Option<Shape>>,
    bases: Arc<Vec<Base>>,
    api: Api,
    stream: Stream,
    round: u64,
}

impl<'a> Contest<'a> {
    /// Makes the first calls.
    pub fn new(rigs: &'a mut [Rig], plan: &Plan, bank: &mut Bank, seq: usize, stream: Stream) -> Result<Self, Failure> {
        let bases = bank.bases(seq);
        let mut shapes = Vec::new();
        for rig in rigs.iter_mut() {
            let content = bases[0].fresh_tokens(stream.child(1));
            judge(&rig.call(&content, &Manner::CAREFUL)?.accuracy)?;
            let run = plan.device == Device::Cuda;
            shapes.push(run.then(|| timing::shape(rig, &content).map(Shape::halved)).transpose()?);
        }
        Ok(Self { rigs, shapes, bases, api: plan.api, stream, round: 0 })
    }

    /// Times of all candidates, round by round, until they are good enough.
    pub fn times(&mut self) -> Result<Vec<Vec<f64>>, Failure> {
        let mut times = vec![Vec::new(); self.rigs.len()];
        let start = Instant::now();
        loop {
            if let Some(round) = self.round()? {
                times.iter_mut().zip(round).for_each(|(all, one)| all.push(one));
            }
            let n = times[0].len();
            let sharp = |b: &Vec<f64>| {
                let (_, low, high) = paired(&times[0], b, self.stream.child(2));
                high - low <= 2.0 * SHARP
            };
            let done = n >= ROUNDS.0 && n.is_multiple_of(LOOK) && times[1..].iter().all(sharp);
            if done || n >= ROUNDS.1 || (start.elapsed() > LONGEST && n >= 8) {
                return Ok(times);
            }
        }
    }

    /// One round: the time of each, unless it was a round to look into what the candidates do.
    fn round(&mut self) -> Result<Option<Vec<f64>>, Failure> {
        self.round += 1;
        let s = self.stream.child(100 + self.round);
        let runs = self.shapes[0].is_some();
        let base = &self.bases[if runs { 0 } else { self.round as usize % self.bases.len() }];
        let content = if runs { base.fresh_tokens(s) } else { base.fresh(s) };
        let mut times = vec![None; self.rigs.len()];
        for k in s.child(1).permutation(self.rigs.len()) {
            let (k, api) = (k as usize, self.api);
            if self.round.is_multiple_of(MOVE) {
                self.rigs[k].move_weights();
            }
            times[k] = match self.shapes[k] {
                Some(shape) => timing::run(&mut self.rigs[k], &content, shape, api, s.child(2))?,
                None => {
                    let done = self.rigs[k].call(&content, &Manner::CAREFUL)?;
                    judge(&done.accuracy)?;
                    Some(done.called.wall_us)
                }
            };
        }
        Ok(times.into_iter().collect())
    }
}
