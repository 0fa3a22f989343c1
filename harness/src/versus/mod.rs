//! Is one faster than the other? Answered with a ratio, its interval, and one of four words.

pub mod baseline;
pub mod interleaved;
pub mod itself;

use serde::{Deserialize, Serialize};

use crate::rng::Stream;
use crate::stats::{median, quantile, sorted};

/// Resamplings behind an interval.
const RESAMPLES: u64 = 2000;
/// A difference smaller than this is none worth a word.
const GAP: f64 = 0.005;
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

/// Time of `b` over time of `a`, with its 95 % interval.
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
    (quantile(&resampled, 0.025), quantile(&resampled, 0.975))
}

/// Samples taken in pairs: the median of the ratios, and its interval by resampling pairs.
fn paired(a: &[f64], b: &[f64], stream: Stream) -> (f64, f64, f64) {
    let ratios: Vec<f64> = a.iter().zip(b).map(|(a, b)| b / a).collect();
    let (low, high) = interval((0..RESAMPLES).map(|k| resampled_median(&ratios, stream.child(k))).collect());
    (median(&ratios), low, high)
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

    #[test]
    fn the_same_is_called_the_same_19_times_of_20() {
        let same = (0..100).filter(|&t| {
            let (ratio, low, high) =
                paired(&samples(2 * t, 50.0, 20), &samples(2 * t + 1, 50.0, 20), Stream::new(t, 0));
            word(ratio, low, high) == Word::Same
        });
        assert!(same.count() >= 95);
    }

    #[test]
    fn two_percent_are_seen_both_ways() {
        let (a, b) = (samples(1, 50.0, 40), samples(2, 51.0, 40));
        for method in [paired, unpaired] {
            let (ratio, low, high) = method(&a, &b, Stream::new(1, 1));
            assert_eq!(word(ratio, low, high), Word::Slower, "{ratio} {low} {high}");
            let (ratio, low, high) = method(&b, &a, Stream::new(1, 1));
            assert_eq!(word(ratio, low, high), Word::Faster, "{ratio} {low} {high}");
        }
    }

    #[test]
    fn noise_decides_nothing() {
        let noisy = |seed| -> Vec<f64> { (0..12).map(|i| Stream::new(seed, 0).uniform(i, 50.0, 150.0)).collect() };
        let (ratio, low, high) = paired(&noisy(1), &noisy(2), Stream::new(1, 1));
        assert_eq!(word(ratio, low, high), Word::Inconclusive);
    }
}
