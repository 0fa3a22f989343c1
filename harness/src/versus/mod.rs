//! Is one faster than the other? Answered with a ratio, its interval, and one of four words.

pub mod baseline;
pub mod interleaved;
pub mod itself;

use serde::{Deserialize, Serialize};

use crate::rng::Stream;
use crate::stats::{mean, mean_interval_99, median, quantile, sorted};

/// Resamplings behind an interval.
const RESAMPLES: u64 = 2000;
/// A difference smaller than this is none worth a word.
const GAP: f64 = 0.005;
/// What an interval leaves out on either side: it is one of 99 %.
const TAIL: f64 = 0.005;
/// The fewest and the most sittings. What a process was given of the machine is worth about 1.5 % of its time at 64
/// rows (H200): few sittings would not tell two runs of one library from two libraries.
pub const FEWEST: usize = 8;
const MOST: usize = 32;
/// No more sittings are needed when the interval is this narrow, to either side.
const ENOUGH: f64 = 0.01;
/// An interval wider than this to either side decides nothing.
const BLUR: f64 = 0.02;

/// The word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Word {
    Faster,
    Slower,
    Same,
    Inconclusive,
}

/// Time of `b` over time of `a`, with its 99 % interval.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Comparison {
    pub seq: usize,
    pub what: String,
    pub a: String,
    pub b: String,
    pub ratio: f64,
    pub low: f64,
    pub high: f64,
    /// Said of `b`.
    pub word: Word,
    pub pairs: usize,
}

impl Comparison {
    fn new(seq: usize, what: &str, a: &str, b: &str, pairs: usize, (ratio, low, high): (f64, f64, f64)) -> Self {
        let word = word(ratio, low, high);
        Self { seq, what: what.into(), a: a.into(), b: b.into(), ratio, low, high, word, pairs }
    }

    /// As a sentence.
    pub fn sentence(&self) -> String {
        let word = format!("{:?}", self.word).to_uppercase();
        format!(
            "seq {:>5} {:<24} {} is {word} than {}: {:.4} of its time [{:.4}, {:.4}], {} samples",
            self.seq, self.what, self.b, self.a, self.ratio, self.low, self.high, self.pairs
        )
        .replace("SAME than", "the SAME as")
        .replace("is INCONCLUSIVE than", "is INCONCLUSIVE against")
    }
}

fn word(ratio: f64, low: f64, high: f64) -> Word {
    if high < 1.0 && ratio <= 1.0 - GAP {
        Word::Faster
    } else if low > 1.0 && ratio >= 1.0 + GAP {
        Word::Slower
    } else if low >= 1.0 - BLUR && high <= 1.0 + BLUR {
        Word::Same
    } else {
        Word::Inconclusive
    }
}

fn interval(mut resampled: Vec<f64>) -> (f64, f64) {
    resampled.sort_by(f64::total_cmp);
    (quantile(&resampled, TAIL), quantile(&resampled, 1.0 - TAIL))
}

/// What has been seen of two candidates at one length.
#[derive(Clone, Default)]
struct Tally {
    /// Ratios of samples taken in pairs, sitting by sitting.
    sittings: Vec<Vec<f64>>,
    pairs: usize,
    /// The ratio and its interval.
    interval: (f64, f64, f64),
}

impl Tally {
    /// Another sitting.
    fn add(&mut self, ratios: Vec<f64>, stream: Stream) {
        self.pairs += ratios.len();
        self.sittings.push(ratios);
        self.interval = nested(&self.sittings, stream);
    }

    /// Whether more sittings would tell no more: there is no doubt, or they have had their chance. The interval is
    /// looked at for how wide it is, or whether it is far from 1, because whoever stops when a difference shows finds one.
    fn decided(&self) -> bool {
        let (_, low, high) = self.interval;
        let sure = high - low <= 2.0 * ENOUGH || high < 1.0 - BLUR || low > 1.0 + BLUR;
        self.sittings.len() >= if sure { FEWEST } else { MOST }
    }
}

/// The geometric mean of the sittings' medians, and its interval by resampling sittings and pairs, or by how the sittings
/// scatter where that is wider. What a process was given of the machine when it started shifts all of its times: pairs of
/// one sitting would say too much. By logarithms, for which it is all the same who was held up: of the ratios themselves,
/// 2 and 1/2, the mean is above 1, and on a busy machine the second of two that are alike would be the slower one.
fn nested(sittings: &[Vec<f64>], stream: Stream) -> (f64, f64, f64) {
    let n = sittings.len();
    let logs: Vec<Vec<f64>> = sittings.iter().map(|ratios| ratios.iter().map(|r| r.ln()).collect()).collect();
    let resampled = |k: u64| {
        let s = stream.child(k);
        let drawn = (0..n as u64).map(|i| resampled_median(&logs[s.below(i, n)], s.child(i)));
        mean(&drawn.collect::<Vec<_>>())
    };
    let (low, high) = interval((0..RESAMPLES).map(resampled).collect());
    let medians: Vec<f64> = logs.iter().map(|logs| median(logs)).collect();
    let (ratio, scatter) = mean_interval_99(&medians);
    (ratio.exp(), low.min(ratio - scatter).exp(), high.max(ratio + scatter).exp())
}

/// Samples taken apart: the ratio of the medians, and its interval by resampling both.
fn unpaired(a: &[f64], b: &[f64], stream: Stream) -> (f64, f64, f64) {
    let ratio = |k: u64| resampled_median(b, stream.child(2 * k)) / resampled_median(a, stream.child(2 * k + 1));
    let (low, high) = interval((0..RESAMPLES).map(ratio).collect());
    (median(b) / median(a), low, high)
}

fn resampled_median(values: &[f64], stream: Stream) -> f64 {
    let drawn: Vec<f64> = (0..values.len() as u64).map(|i| values[stream.below(i, values.len())]).collect();
    quantile(&sorted(&drawn), 0.5)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn samples(seed: u64, centre: f64, n: u64) -> Vec<f64> {
        (0..n).map(|i| centre * (1.0 + Stream::new(seed, 3).normal(i, 0.004))).collect()
    }

    /// Ratios of sittings, each off by what its processes were given.
    fn sittings(seed: u64, ratio: f64, luck: f64, noise: f64) -> Vec<Vec<f64>> {
        let s = Stream::new(seed, 3);
        let sitting = |k: u64| {
            let centre = ratio * (1.0 + s.normal(k, luck));
            (0..3).map(|i| centre * (1.0 + s.child(k).normal(i, noise))).collect()
        };
        (0..MOST as u64).map(sitting).collect()
    }

    fn judged(sittings: &[Vec<f64>]) -> Word {
        let mut tally = Tally::default();
        for ratios in sittings {
            tally.add(ratios.clone(), Stream::new(1, 1));
            if tally.decided() {
                break;
            }
        }
        let (ratio, low, high) = tally.interval;
        word(ratio, low, high)
    }

    #[test]
    fn the_same_is_called_the_same_19_times_of_20() {
        let same = (0..200).filter(|&t| judged(&sittings(t, 1.0, 0.02, 0.003)) == Word::Same);
        assert!(same.count() >= 190);
        let noisy = (0..200).filter(|&t| matches!(judged(&sittings(t, 1.0, 0.1, 0.3)), Word::Faster | Word::Slower));
        assert!(noisy.count() <= 14);
    }

    /// A machine that is busy holds up either of two calls, some for long.
    #[test]
    fn noise_makes_the_second_no_slower_than_the_first() {
        let held_up =
            |s: Stream, i: u64| 1.0 + if s.below(2 * i, 2) == 0 { s.uniform(2 * i + 1, 0.0, 10.0) } else { 0.0 };
        let pair = |s: Stream| held_up(s, 1) / held_up(s, 0);
        let sitting = |s: Stream| (0..4).map(|i| pair(s.child(i))).collect::<Vec<f64>>();
        let compared =
            |t: u64| judged(&(0..MOST as u64).map(|k| sitting(Stream::new(t, 3).child(k))).collect::<Vec<_>>());
        let words: Vec<Word> = (0..200).map(compared).collect();
        let of = |word| words.iter().filter(|w| **w == word).count();
        let (faster, slower) = (of(Word::Faster), of(Word::Slower));
        assert!(faster <= 14 && slower <= 14, "{faster} of 200 FASTER, {slower} SLOWER");
    }

    #[test]
    fn two_percent_are_seen_both_ways() {
        let (a, b) = (samples(1, 50.0, 40), samples(2, 51.0, 40));
        let (ratio, low, high) = unpaired(&a, &b, Stream::new(1, 1));
        assert_eq!(word(ratio, low, high), Word::Slower, "{ratio} {low} {high}");
        let (ratio, low, high) = unpaired(&b, &a, Stream::new(1, 1));
        assert_eq!(word(ratio, low, high), Word::Faster, "{ratio} {low} {high}");
        for seed in 0..50 {
            assert_eq!(judged(&sittings(seed, 1.02, 0.003, 0.003)), Word::Slower);
            assert_eq!(judged(&sittings(seed, 0.98, 0.003, 0.003)), Word::Faster);
        }
    }

    #[test]
    fn noise_decides_nothing() {
        assert_eq!(judged(&sittings(5, 1.0, 0.1, 0.3)), Word::Inconclusive);
    }

    #[test]
    fn a_difference_is_told_that_is_sure_and_large_enough() {
        assert_eq!([word(0.994, 0.99, 0.998), word(1.006, 1.002, 1.01)], [Word::Faster, Word::Slower]);
        assert_eq!([word(0.996, 0.994, 0.998), word(1.004, 1.002, 1.006)], [Word::Same; 2], "too small");
        assert_eq!([word(0.95, 0.89, 1.01), word(1.05, 0.99, 1.11)], [Word::Inconclusive; 2], "not sure");
    }

    /// Not as soon as there seems to be a difference: by chance there is one sooner or later.
    #[test]
    fn no_more_sittings_are_needed_where_there_is_no_doubt() {
        let decided = |sittings, low, high| {
            Tally { sittings: vec![vec![1.0]; sittings], pairs: 0, interval: (1.0, low, high) }.decided()
        };
        for (low, high) in [(0.995, 1.005), (1.021, 1.07), (0.93, 0.979)] {
            assert!(decided(FEWEST, low, high) && !decided(FEWEST - 1, low, high), "{low}, {high}");
        }
        for (low, high) in [(0.985, 1.015), (1.001, 1.06), (0.94, 0.999)] {
            assert!(decided(MOST, low, high) && !decided(MOST - 1, low, high), "{low}, {high}");
        }
    }
}
