//! How long a call takes: every timed call on inputs never seen before and checked in full (`per_call`), and
//! back to back as a program would call it (`chain`), with the clocks checked against each other, and runs on inputs that
//! change against runs on inputs that do not (`looks`, `trades`, on a CPU `bursts`). Beside that, what a call takes the caller's thread (`host`).

mod audit;
mod bursts;
mod chain;
mod clocks;
mod host;
mod looks;
mod per_call;
mod processes;
mod trades;

use crate::content::Content;
use crate::floor::{self, Rates};
use crate::grade::{Grade, Plan};
use crate::protocol::{Api, Device};
use crate::reason::{Failure, Reason};
use crate::report::Speed;
use crate::rig::{Done, Rig};
use crate::rng::Stream;
use crate::stats::Summary;
use crate::traps;

/// Samples of one kind of measurement.
#[derive(Default)]
pub struct Samples {
    pub us: Vec<f64>,
    pub clocks: Vec<Option<f64>>,
    /// Which of several processes each sample is from.
    pub processes: Vec<usize>,
    /// By the GPU's timer, where it was read.
    pub stamps: Vec<f64>,
    /// The whole exchange, as the candidate's process claims it took and by the grader's clock.
    pub claimed: Vec<f64>,
    pub ours: Vec<f64>,
    /// Of the latter, what threads were kept waiting for a processor.
    pub waited: Vec<f64>,
    pub discarded: usize,
    pub ended_by: &'static str,
}

/// What was measured: the words of a [`Speed`].
#[derive(Clone, Copy)]
pub struct Kind {
    pub cache: &'static str,
    pub clock: &'static str,
    pub method: &'static str,
    pub weights: &'static str,
    /// The number for tables.
    pub headline: bool,
}

impl Kind {
    /// Whether this was measured so.
    fn is(&self, speed: &Speed) -> bool {
        [&speed.cache, &speed.clock, &speed.method, &speed.weights]
            == [self.cache, self.clock, self.method, self.weights]
    }
}

/// What times say of a candidate, unless its threads may have been kept waiting for a processor so long that they say it of the machine.
pub fn told_by_times(reason: Reason, message: String, by_the_machine: bool) -> Failure {
    if by_the_machine {
        let why = "but threads were kept waiting for a processor so long that it may be other programs' doing";
        return Failure::new(Reason::TooNoisy, format!("{message}; {why}"));
    }
    Failure::new(reason, message)
}

/// Steps of the progress bar.
pub fn steps(plan: &Plan) -> usize {
    plan.seqs.len()
}

/// Times every length of the plan.
pub fn measure(grade: &mut Grade<'_>, rig: &mut Rig) -> Result<(), Failure> {
    let gpu = grade.plan.device == Device::Cuda;
    let mut others = if gpu { processes::others(grade)? } else { Vec::new() };
    for (i, &seq) in grade.plan.seqs.iter().enumerate() {
        grade.ui.step(&format!("timing seq {seq}"));
        let during = |f: Failure| f.during(&format!("timing seq {seq}"));
        if gpu {
            chain::warm(grade, rig, seq, i == 0).map_err(during)?;
            chain::measure(grade, rig, &mut others, seq).map_err(during)?;
        }
        if grade.plan.singles {
            per_call::measure(grade, rig, seq).map_err(during)?;
            if gpu {
                host::measure(grade, rig, seq).map_err(during)?;
            }
        }
        clocks::agree(grade, rig, seq).map_err(during)?;
        if grade.plan.traps {
            // Who remembers, or works on between calls, may do so at some lengths only. All calls since the times with fixed weights had the same ones.
            let (bases, stream) = (grade.bank.bases(seq), grade.stream.child(82).child(seq as u64));
            traps::one_element(grade, rig, &bases[0], stream)
                .map_err(|f| f.during("one element changed"))
                .map_err(during)?;
            traps::rests(rig).map_err(during)?;
            traps::waits(grade, rig, &bases[1], stream).map_err(during)?;
        }
    }
    Ok(())
}

/// How long the runs of a candidate are to be.
pub use chain::{Shape, shape};
pub use trades::same_time as same_time_on_new_rows;

/// A run of calls on this content, and the time of one of them. One run in four is looked into instead.
pub fn run(rig: &mut Rig, content: &Content, shape: Shape, api: Api, stream: Stream) -> Result<Option<f64>, Failure> {
    let shape = shape.drawn(stream.child(1));
    let manner = shape.manner();
    let done: Done;
    let looked = stream.below(2, 4) == 0;
    if looked {
        let changes = looks::draw(content, manner.repeat, api, stream.child(3));
        done = rig.call_changing(content, &manner, &changes).map_err(looks::left_out)?;
        looks::judge(content, &changes, &done)?;
    } else {
        done = rig.call(content, &manner)?;
    }
    content.judge(&done.accuracy)?;
    Ok(done.called.device_us.filter(|_| !looked).map(|us| us / manner.repeat as f64))
}

impl Grade<'_> {
    /// Puts a measurement into the report, in the place of an earlier one of its kind.
    fn record(&mut self, seq: usize, kind: Kind, samples: Samples) {
        let summary = Summary::of(&samples.us);
        let share = |rates: &Rates| rates.floor_us(seq) / summary.median;
        let of_work = !host::is_host(kind.clock);
        let of_floor = self.plan.rates.as_ref().filter(|_| of_work).map(share);
        let speed = Speed {
            seq,
            cache: kind.cache.into(),
            clock: kind.clock.into(),
            method: kind.method.into(),
            weights: kind.weights.into(),
            headline: kind.headline,
            summary,
            tflops: of_work.then(|| floor::flops(seq) / summary.median / 1e6),
            of_floor,
            ended_by: samples.ended_by.into(),
            discarded: samples.discarded,
            samples: samples.us,
            clocks: samples.clocks,
            processes: samples.processes,
        };
        match self.report.speed.iter_mut().find(|s| s.seq == seq && kind.is(s)) {
            Some(earlier) => *earlier = speed,
            None => self.report.speed.push(speed),
        }
    }

    /// The median of a measurement made before.
    fn median(&self, seq: usize, matches: impl Fn(&Speed) -> bool) -> Option<f64> {
        self.report.speed.iter().find(|s| s.seq == seq && matches(s)).map(|s| s.summary.median)
    }
}
