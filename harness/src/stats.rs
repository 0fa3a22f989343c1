//! Medians, quantiles, and how sure one can be of them without assuming a distribution.

use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

/// Quantile `q` of sorted values, between neighbours where it falls between them.
pub fn quantile(sorted: &[f64], q: f64) -> f64 {
    let Some(last) = sorted.len().checked_sub(1) else { return f64::NAN };
    let at = q * last as f64;
    let (low, high) = (at.floor() as usize, at.ceil() as usize);
    sorted[low] + (sorted[high] - sorted[low]) * (at - low as f64)
}

/// Values in order.
pub fn sorted(values: &[f64]) -> Vec<f64> {
    let mut v = values.to_vec();
    v.sort_by(f64::total_cmp);
    v
}

/// The median.
pub fn median(values: &[f64]) -> f64 {
    quantile(&sorted(values), 0.5)
}

/// The mean.
pub fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

/// The mean and half of its 99 % confidence interval, by Student's t. One value says nothing of how far it may be off.
pub fn mean_interval_99(values: &[f64]) -> (f64, f64) {
    let (mean, freedom) = (mean(values), values.len() as f64 - 1.0);
    let variance = values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / freedom;
    (mean, student_99(freedom) * (variance / values.len() as f64).sqrt())
}

/// The value that Student's t exceeds in one case of 200, from the normal distribution's (Abramowitz and Stegun, 26.7.5).
fn student_99(freedom: f64) -> f64 {
    let z: f64 = 2.575_829;
    let (z3, z5, z7) = (z.powi(3), z.powi(5), z.powi(7));
    let first = (z3 + z) / 4.0;
    let second = (5.0 * z5 + 16.0 * z3 + 3.0 * z) / 96.0;
    let third = (3.0 * z7 + 19.0 * z5 + 17.0 * z3 - 15.0 * z) / 384.0;
    z + first / freedom + second / freedom.powi(2) + third / freedom.powi(3)
}

/// 95 % confidence interval of the median, from the ranks that a binomial count would take.
pub fn median_interval(sorted: &[f64]) -> (f64, f64) {
    let n = sorted.len();
    if n < 6 {
        return (sorted.first().copied().unwrap_or(f64::NAN), sorted.last().copied().unwrap_or(f64::NAN));
    }
    let half = 1.96 * (n as f64).sqrt() / 2.0;
    let low = (n as f64 / 2.0 - half).floor().max(0.0) as usize;
    let high = ((n as f64 / 2.0 + half).ceil() as usize).min(n - 1);
    (sorted[low], sorted[high])
}

/// How y grows with x: the median over all pairs of points, which a few wild ones do not move.
pub fn slope(points: &[(f64, f64)]) -> f64 {
    let mut slopes = Vec::new();
    for (i, a) in points.iter().enumerate() {
        slopes.extend(points[..i].iter().filter(|b| b.0 != a.0).map(|b| (a.1 - b.1) / (a.0 - b.0)));
    }
    median(&slopes)
}

/// What a set of samples says.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Summary {
    pub median: f64,
    pub p5: f64,
    pub p95: f64,
    pub low: f64,
    pub high: f64,
    pub n: usize,
}

impl Summary {
    /// The summary of these samples.
    pub fn of(samples: &[f64]) -> Self {
        let v = sorted(samples);
        let (low, high) = median_interval(&v);
        let q = |q| quantile(&v, q);
        Self { median: q(0.5), p5: q(0.05), p95: q(0.95), low, high, n: v.len() }
    }

    /// Half the confidence interval, relative to the median.
    pub fn half_width(&self) -> f64 {
        (self.high - self.low) / 2.0 / self.median
    }
}

/// When to stop sampling.
#[derive(Clone, Copy, Debug)]
pub struct Budget {
    pub min_samples: usize,
    pub min_time: Duration,
    pub half_width: f64,
    pub max_samples: usize,
    pub max_time: Duration,
}

impl Budget {
    /// 30 samples, 0.5 s and 0.5 %; at most 2,000 samples or 15 s.
    pub const FULL: Budget = Budget {
        min_samples: 30,
        min_time: Duration::from_millis(500),
        half_width: 0.005,
        max_samples: 2000,
        max_time: Duration::from_secs(15),
    };

    /// 10 samples, 0.1 s and 2 %; at most 60 samples or 3 s.
    pub const QUICK: Budget = Budget {
        min_samples: 10,
        min_time: Duration::from_millis(100),
        half_width: 0.02,
        max_samples: 60,
        max_time: Duration::from_secs(3),
    };

    /// 6 samples and 2 %; at most 0.1 s.
    pub const GLANCE: Budget = Budget {
        min_samples: 6,
        min_time: Duration::ZERO,
        half_width: 0.02,
        max_samples: 60,
        max_time: Duration::from_millis(100),
    };

    /// The rule that ends the sampling now, if one does.
    pub fn ended(&self, samples: &[f64], since: Instant) -> Option<&'static str> {
        let time = since.elapsed();
        if samples.len() >= self.max_samples {
            return Some("sample cap");
        }
        if time >= self.max_time && samples.len() >= 3 {
            return Some("time cap");
        }
        // Looking at the interval costs a sort; every fourth sample is often enough.
        let enough = samples.len() >= self.min_samples && time >= self.min_time && samples.len().is_multiple_of(4);
        (enough && Summary::of(samples).half_width() <= self.half_width).then_some("precision")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Stream;

    #[test]
    fn students_t_is_that_of_the_tables() {
        for (freedom, t) in [(7.0, 3.499), (9.0, 3.250), (15.0, 2.947), (31.0, 2.744)] {
            assert!((student_99(freedom) - t).abs() < 0.01, "{freedom}: {}", student_99(freedom));
        }
        let (mean, half) = mean_interval_99(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]);
        assert!((mean - 4.5).abs() < 1e-12 && (half - 3.499 * 0.866).abs() < 0.01, "{mean} {half}");
    }

    #[test]
    fn quantiles_of_a_ramp() {
        let ramp: Vec<f64> = (0..=100).map(f64::from).collect();
        let s = Summary::of(&ramp);
        assert_eq!((s.median, s.p5, s.p95, s.n), (50.0, 5.0, 95.0, 101));
        assert!(s.low < 50.0 && 50.0 < s.high);
        assert_eq!(median(&[3.0, 1.0]), 2.0);
        assert!(median(&[]).is_nan());
    }

    #[test]
    fn a_slope_survives_wild_points() {
        let mut points: Vec<(f64, f64)> = (0..12).map(|i| (f64::from(i * i), 7.0 + 3.0 * f64::from(i * i))).collect();
        assert!((slope(&points) - 3.0).abs() < 1e-12);
        points[5].1 += 1e6;
        points[9].1 += 1e5;
        assert!((slope(&points) - 3.0).abs() < 1e-9);
        assert!(slope(&points[..1]).is_nan());
        assert_eq!(slope(&[(1.0, 1.0), (1.0, 5.0), (2.0, 2.0)]), -1.0, "two points of one x");
    }

    #[test]
    fn the_interval_holds_the_median_19_times_of_20() {
        let hits = (0..2000).filter(|&t| {
            let s = Stream::new(7, t);
            let v: Vec<f64> = (0..50).map(|i| s.normal(i, 1.0).exp()).collect();
            let (low, high) = median_interval(&sorted(&v));
            low <= 1.0 && 1.0 <= high
        });
        let share = hits.count() as f64 / 2000.0;
        assert!((0.94..0.99).contains(&share), "{share}");
    }

    #[test]
    fn precision_ends_steady_samples_and_caps_end_the_rest() {
        let budget = Budget { min_time: Duration::ZERO, max_samples: 100, ..Budget::FULL };
        let now = Instant::now();
        assert_eq!(budget.ended(&[1.0; 32], now), Some("precision"));
        assert_eq!(budget.ended(&[1.0; 28], now), None);
        let noisy: Vec<f64> = (0..100).map(|i| f64::from(i % 10 + 1)).collect();
        assert_eq!(budget.ended(&noisy[..40], now), None);
        assert_eq!(budget.ended(&noisy, now), Some("sample cap"));
    }

    /// Precise is what varies little beside the median, whatever that is.
    #[test]
    fn sampling_takes_its_time_and_no_more() {
        let (now, long) = (Instant::now(), Duration::from_secs(3600));
        let steady: Vec<f64> = (0..32).map(|i| 1000.0 + f64::from(i % 2)).collect();
        let noisy: Vec<f64> = (0..40).map(|i| f64::from(i % 10 + 1)).collect();
        let budget = Budget { min_time: Duration::ZERO, max_time: long, ..Budget::FULL };
        assert_eq!(budget.ended(&steady, now), Some("precision"));
        assert_eq!(Budget { min_time: long, ..budget }.ended(&steady, now), None);
        let over = Budget { max_time: Duration::ZERO, ..budget };
        assert_eq!([2, 3, 40].map(|n| over.ended(&noisy[..n], now)), [None, Some("time cap"), Some("time cap")]);
    }
}
