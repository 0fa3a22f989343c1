//! Back to back: runs of calls between two events, each run tens of milliseconds where the GPU is the limit. Some
//! runs have rows of x swapped between their calls, and the last output of every run is checked in full.

use std::time::{Duration, Instant};

use super::{Kind, Samples, clocks};
use crate::content::Content;
use crate::dims::D;
use crate::grade::{Grade, judge};
use crate::reason::Failure;
use crate::rig::{Done, Manner, Rig};
use crate::rng::Stream;

/// A run is about so long, in us.
const RUN_US: f64 = 25_000.0;
/// At most so many calls wait in the launch queue, so that a spin can hide the cost of launching them.
const QUEUED: usize = 96;
/// The longest spin, in us.
const LONGEST_SPIN: f64 = 20_000.0;
/// Runs.
const RUNS: usize = 15;

const KIND: Kind = Kind { cache: "hot", clock: "device", method: "back-to-back", weights: "fixed", headline: true };
/// Each call waited for, as a program would that needs the answer.
const WAITED: Kind = Kind { clock: "wall", method: "one-by-one", ..KIND };
/// Calls in a run of those, and runs.
const WAITED_RUN: (usize, u64) = (32, 15);

/// How long the runs of a candidate are to be.
pub struct Shape {
    calls: usize,
    spin_us: u32,
}

/// Brings the chip to its working temperature and clock.
pub fn warm(grade: &mut Grade<'_>, rig: &mut Rig, seq: usize, cold_start: bool) -> Result<(), Failure> {
    let content = grade.bank.bases(seq)[0].fresh_tokens(grade.stream.child(70));
    let until = Instant::now() + Duration::from_millis(if cold_start { 1000 } else { 150 });
    while Instant::now() < until {
        let manner = manner(&Shape { calls: 64, spin_us: 100 });
        judge(&rig.call(&content, &manner)?.accuracy)?;
    }
    Ok(())
}

pub fn manner(shape: &Shape) -> Manner {
    Manner { repeat: shape.calls, spin_us: shape.spin_us, snapshot: false, check_weights: false, ..Manner::CAREFUL }
}

/// Measures the runs and puts them into the report.
pub fn measure(grade: &mut Grade<'_>, rig: &mut Rig, seq: usize) -> Result<(), Failure> {
    let bases = grade.bank.bases(seq);
    let stream = grade.stream.child(71).child(seq as u64);
    let shape = shape(rig, &bases[0].fresh_tokens(stream.child(0)))?;
    let overhead = clocks::overhead_us(rig, bases[0].plain())?;
    let mut shares = Vec::new();
    let mut samples = Samples { ended_by: "number of runs", ..Samples::default() };
    for run in 1..=RUNS as u64 {
        let s = stream.child(run);
        let content = bases[0].fresh_tokens(s);
        let done = if run % 5 == 0 && seq > 1 {
            with_swaps(rig, &content, &shape, s)?
        } else {
            rig.call(&content, &manner(&shape))?
        };
        judge(&done.accuracy).map_err(|f| grade.diagnose(&content, f).during("after a run of calls"))?;
        shares.push(clocks::run_share(&done, f64::from(shape.spin_us), overhead));
        samples.us.push(per_call(&done, shape.calls));
        samples.clocks.push(done.called.clock_mhz);
    }
    clocks::same_runs(&shares)?;
    grade.record(seq, KIND, samples);
    one_by_one(grade, rig, seq)
}

/// From the call until everything has finished, again and again.
fn one_by_one(grade: &mut Grade<'_>, rig: &mut Rig, seq: usize) -> Result<(), Failure> {
    let bases = grade.bank.bases(seq);
    let (calls, runs) = WAITED_RUN;
    let manner = Manner { wait_each: true, ..manner(&Shape { calls, spin_us: 0 }) };
    let mut samples = Samples { ended_by: "number of runs", ..Samples::default() };
    for run in 0..runs {
        let content = bases[0].fresh_tokens(grade.stream.child(72).child(seq as u64).child(run));
        let done = rig.call(&content, &manner)?;
        judge(&done.accuracy).map_err(|f| grade.diagnose(&content, f).during("after a run of calls"))?;
        samples.us.push(done.called.wall_us / calls as f64);
        samples.clocks.push(None);
    }
    grade.record(seq, WAITED, samples);
    Ok(())
}

fn per_call(done: &Done, calls: usize) -> f64 {
    done.called.device_us.unwrap_or(f64::NAN) / calls as f64
}

/// Runs long enough to be steady; short ones, behind a longer spin, where launching is the slower part.
pub fn shape(rig: &mut Rig, content: &Content) -> Result<Shape, Failure> {
    let first = Shape { calls: 24, spin_us: 2000 };
    rig.call(content, &manner(&first))?;
    let done = rig.call(content, &manner(&first))?;
    let (device, host) = (per_call(&done, first.calls), done.called.host_us / first.calls as f64);
    let calls = (RUN_US / device).clamp(8.0, 4000.0) as usize;
    if host < 0.8 * device {
        return Ok(Shape { calls, spin_us: 500 });
    }
    let calls = calls.min(QUEUED);
    Ok(Shape { calls, spin_us: (1.3 * host * calls as f64).clamp(500.0, LONGEST_SPIN) as u32 })
}

/// A run in which two pairs of rows of x trade places at a moment that the candidate cannot know.
fn with_swaps(rig: &mut Rig, content: &Content, shape: &Shape, stream: Stream) -> Result<Done, Failure> {
    let rows = content.x.len() / D;
    let swap = |i: u64| {
        let a = stream.below(10 * i, rows);
        let b = (a + 1 + stream.below(10 * i + 1, rows - 1)) % rows;
        (stream.below(10 * i + 2, shape.calls), a, b)
    };
    let mut swaps = vec![swap(1), swap(2)];
    swaps.sort_unstable();
    rig.call_patched(content, &manner(shape), &swaps)
}
