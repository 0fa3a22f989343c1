//! The clocks against each other and against what is possible. The candidate shares its process with the clock
//! that it is timed by, so the grader's own has the last word.

use super::audit::audit;
use super::{Samples, host, told_by_times};
use crate::content::Content;
use crate::floor;
use crate::grade::Grade;
use crate::machine;
use crate::protocol::Api;
use crate::reason::{Failure, Reason};
use crate::report::Speed;
use crate::rig::{Done, Manner, Rig};
use crate::stats::{self, median, quantile, sorted};

/// How much an exchange may vary, in us.
pub const JITTER_US: f64 = 400.0;
/// Single calls beyond this are long beside the exchange, in us.
const LONG_US: f64 = 5.0 * JITTER_US;
/// By both clocks: of three calls in ten, as a busy machine holds others up; and of one in ten, but for the jitter: of those honest libraries showed 14 to
/// 212 us too little, in calls of 2 to 70 ms beside three other programs on two cores.
const SINGLE_SHARE: f64 = 0.85;
const BEST_SHARE: f64 = 0.97;
/// Runs of calls, whose events take nearly all of the time between their spin and the end.
const RUN_SHARE: f64 = 0.92;
/// What one call more makes a run longer by, by the grader's clock, is at most the time between events over this.
const MARGINAL_SHARE: f64 = 0.95;
/// And of what it takes where the host is the slower part after all, which was four fifths of the GPU's time a call when it was asked: processes' launches
/// differ by half.
const SPUN_SHARE: f64 = 0.75;
/// Runs of one kind have at least half as many calls as the longest of their process, others far fewer.
const COMPARABLE: f64 = 0.25;
/// Events and the GPU's timer around them.
const STAMP_SHARE: f64 = 0.92;
/// What lies between the timer's readings and the events, in us.
const STAMP_US: f64 = 8.0;
/// A candidate that does the same calls in less than this share of the time of new ones skips work.
const SKIPPED: f64 = 0.4;
/// Nor is a single call faster than a call of a run by more than this.
const LEAKED: f64 = 0.7;
/// Single calls behind a flush in less than this share of the time of hot ones: 0.999 is the least of 108 lengths in the records of an H200 and an H100, where
/// the hot ones are back to back.
const COLD_SHARE: f64 = 0.9;
/// What an event pair around a single call may cost more than a call of a run, in us.
const SINGLE_US: f64 = 15.0;
/// Until everything has finished it may take so many times as long as between the events, and so many us more.
const OUTSIDE: (f64, f64) = (4.0, 100.0);

/// What asking for no call at all costs by the grader's clock, in us. What a candidate's process shows of it counts only where nothing better is known.
pub fn overhead_us(rig: &mut Rig, content: &Content) -> Result<f64, Failure> {
    if let Some(us) = rig.idle_us(content.seq) {
        return Ok(us);
    }
    let manner = Manner { repeat: 0, check_weights: false, ..Manner::CAREFUL };
    let once = |rig: &mut Rig| Ok(rig.call(content, &manner)?.wall.as_secs_f64() * 1e6);
    let walls = (0..7).map(|_| once(rig)).collect::<Result<Vec<f64>, Failure>>()?;
    Ok(median(&walls))
}

/// Claimed times of single calls against the grader's clock. A busy machine stretches some exchanges; a clock
/// that lies does it again and again.
pub fn same_time(samples: &Samples, overhead: f64) -> Result<(), Failure> {
    // Of short calls only those that were held up would be long beside the exchange.
    if median(&samples.ours) - overhead <= LONG_US {
        return Ok(());
    }
    let calls = samples.claimed.iter().zip(&samples.ours).zip(&samples.waited);
    let calls = calls.map(|((&claimed, ours), &waited)| Single { claimed, ours: ours - overhead, waited });
    let calls: Vec<Single> = calls.filter(|call| call.ours > LONG_US).collect();
    let share = |of: fn(&Single) -> f64, at| quantile(&sorted(&calls.iter().map(of).collect::<Vec<_>>()), at);
    let most = share(|call| call.claimed / call.ours, 0.3) >= SINGLE_SHARE;
    let best = share(|call| (call.claimed + JITTER_US) / call.ours, 0.9) >= BEST_SHARE;
    if most && best {
        return Ok(());
    }
    // Time that threads waited may lie in what is claimed, so of the best calls those tell more in which hardly any did.
    let alone = calls.iter().filter(|call| call.waited < JITTER_US);
    let alone: Vec<f64> = alone.map(|call| (call.claimed + JITTER_US) / call.ours).collect();
    let by_the_machine = if best || alone.is_empty() {
        share(|call| call.claimed / (call.ours - call.waited).max(1.0), 0.3) >= SINGLE_SHARE
    } else {
        median(&alone) >= BEST_SHARE
    };
    let (ours, claimed) = (median(&samples.ours) - overhead, median(&samples.claimed));
    let message = format!("calls took {ours:.0} us by the grader's clock, but {claimed:.0} are claimed");
    Err(told_by_times(Reason::TimingInconsistent, message, by_the_machine))
}

/// What clocks that disagree say, where an exchange takes so many us just now.
pub fn beside_exchanges(disagree: Failure, samples: &Samples, now: f64) -> Failure {
    if same_time(samples, now).is_err() {
        return disagree;
    }
    let why = format!("but an exchange with a process without the library takes {now:.0} us just now");
    Failure::new(Reason::TooNoisy, format!("{}; {why}", disagree.message))
}

/// A single call, in us: as claimed, by the grader's clock, and how long threads waited meanwhile.
struct Single {
    claimed: f64,
    ours: f64,
    waited: f64,
}

/// A run of calls by both clocks, in us.
pub struct Run {
    /// Which of the candidate's processes made it.
    pub process: usize,
    pub calls: usize,
    /// Between its events.
    pub device: f64,
    /// By the grader's clock, without the exchange and the spin.
    pub ours: f64,
}

impl Run {
    /// The run that was made.
    pub fn of(done: &Done, process: usize, calls: usize, spin: f64, overhead: f64) -> Self {
        let device = done.called.device_us.unwrap_or(f64::NAN);
        Self { process, calls, device, ours: done.wall.as_secs_f64() * 1e6 - overhead - spin }
    }

    /// Time of one call.
    pub fn per_call(&self) -> f64 {
        self.device / self.calls as f64
    }
}

/// Runs whose events account for too little of the time, as a whole or for what one call more takes. Another process
/// on the GPU stretches some.
pub fn same_runs(runs: &[Run]) -> Result<(), Failure> {
    let shares: Vec<f64> = runs.iter().map(|r| r.device / (r.ours - JITTER_US).max(1.0)).collect();
    let share = quantile(&sorted(&shares), 0.7);
    if share < RUN_SHARE {
        inconsistent(format!("runs of calls take {:.0} % of the grader's time between their events", 100.0 * share))?;
    }
    let each = median(&runs.iter().map(Run::per_call).collect::<Vec<_>>());
    // A process whose host is the slower part makes runs of a few dozen calls, of which the exchange is a large part. Told by the calls, which the grader
    // chooses, and not by the time, of which a candidate may make a run take more.
    let most = runs.iter().map(|r| r.calls).max().unwrap_or(0);
    let long = || runs.iter().filter(|r| r.calls as f64 >= COMPARABLE * most as f64);
    // A process whose calls take 3 % longer than those of the others has made as many more: else, where the long runs happen to be its own, each call
    // more looks dearer than it is.
    let usual = ours_each(long());
    let like = |r: &Run| ours_each(long().filter(|other| other.process == r.process)) / usual;
    let points: Vec<(f64, f64)> = long().map(|r| (r.calls as f64 * like(r), r.ours)).collect();
    let marginal = stats::slope(&points);
    let longest = runs.iter().map(|r| r.ours).fold(0.0, f64::max);
    // Long runs whose events account for their time hide nothing: the short ones of other processes, which wait for no host, may have somewhat faster calls.
    let accounted = median(&long().map(|r| r.device / r.ours.max(1.0)).collect::<Vec<_>>()) >= MARGINAL_SHARE;
    let least = if accounted { SPUN_SHARE } else { MARGINAL_SHARE };
    // Where all runs are short, the exchange hides the difference between them.
    if longest > 20.0 * JITTER_US && each < least * marginal {
        inconsistent(format!(
            "{each:.2} us a call between events, but by the grader's clock every call more takes {marginal:.2} us"
        ))?;
    }
    Ok(())
}

/// What a call takes by the grader's clock.
fn ours_each<'a>(runs: impl Iterator<Item = &'a Run>) -> f64 {
    median(&runs.map(|r| r.ours / r.calls as f64).collect::<Vec<_>>())
}

/// A call's events against the GPU's timer around them.
pub fn same_as_stamps(samples: &Samples) -> Result<(), Failure> {
    let (device, stamps) = (median(&samples.us), median(&samples.stamps));
    if device < STAMP_SHARE * (stamps - STAMP_US) {
        inconsistent(format!("{device:.2} us between events, but {stamps:.2} us by the GPU's timer around them"))?;
    }
    Ok(())
}

/// Nothing gets faster by a flush. The grader's clock, which is all that counts on a CPU, cannot tell single calls on a GPU.
fn flush_costs(cold: f64, hot: f64) -> Result<(), Failure> {
    if hot.is_finite() && cold < COLD_SHARE * hot {
        inconsistent(format!("{cold:.2} us for a call behind a flush of the caches, {hot:.2} us for one without"))?;
    }
    Ok(())
}

fn inconsistent(message: String) -> Result<(), Failure> {
    Err(Failure::new(Reason::TimingInconsistent, message))
}

/// Checks the times of this length.
pub fn agree(grade: &mut Grade<'_>, rig: &mut Rig, seq: usize) -> Result<(), Failure> {
    possible(grade, seq)?;
    let Some(wall) = grade.median(seq, |s| s.clock == "wall" && s.cache == "hot" && s.method == "per-call") else {
        return Ok(());
    };
    if let Some(device) = grade.median(seq, |s| s.clock == "device" && s.method == "per-call" && s.cache == "hot") {
        if device > 1.1 * wall + 10.0 {
            inconsistent(format!("{device:.1} us between events, but {wall:.1} us until everything had finished"))?;
        }
        let (times, more) = OUTSIDE;
        if wall > times * device + more {
            inconsistent(format!(
                "{device:.1} us on the default stream, but {wall:.1} us until everything had finished: work runs elsewhere"
            ))?;
        }
        let chained = grade.median(seq, |s| s.method == "back-to-back").unwrap_or(f64::INFINITY);
        let singles =
            grade.report.speed.iter().filter(|s| s.seq == seq && s.clock == "device" && s.method == "per-call");
        let fastest = singles.map(|s| s.summary.median).fold(device, f64::min);
        if chained.is_finite() && fastest < LEAKED * chained - SINGLE_US {
            inconsistent(format!(
                "{fastest:.1} us for a single call, {chained:.1} us for one of many: work leaks out of its events"
            ))?;
        }
        for cold in grade.report.speed.iter().filter(|s| s.seq == seq && s.clock == "device" && s.cache == "cold") {
            let same = |s: &Speed| {
                s.clock == "device" && s.method == cold.method && s.cache == "hot" && s.weights == cold.weights
            };
            let hot = grade.median(seq, same).unwrap_or(f64::INFINITY).min(chained);
            flush_costs(cold.summary.median, hot)?;
        }
        if chained < SKIPPED * device - SINGLE_US {
            let message = format!(
                "{chained:.1} us a call on unchanged inputs, {device:.1} us on new ones: work is skipped on repeats"
            );
            return Err(Failure::new(Reason::Caching, message));
        }
    }
    // On the weights of a batch, where they were timed so.
    let fixed = |s: &Speed| s.clock == "wall" && s.cache == "hot" && s.method == "per-call" && s.weights == "fixed";
    let wall = grade.median(seq, fixed).unwrap_or(wall);
    audit(grade, rig, seq, wall)
}

/// No time beats the machine.
fn possible(grade: &Grade<'_>, seq: usize) -> Result<(), Failure> {
    let api = if grade.report.api == "prepared" { Api::Prepared } else { Api::Solve };
    let limit = match &grade.plan.rates {
        Some(rates) => rates.impossible_us(seq, api),
        None => floor::impossible_on_cpu_us(seq, machine::processors(), machine::has_matrix_units()),
    };
    for s in grade.report.speed.iter().filter(|s| s.seq == seq && !host::is_host(&s.clock)) {
        if s.summary.median < limit {
            let (cache, clock, us) = (&s.cache, &s.clock, s.summary.median);
            return inconsistent(format!(
                "{us:.2} us ({cache}, {clock}) is less than this machine needs ({limit:.2} us)"
            ));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Single calls: what is claimed, the exchange, and how much of that threads waited.
    fn singles(calls: &[[f64; 3]]) -> Samples {
        let [claimed, ours, waited] = [0, 1, 2].map(|i| calls.iter().map(|call| call[i]).collect());
        Samples { claimed, ours, waited, ..Samples::default() }
    }

    #[test]
    fn a_few_short_calls_that_were_held_up_tell_nothing() {
        let mut calls = vec![[1200.0, 1300.0, 0.0]; 12];
        calls.extend([[1300.0, 6000.0, 0.0]; 4]);
        assert!(same_time(&singles(&calls), 50.0).is_ok());
    }

    #[test]
    fn a_clock_that_shows_less_is_told_from_a_busy_machine() {
        let reason = |call| same_time(&singles(&[call; 12]), 50.0).err().map(|failure| failure.reason);
        assert_eq!(reason([15_500.0, 16_000.0, 0.0]), None);
        assert_eq!(reason([12_000.0, 16_000.0, 0.0]), Some(Reason::TimingInconsistent));
        assert_eq!(reason([12_000.0, 16_000.0, 300.0]), Some(Reason::TimingInconsistent));
        assert_eq!(reason([12_000.0, 16_000.0, 3800.0]), Some(Reason::TooNoisy));
        assert_eq!(reason([1500.0, 16_000.0, 3800.0]), Some(Reason::TimingInconsistent), "more than anybody waited");
        let held_up = |often: [f64; 3], once| {
            let calls = [vec![often; 10], vec![once; 2]].concat();
            same_time(&singles(&calls), 50.0).err().map(|failure| failure.reason)
        };
        let best = [15_800.0, 16_000.0, 0.0];
        assert_eq!(held_up([14_000.0, 16_000.0, 0.0], best), None);
        assert_eq!(held_up([12_000.0, 16_000.0, 3800.0], best), Some(Reason::TooNoisy));
        // By an eighth, however long threads waited in most calls
        assert_eq!(held_up([14_000.0, 16_000.0, 3800.0], [14_000.0, 16_000.0, 0.0]), Some(Reason::TimingInconsistent));
    }

    /// As on a virtual machine whose host is busy: each exchange takes a millisecond.
    #[test]
    fn clocks_that_disagree_by_what_exchanges_take_tell_of_the_machine() {
        let reason = |call, now| {
            let samples = singles(&[call; 12]);
            let disagree = same_time(&samples, 50.0).expect_err("a millisecond or more is missing");
            beside_exchanges(disagree, &samples, now).reason
        };
        assert_eq!(reason([9_100.0, 10_100.0, 0.0], 1000.0), Reason::TooNoisy);
        assert_eq!(reason([9_100.0, 10_100.0, 0.0], 200.0), Reason::TimingInconsistent);
        assert_eq!(reason([1_000.0, 10_100.0, 0.0], 1000.0), Reason::TimingInconsistent, "more than that");
    }

    #[test]
    fn no_call_is_faster_behind_a_flush() {
        assert!(flush_costs(9.9, 10.0).is_ok() && flush_costs(30.0, 10.0).is_ok());
        assert!(flush_costs(8.9, 10.0).is_err());
        assert!(flush_costs(8.9, f64::INFINITY).is_ok(), "no hot calls were timed");
    }

    /// Runs of several processes, a call of which takes so many us; the last ones are the long ones.
    fn runs(processes: &[f64], device: impl Fn(f64) -> f64) -> Vec<Run> {
        let run = |i: usize| {
            let (process, calls) = (i * processes.len() / 14, 200 + 10 * i);
            let us = calls as f64 * processes[process];
            Run { process, calls, device: device(us), ours: us + 60.0 }
        };
        (0..14).map(run).collect()
    }

    #[test]
    fn processes_may_differ_in_speed() {
        assert!(same_runs(&runs(&[60.0, 61.0, 61.5, 62.0, 62.5, 63.0, 64.0], |us| us)).is_ok());
        assert!(same_runs(&runs(&[62.0], |us| us)).is_ok());
    }

    /// A process whose host is the slower part makes short runs, another long ones, of calls of so many us.
    fn short_and_long([short, long]: [f64; 2], device: impl Fn(f64) -> f64) -> Vec<Run> {
        let run = |i: usize| {
            let (process, is_long) = (i % 3, i.is_multiple_of(3));
            let (calls, us) = if is_long { (1700 + 100 * i, long) } else { (50 + 3 * i, short) };
            let us = us * calls as f64;
            Run { process, calls, device: device(us), ours: us + 110.0 }
        };
        (0..15).map(run).collect()
    }

    #[test]
    fn what_an_exchange_costs_beside_short_runs_is_not_taken_for_slow_calls() {
        assert!(same_runs(&short_and_long([7.5, 7.5], |us| us)).is_ok());
        assert!(same_runs(&short_and_long([7.5, 7.5], |us| 0.93 * us)).is_err());
        let mut stretched = runs(&[62.0], |us| 0.93 * us);
        stretched[3].ours *= 6.0;
        assert!(same_runs(&stretched).is_err());
    }

    /// A handle of one token on an H200: 5.39 us a call where a spin hides the launches, 5.84 where the host was found to be fast enough and was not.
    #[test]
    fn short_runs_may_have_faster_calls_than_long_ones_of_another_process() {
        assert!(same_runs(&short_and_long([5.39, 5.84], |us| us)).is_ok());
        assert!(same_runs(&short_and_long([5.39, 5.84], |us| 0.93 * us)).is_err());
        let only_short = |us: f64| if us < 2000.0 { 0.8 * us } else { us };
        assert!(same_runs(&short_and_long([5.39, 5.84], only_short)).is_err());
    }

    #[test]
    fn events_that_leave_something_out_are_noticed() {
        for processes in [&[60.0, 61.0, 62.0][..], &[62.0]] {
            assert!(same_runs(&runs(processes, |us| 0.93 * us)).is_err());
            assert!(same_runs(&runs(processes, |us| us - 1200.0)).is_err());
            assert!(same_runs(&runs(processes, |us| 0.5 * us)).is_err());
        }
    }

    #[test]
    fn events_are_held_to_the_timer_around_them() {
        let of = |us: f64, stamps| {
            same_as_stamps(&Samples { us: vec![us; 5], stamps: vec![stamps; 5], ..Samples::default() })
        };
        assert!(of(10.0, 17.0).is_ok() && of(100.0, 112.0).is_ok());
        assert!(of(10.0, 30.0).is_err() && of(80.0, 100.0).is_err());
    }
}
