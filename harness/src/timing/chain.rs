//! Back to back: runs of calls between two events, each run tens of milliseconds where the GPU is the limit, in turn by
//! several processes of the candidate. Nobody knows how many calls a run has, nor whether it is one that is looked into
//! (`looks`); the last output of every run is checked in full.

use std::time::{Duration, Instant};

use super::{Kind, Samples, clocks, looks, trades};
use crate::content::Content;
use crate::grade::Grade;
use crate::reason::{Failure, Reason};
use crate::rig::{Changes, Done, Manner, Rig};
use crate::rng::Stream;

/// A run is about so long at most, in us.
const RUN_US: f64 = 25_000.0;
/// The shortest run's share of the longest.
const SHORTEST: f64 = 0.5;
/// At most so many calls wait in the launch queue, so that a spin can hide the cost of launching them.
const QUEUED: usize = 96;
/// The longest spin, in us.
const LONGEST_SPIN: f64 = 20_000.0;
/// Runs that are timed, at least so many in all and of each process, so that its own speed is known; and runs that are looked into.
const RUNS: (usize, usize, usize) = (15, 3, 6);
/// Processes whose runs on repeated inputs are held against runs on new ones: so many at each length, drawn.
const TRADING: usize = 2;
/// After so many runs of a process its weights go elsewhere: where they lie is worth up to 3 % (H200, 16 rows).
const RUNS_A_PLACE: usize = 4;

const KIND: Kind = Kind { cache: "hot", clock: "device", method: "back-to-back", weights: "fixed", headline: true };
/// Each call waited for, as a program would that needs the answer.
const WAITED: Kind = Kind { clock: "wall", method: "one-by-one", ..KIND };
/// The longest run of those, runs that are timed, and runs that are looked into.
const WAITED_RUN: (usize, usize, usize) = (48, 15, 5);

/// How long the runs of a candidate are to be.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    calls: usize,
    spin_us: u32,
}

impl Shape {
    /// A run of random length.
    pub fn drawn(self, stream: Stream) -> Self {
        let share = stream.uniform(0, SHORTEST, 1.0);
        Self { calls: ((self.calls as f64 * share) as usize).max(4), ..self }
    }

    /// Runs of at most so many calls.
    pub fn at_most(self, calls: usize) -> Self {
        Self { calls: self.calls.min(calls), ..self }
    }

    /// Runs of half the length.
    pub fn halved(self) -> Self {
        Self { calls: self.calls / 2, ..self }
    }

    /// How such a run is made.
    pub fn manner(self) -> Manner {
        let manner = Manner { snapshot: false, check_weights: false, ..Manner::CAREFUL };
        Manner { repeat: self.calls, spin_us: self.spin_us, ..manner }
    }
}

/// Brings the chip to its working temperature and clock.
pub fn warm(grade: &mut Grade<'_>, rig: &mut Rig, seq: usize, cold_start: bool) -> Result<(), Failure> {
    let content = grade.bank.bases(seq)[0].fresh_tokens(grade.stream.child(70));
    let until = Instant::now() + if cold_start { grade.plan.warm } else { Duration::from_millis(150) };
    while Instant::now() < until {
        content.judge(&rig.call(&content, &Shape { calls: 64, spin_us: 100 }.manner())?.accuracy)?;
    }
    Ok(())
}

/// Measures the runs and puts them into the report. Noise gets a second chance.
pub fn measure(grade: &mut Grade<'_>, rig: &mut Rig, others: &mut [Rig], seq: usize) -> Result<(), Failure> {
    let stream = grade.stream.child(71).child(seq as u64);
    let mut rigs: Vec<&mut Rig> = std::iter::once(&mut *rig).chain(others).collect();
    let samples = match runs(grade, &mut rigs, seq, stream.child(1)) {
        Ok((samples, Ok(()))) => samples,
        Ok((_, Err(_))) => {
            let (samples, agreed) = runs(grade, &mut rigs, seq, stream.child(2))?;
            agreed.map(|()| samples)?
        }
        Err(failure) => return Err(failure),
    };
    grade.record(seq, KIND, samples);
    // Half of the processes make the median, and which of them skip work is for the candidate to choose.
    for which in stream.child(3).permutation(rigs.len()).into_iter().take(TRADING) {
        let rig = &mut *rigs[which as usize];
        let shape = shape(rig, grade.bank.bases(seq)[0].plain())?;
        trade(grade, rig, seq, shape, false)?;
    }
    if grade.plan.singles { one_by_one(grade, rig, seq) } else { Ok(()) }
}

/// The samples, and whether the clocks agree on them. A wrong answer is a failure of its own.
fn runs(
    grade: &mut Grade<'_>,
    rigs: &mut [&mut Rig],
    seq: usize,
    stream: Stream,
) -> Result<(Samples, Result<(), Failure>), Failure> {
    let bases = grade.bank.bases(seq);
    let mut before = Vec::new();
    for rig in rigs.iter_mut() {
        let shape = shape(rig, &bases[0].fresh_tokens(stream.child(0)))?;
        before.push((shape, clocks::overhead_us(rig, bases[0].plain())?));
    }
    let mut samples = Samples { ended_by: "number of runs", ..Samples::default() };
    let (mut timed, mut looked) = (Vec::new(), Vec::new());
    let (least, each, more) = RUNS;
    let wanted = least.max(each * rigs.len());
    for (k, which) in stream.child(3).permutation(wanted + more).into_iter().enumerate() {
        let s = stream.child(100 + k as u64);
        let (turn, process) = (k / rigs.len(), k % rigs.len());
        let (rig, (shape, overhead)) = (&mut *rigs[process], before[process]);
        let (content, shape) = (bases[0].fresh_tokens(s), shape.drawn(s.child(1)));
        if turn % RUNS_A_PLACE == 0 {
            rig.move_weights();
        }
        let run = |done: &Done| clocks::Run::of(done, process, shape.calls, f64::from(shape.spin_us), overhead);
        if (which as usize) < wanted {
            let done = rig.call(&content, &shape.manner())?;
            content.judge(&done.accuracy).map_err(|f| grade.diagnose(&content, f).during("after a run of calls"))?;
            timed.push(run(&done));
            samples.us.push(timed[timed.len() - 1].per_call());
            samples.clocks.push(done.called.clock_mhz);
            samples.processes.push(process);
        } else {
            let (done, changes) = look_into(grade, rig, &content, shape.calls, &shape.manner(), s.child(2))?;
            looked.push(looks::per_call(&run(&done), &changes));
        }
    }
    let agreed = clocks::same_runs(&timed).and_then(|()| looks::same_time(&samples.us, &looked));
    Ok((samples, agreed))
}

/// A run that is looked into, found right.
fn look_into(
    grade: &Grade<'_>,
    rig: &mut Rig,
    content: &Content,
    calls: usize,
    manner: &Manner,
    stream: Stream,
) -> Result<(Done, Changes), Failure> {
    let changes = looks::draw(content, calls, grade.plan.api, stream);
    let done = rig.call_changing(content, manner, &changes).map_err(looks::left_out)?;
    content.judge(&done.accuracy).map_err(|f| grade.diagnose(content, f).during("after a run of calls"))?;
    looks::judge(content, &changes, &done)?;
    Ok((done, changes))
}

/// Runs on repeated inputs beside runs on new ones.
fn trade(grade: &mut Grade<'_>, rig: &mut Rig, seq: usize, shape: Shape, wait_each: bool) -> Result<(), Failure> {
    let weights = grade.bank.bases(seq)[0].plain().weights.clone();
    let content = grade.bank.anew(seq, 0, Some(weights));
    let stream = grade.stream.child(74).child(seq as u64).child(u64::from(wait_each));
    trades::same_time(rig, &content, shape, wait_each, stream).map_err(|failure| match failure.reason {
        Reason::WrongAnswer | Reason::NotFiniteOrUnwritten => {
            grade.diagnose(&content, failure).during("after a run of calls")
        }
        _ => failure,
    })
}

/// From the call until everything has finished, again and again.
fn one_by_one(grade: &mut Grade<'_>, rig: &mut Rig, seq: usize) -> Result<(), Failure> {
    let bases = grade.bank.bases(seq);
    let stream = grade.stream.child(72).child(seq as u64);
    let (calls, timed, looked) = WAITED_RUN;
    let mut samples = Samples { ended_by: "number of runs", ..Samples::default() };
    for (k, which) in stream.permutation(timed + looked).into_iter().enumerate() {
        let s = stream.child(k as u64);
        let (content, shape) = (bases[0].fresh_tokens(s), Shape { calls, spin_us: 0 }.drawn(s.child(1)));
        let manner = Manner { wait_each: true, ..shape.manner() };
        if (which as usize) < timed {
            let done = rig.call(&content, &manner)?;
            content.judge(&done.accuracy).map_err(|f| grade.diagnose(&content, f).during("after a run of calls"))?;
            samples.us.push(done.called.wall_us / shape.calls as f64);
            samples.clocks.push(None);
        } else {
            look_into(grade, rig, &content, shape.calls, &manner, s.child(2))?;
        }
    }
    grade.record(seq, WAITED, samples);
    trade(grade, rig, seq, Shape { calls, spin_us: 0 }, true)
}

/// Runs long enough to be steady; short ones, behind a longer spin, where launching is the slower part.
pub fn shape(rig: &mut Rig, content: &Content) -> Result<Shape, Failure> {
    if let Some((_, shape)) = rig.shape.filter(|(seq, _)| *seq == content.seq) {
        return Ok(shape);
    }
    let shape = tried(rig, content)?;
    rig.shape = Some((content.seq, shape));
    Ok(shape)
}

fn tried(rig: &mut Rig, content: &Content) -> Result<Shape, Failure> {
    let first = Shape { calls: 24, spin_us: 2000 };
    rig.call(content, &first.manner())?;
    let done = rig.call(content, &first.manner())?;
    let each = |us: f64| us / first.calls as f64;
    let (device, host) = (each(done.called.device_us.unwrap_or(f64::NAN)), each(done.called.host_us));
    let calls = (RUN_US / device).clamp(8.0, 4000.0) as usize;
    if host < 0.8 * device {
        return Ok(Shape { calls, spin_us: 500 });
    }
    let calls = calls.min(QUEUED);
    Ok(Shape { calls, spin_us: (1.3 * host * calls as f64).clamp(500.0, LONGEST_SPIN) as u32 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_knows_how_long_a_run_is() {
        let calls = |calls| {
            let drawn = move |seed| Shape { calls, spin_us: 0 }.drawn(Stream::new(seed, 0)).manner().repeat;
            (0..100).map(drawn).collect::<std::collections::BTreeSet<_>>()
        };
        assert!(calls(1000).len() > 50 && calls(1000).iter().all(|n| (500..=1000).contains(n)));
        assert_eq!(calls(3).into_iter().collect::<Vec<_>>(), [4]);
    }
}
