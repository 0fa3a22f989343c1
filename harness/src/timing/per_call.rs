//! Times of single calls. Before each: new content, other addresses, poison; after each: a full check.

use std::time::{Duration, Instant};

use super::{Kind, Samples, clocks, told_by_times};
use crate::content::Base;
use crate::grade::Grade;
use crate::protocol::Device;
use crate::reason::{Failure, Reason};
use crate::rig::{Done, Manner, Rig, now_us};
use crate::rng::Stream;
use crate::stats::median;

/// A sample whose SM clock was below this share of the maximum is thrown away.
const THROTTLED: f64 = 0.5;
/// Single calls timed to the last wait on a GPU get so long.
const WALL_TIME: Duration = Duration::from_millis(1500);
/// Chances that clocks get to agree where the machine may be busy, and the time between them.
const CHANCES: usize = 4;
const PAUSE: Duration = Duration::from_millis(400);
/// So many contents are drawn anew in a round.
const ANEW: u64 = 2;
/// The shortest and the longest spin in front of a call, in us.
const SPINS: (u32, u32) = (50, 2000);
/// Usual calls in less than this share of the time of new ones skip work.
const SKIPPED: f64 = 0.8;
/// The same on a GPU, where runs of calls tell more (`trades`): 0.76 was seen of a library that skips nothing (H200, 64 tokens), though while contents were
/// still drawn between the calls.
const SKIPPED_ON_GPU: f64 = 0.4;
/// Rounds that must all look odd before anything is said.
const ROUNDS: u64 = 4;

/// All kinds that the plan asks for.
pub fn measure(grade: &mut Grade<'_>, rig: &mut Rig, seq: usize) -> Result<(), Failure> {
    let bases = grade.bank.bases(seq);
    let gpu = grade.plan.device == Device::Cuda;
    let caches: &[&str] = if grade.plan.cold { &["hot", "cold"] } else { &["hot"] };
    let clocks: &[&str] = if gpu { &["device", "wall"] } else { &["wall"] };
    let mut modes = Vec::new();
    if grade.plan.fresh {
        modes.push("fresh");
    }
    if grade.plan.fixed {
        modes.push("fixed");
    }
    let setting = Setting {
        spin: spin_us(grade, rig, &bases[0], seq)?,
        overhead: clocks::overhead_us(rig, bases[0].plain())?,
        bases: &bases,
        seq,
    };
    let mut kinds = Vec::new();
    for weights in modes {
        for &cache in caches {
            for &clock in clocks {
                let headline = weights == "fresh" && (!gpu || cache == "cold");
                let kind = Kind { cache, clock, method: "per-call", weights, headline };
                timed(grade, rig, &setting, kind)?;
                kinds.push(kind);
            }
        }
    }
    drawn_anew(grade, rig, &setting, "fresh", &kinds)?;
    if grade.plan.fixed { drawn_anew(grade, rig, &setting, "fixed", &kinds) } else { Ok(()) }
}

/// What single calls of a length are timed with.
struct Setting<'a> {
    bases: &'a [Base],
    spin: u32,
    overhead: f64,
    seq: usize,
}

/// Times calls of a kind, and puts that into the report in the place of what was there of it.
fn timed(grade: &mut Grade<'_>, rig: &mut Rig, setting: &Setting<'_>, kind: Kind) -> Result<(), Failure> {
    let gpu = grade.plan.device == Device::Cuda;
    let mut samples = sample(grade, rig, setting, kind)?;
    // On a GPU the runs of calls tell more: an exchange is long beside a call, and varies.
    let mut chances = CHANCES;
    while let Some(disagree) = clocks::same_time(&samples, setting.overhead).err().filter(|_| !gpu) {
        // A machine that was busy for a moment gets another chance; a clock that lies fails that too.
        chances -= 1;
        if chances == 0 {
            return Err(held_to_the_machine(grade, setting, kind, &samples, disagree));
        }
        std::thread::sleep(PAUSE);
        samples = sample(grade, rig, setting, kind)?;
    }
    if kind.clock == "device" {
        clocks::same_as_stamps(&samples)?;
    }
    grade.record(setting.seq, kind, samples);
    Ok(())
}

/// Exchanges may take longer for a while than anybody waits for a processor, as where the host of a virtual machine is busy: clocks that disagree by no more
/// than that tell nothing.
fn held_to_the_machine(
    grade: &Grade<'_>,
    setting: &Setting<'_>,
    kind: Kind,
    samples: &Samples,
    disagree: Failure,
) -> Failure {
    let call_us = (median(&samples.ours) - setting.overhead) as u32;
    match now_us(&grade.plan.setup(), setting.seq, call_us, kind.cache == "cold") {
        Ok(now) => clocks::beside_exchanges(disagree, samples, now),
        Err(_) => disagree,
    }
}

/// Contents that no symmetry relates to earlier ones must not take longer than those that one does: whoever
/// recognises the symmetry would be exposed. Noise can make a round look odd; skipped work looks odd every time.
/// Whoever sees such a content can do all of the work for a while, but not have done it before: the times in the report
/// are held to the same, and measured again where they look odd.
/// `weights`: whether all are new, or x alone.
fn drawn_anew(
    grade: &mut Grade<'_>,
    rig: &mut Rig,
    setting: &Setting<'_>,
    weights: &str,
    kinds: &[Kind],
) -> Result<(), Failure> {
    let (bases, seq) = (setting.bases, setting.seq);
    let gpu = grade.plan.device == Device::Cuda;
    // As most calls of the report: on a CPU one behind a comparison of all weights finds less in its caches. 3 of 14 honest runs at 16 tokens looked odd so.
    let manner = Manner { spin_us: if gpu { setting.spin } else { 0 }, check_weights: gpu, ..Manner::CAREFUL };
    let skipped = if gpu { SKIPPED_ON_GPU } else { SKIPPED };
    let fixed = weights == "fixed";
    let clock = if gpu { "device" } else { "wall" };
    let kinds: Vec<Kind> = kinds.iter().copied().filter(|k| k.weights == weights && k.clock == clock).collect();
    let (mut message, mut by_the_machine) = (String::new(), false);
    for round in 0..ROUNDS {
        // All of them first: what is drawn anew takes its time, in which a GPU falls asleep.
        let stream = grade.stream.child(if fixed { 63 } else { 62 }).child(seq as u64).child(round);
        let mut contents = Vec::new();
        for k in 0..ANEW {
            let s = stream.child(k);
            contents.push(if fixed { bases[0].fresh_tokens(s) } else { bases[0].fresh(s) });
            contents.push(grade.bank.anew(seq, k, fixed.then(|| bases[0].plain().weights.clone())));
        }
        let (mut times, mut alone) = ([f64::INFINITY; 2], f64::INFINITY);
        for (k, content) in contents.iter().enumerate() {
            let done = grade.checked(rig, content, &manner)?;
            times[k % 2] = times[k % 2].min(call_us(&done));
            if k % 2 == 1 {
                alone = alone.min(call_us(&done) - us(done.waited));
            }
        }
        let [usual, anew] = times;
        let told = |kind: &Kind| grade.median(seq, |s| kind.is(s)).unwrap_or(f64::INFINITY);
        let odd: Vec<Kind> = kinds.iter().copied().filter(|kind| told(kind) < skipped * anew).collect();
        let usual = kinds.iter().map(told).fold(usual, f64::min);
        if usual >= skipped * anew {
            return Ok(());
        }
        by_the_machine |= usual >= skipped * alone;
        message = format!(
            "{usual:.1} us usually ({weights} weights), but {anew:.1} us on inputs drawn anew: work is skipped"
        );
        // A machine that has become slower since shows it in both.
        for kind in odd.into_iter().filter(|_| round + 1 < ROUNDS) {
            timed(grade, rig, setting, kind)?;
        }
    }
    Err(told_by_times(Reason::Caching, message, by_the_machine))
}

fn us(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}

fn call_us(done: &Done) -> f64 {
    done.called.device_us.unwrap_or_else(|| done.us())
}

/// Long enough to enqueue a call behind, as a rule.
fn spin_us(grade: &mut Grade<'_>, rig: &mut Rig, base: &Base, seq: usize) -> Result<u32, Failure> {
    let mut host = 0.0;
    for i in 0..3 {
        let content = base.fresh_tokens(grade.stream.child(60).child(seq as u64).child(i));
        host = grade.checked(rig, &content, &Manner::CAREFUL)?.called.host_us;
    }
    Ok((2.0 * host).clamp(f64::from(SPINS.0), f64::from(SPINS.1)) as u32)
}

/// The spin to try again behind, where it was over before the host had enqueued the call: the clock has seen the host.
/// A candidate that waits for the GPU is late behind any spin, so what is late behind the longest counts.
fn longer(spin: u32, host_us: f64) -> Option<u32> {
    (host_us > f64::from(spin) && spin < SPINS.1).then(|| (2 * spin).min(SPINS.1))
}

fn sample(grade: &mut Grade<'_>, rig: &mut Rig, setting: &Setting<'_>, kind: Kind) -> Result<Samples, Failure> {
    let (bases, stream) = (setting.bases, draw(grade, kind, setting.seq));
    let device = kind.clock == "device";
    let gpu = grade.plan.device == Device::Cuda;
    let mut samples = Samples::default();
    let mut budget = grade.plan.budget;
    if gpu && !device {
        // Waking the host up varies far more than the work does: no number of samples settles it.
        budget.max_time = budget.max_time.min(WALL_TIME);
    }
    let start = Instant::now();
    let mut spin = if device { setting.spin } else { 0 };
    for i in 0.. {
        let s = stream.child(i);
        let content = match kind.weights {
            "fresh" => bases[i as usize % bases.len()].fresh(s),
            _ => bases[0].fresh_tokens(s),
        };
        let manner = Manner {
            flush: kind.cache == "cold",
            spin_us: spin,
            // A snapshot behind the call would be part of the wall time on a GPU.
            snapshot: device || !gpu,
            settle: s.below(1, 16) == 0,
            check_weights: s.below(2, 6) == 0,
            same_place: s.below(3, 4) == 0,
            repeat: 1,
            wait_each: false,
            elsewhere: false,
            ..Manner::CAREFUL
        };
        let done = grade.checked(rig, &content, &manner)?;
        plausible(&done)?;
        if let Some(next) = longer(spin, done.called.host_us).filter(|_| device) {
            spin = next;
            samples.discarded += 1;
            continue;
        }
        keep(grade, &mut samples, &done, device);
        if let Some(rule) = budget.ended(&samples.us, start) {
            samples.ended_by = rule;
            break;
        }
        if samples.discarded > 200 && samples.discarded > samples.us.len() {
            return Err(Failure::new(Reason::TooNoisy, "the GPU's clock is throttled in most samples"));
        }
    }
    Ok(samples)
}

/// A stream of its own for every kind of measurement.
fn draw(grade: &Grade<'_>, kind: Kind, seq: usize) -> Stream {
    let bit = |on: bool, k: u32| u64::from(on) << k;
    let name = bit(kind.cache == "cold", 0) | bit(kind.clock == "wall", 1) | bit(kind.weights == "fixed", 2);
    grade.stream.child(61).child(seq as u64).child(name)
}

fn keep(grade: &Grade<'_>, samples: &mut Samples, done: &Done, device: bool) {
    let clock = done.called.clock_mhz;
    let throttled = clock.zip(grade.plan.max_clock_mhz).is_some_and(|(now, max)| now < THROTTLED * max);
    if throttled {
        samples.discarded += 1;
        std::thread::sleep(Duration::from_millis(50));
        return;
    }
    samples.us.push(if device { done.called.device_us.unwrap_or(f64::NAN) } else { done.us() });
    samples.clocks.push(clock);
    samples.stamps.extend(done.called.stamps_us);
    samples.claimed.push(done.called.wall_us);
    samples.ours.push(us(done.wall));
    samples.waited.push(us(done.waited));
}

/// What must hold of every single call.
fn plausible(done: &Done) -> Result<(), Failure> {
    let wall = us(done.wall);
    let (claimed, device) = (done.called.wall_us, done.called.device_us.unwrap_or(0.0));
    let wrong = |message| Err(Failure::new(Reason::TimingInconsistent, message));
    if done.called.persisting_l2 > 0 {
        return wrong(format!("{} bytes of L2 were left set aside for persisting lines", done.called.persisting_l2));
    }
    if claimed > wall * 1.02 + 50.0 || device > wall * 1.02 + 50.0 {
        return wrong(format!("a call claims {claimed:.0} us, but by the grader's clock it was over in {wall:.0} us"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{SPINS, longer, plausible};
    use crate::protocol::Called;
    use crate::rig::Done;

    #[test]
    fn a_late_call_is_tried_behind_longer_spins_and_counts_behind_the_longest() {
        assert_eq!(longer(50, 49.0), None);
        assert_eq!(longer(50, 51.0), Some(100));
        assert_eq!(longer(1600, 1700.0), Some(SPINS.1));
        assert_eq!(longer(SPINS.1, 5000.0), None);
    }

    #[test]
    fn a_candidate_that_waits_for_the_gpu_loses_no_more_than_six_samples() {
        let late = |spin: &u32| longer(*spin, f64::from(*spin) + 60.0);
        let spins: Vec<u32> = std::iter::successors(Some(SPINS.0), late).collect();
        assert_eq!((spins.len() - 1, spins.last()), (6, Some(&SPINS.1)), "{spins:?}");
    }

    #[test]
    fn a_call_takes_no_longer_than_its_exchange_and_leaves_no_lines_pinned() {
        let of = |called: Called| {
            plausible(&Done {
                output: Vec::new(),
                accuracy: Default::default(),
                called,
                wall: Duration::from_micros(1000),
                idle_us: None,
                waited: Duration::ZERO,
                kept: Vec::new(),
            })
        };
        let (wall_us, device_us) = (990.0, Some(900.0));
        let good = Called { wall_us, device_us, ..Called::default() };
        assert!(of(good.clone()).is_ok());
        assert!(of(Called { wall_us: 1100.0, ..good.clone() }).is_err());
        assert!(of(Called { device_us: Some(1100.0), ..good.clone() }).is_err());
        assert!(of(Called { persisting_l2: 1, ..good }).is_err());
    }
}
