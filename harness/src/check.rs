//! Is an output right, and by how much? Every comparison is written so that NaN fails it.

use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use crate::dims::D;

/// The challenge's tolerance: |err| <= ATOL + RTOL |reference|.
pub const ATOL: f64 = 1e-3;
/// See [`ATOL`].
pub const RTOL: f64 = 1e-3;

/// How an output compares with what it should be.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Accuracy {
    /// Largest error over its tolerance; at most 1 passes. [`HOPELESS`] when something is not finite.
    pub worst_over_tol: f64,
    /// As above over the limit that applies, which on hard inputs is wider; more than 1 fails.
    pub worst_over_limit: f64,
    /// Relative L2 error of `output - x`, which the residual cannot hide.
    pub rel_l2_delta: f64,
    /// The error's component along `output - x`: a systematic factor, which rounding does not have.
    pub gain: f64,
    /// Largest absolute error.
    pub max_abs: f64,
    /// Elements beyond the limit.
    pub over: usize,
    /// Elements that are NaN or infinite.
    pub not_finite: usize,
    /// Elements compared.
    pub compared: usize,
    /// The worst elements of the worst rows.
    pub worst: Vec<Mismatch>,
}

/// Stands for an error that is not finite, which JSON cannot hold.
pub const HOPELESS: f64 = 1e30;

/// One wrong element.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Mismatch {
    pub row: usize,
    pub column: usize,
    /// As text: it may be NaN.
    pub got: String,
    pub expected: f64,
}

/// `v`, or the number that stands for what is none.
fn finite(v: f64) -> f64 {
    if v.is_finite() { v } else { HOPELESS }
}

/// Sums over one row.
#[derive(Clone, Copy, Default)]
struct Row {
    worst: f64,
    over_limit: f64,
    worst_at: usize,
    max_abs: f64,
    over: usize,
    not_finite: usize,
    error2: f64,
    delta2: f64,
    along: f64,
}

/// Compares the rows `rows` of `output` with `expected`, which holds just those rows. An error is also allowed
/// to be as large as `slack`, which is 0 but for hard inputs.
pub fn compare(output: &[f32], expected: &[f64], x: &[f32], rows: &[usize], slack: f64) -> Accuracy {
    assert_eq!(expected.len(), rows.len() * D, "the expectation covers exactly the rows compared");
    let sums: Vec<Row> = rows
        .par_iter()
        .zip(expected.par_chunks_exact(D))
        .map(|(&r, e)| compare_row(&output[r * D..(r + 1) * D], e, &x[r * D..(r + 1) * D], slack))
        .collect();

    let mut total = Row::default();
    for s in &sums {
        total.worst = total.worst.max(s.worst);
        total.over_limit = total.over_limit.max(s.over_limit);
        total.max_abs = total.max_abs.max(s.max_abs);
        total.over += s.over;
        total.not_finite += s.not_finite;
        total.error2 += s.error2;
        total.delta2 += s.delta2;
        total.along += s.along;
    }
    let mut order: Vec<usize> = (0..rows.len()).filter(|&k| sums[k].over > 0).collect();
    order.sort_by(|&a, &b| sums[b].over_limit.total_cmp(&sums[a].over_limit));
    let worst = order.iter().take(5).map(|&k| {
        let (row, column) = (rows[k], sums[k].worst_at);
        let got = output[row * D + column].to_string();
        Mismatch { row, column, got, expected: expected[k * D + column] }
    });
    let delta2 = total.delta2.max(f64::MIN_POSITIVE);
    Accuracy {
        worst_over_tol: total.worst,
        worst_over_limit: total.over_limit,
        rel_l2_delta: finite((total.error2 / delta2).sqrt()),
        gain: finite(total.along / delta2),
        max_abs: total.max_abs,
        over: total.over,
        not_finite: total.not_finite,
        compared: rows.len() * D,
        worst: worst.collect(),
    }
}

fn compare_row(output: &[f32], expected: &[f64], x: &[f32], slack: f64) -> Row {
    let mut row = Row::default();
    for c in 0..D {
        let (got, want) = (f64::from(output[c]), expected[c]);
        let error = got - want;
        let tolerance = ATOL + RTOL * want.abs();
        let (ratio, over_limit) = (error.abs() / tolerance, error.abs() / tolerance.max(slack));
        // `over_limit > 1` alone is false for NaN.
        if over_limit > 1.0 || over_limit.is_nan() {
            row.over += 1;
        }
        if !got.is_finite() {
            row.not_finite += 1;
        }
        // f64::max would drop a NaN.
        row.worst = row.worst.max(finite(ratio));
        if finite(over_limit) > row.over_limit {
            row.over_limit = finite(over_limit);
            row.worst_at = c;
        }
        row.max_abs = row.max_abs.max(finite(error.abs()));
        let delta = want - f64::from(x[c]);
        row.error2 += error * error;
        row.delta2 += delta * delta;
        row.along += error * delta;
    }
    row
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> (Vec<f32>, Vec<f64>, Vec<f32>, Vec<usize>) {
        let x: Vec<f32> = (0..3 * D).map(|i| (i % 251) as f32 / 251.0 - 0.5).collect();
        let expected: Vec<f64> = x.iter().map(|&v| f64::from(v) * 1.5 + 0.25).collect();
        let output = expected.iter().map(|&v| v as f32).collect();
        (output, expected, x, vec![0, 1, 2])
    }

    #[test]
    fn the_right_answer_passes() {
        let (output, expected, x, rows) = sample();
        let a = compare(&output, &expected, &x, &rows, 0.0);
        assert!(a.worst_over_tol < 1e-3 && a.over == 0 && a.rel_l2_delta < 1e-6 && a.compared == 3 * D);
    }

    #[test]
    fn one_wrong_element_fails_wherever_it_is() {
        for at in [0, 1, 767, 768, 1500, 3 * D - 1] {
            let (mut output, expected, x, rows) = sample();
            output[at] += 0.01;
            let a = compare(&output, &expected, &x, &rows, 0.0);
            assert!(a.worst_over_tol > 1.0 && a.over == 1, "{at}");
            assert_eq!((a.worst[0].row, a.worst[0].column), (at / D, at % D));
        }
    }

    #[test]
    fn nan_and_infinity_fail() {
        for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            let (mut output, expected, x, rows) = sample();
            output[700] = bad;
            let a = compare(&output, &expected, &x, &rows, 0.0);
            assert!(a.worst_over_tol > 1.0 && a.not_finite == 1 && a.over == 1);
        }
    }

    #[test]
    fn slack_widens_the_limit_but_not_the_tolerance() {
        let (mut output, expected, x, rows) = sample();
        output[5] += 0.01;
        let a = compare(&output, &expected, &x, &rows, 0.02);
        assert!(a.worst_over_tol > 1.0 && a.worst_over_limit < 1.0 && a.over == 0);
        output[5] = f32::NAN;
        assert_eq!(compare(&output, &expected, &x, &rows, 0.02).over, 1);
    }

    /// Not what is farthest beyond a tolerance that does not count there.
    #[test]
    fn what_is_shown_is_farthest_beyond_the_limit() {
        let (mut output, mut expected, x, rows) = sample();
        for (at, wanted, error) in [(5, 0.0, 0.019), (7, 100.0, 0.2)] {
            expected[at] = wanted;
            output[at] = wanted as f32 + error;
        }
        let a = compare(&output, &expected, &x, &rows, 0.02);
        assert_eq!((a.over, a.worst[0].row, a.worst[0].column), (1, 0, 7));
        let a = compare(&output, &expected, &x, &rows, 0.0);
        assert_eq!((a.over, a.worst[0].row, a.worst[0].column), (2, 0, 5));
    }

    #[test]
    fn a_systematic_factor_shows_as_gain() {
        let (mut output, expected, x, rows) = sample();
        for (o, (e, x)) in output.iter_mut().zip(expected.iter().zip(&x)) {
            *o = (e - 1e-3 * (e - f64::from(*x))) as f32;
        }
        let a = compare(&output, &expected, &x, &rows, 0.0);
        assert!((a.gain + 1e-3).abs() < 1e-5);
    }

    #[test]
    fn the_largest_error_is_that_of_either_sign() {
        let (mut output, expected, x, rows) = sample();
        (output[5], output[800]) = (output[5] + 0.25, output[800] - 0.5);
        assert!((compare(&output, &expected, &x, &rows, 0.0).max_abs - 0.5).abs() < 1e-6);
    }
}
