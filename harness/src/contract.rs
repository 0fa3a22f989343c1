//! What each precision promises on any finite input, and the limits that follow for one case from what plain fp32
//! arithmetic and TF32 operands make of the same data.

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use crate::check::{Accuracy, HOPELESS};
use crate::reason::{Failure, Reason};

/// The precisions of the library, by their names in `SOLVE_PRECISION`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Precision {
    /// No error above the tolerance, or above 1.3 times that of TF32 operands
    #[default]
    Fast,
    /// Relative L2 error of output - x up to 2e-5, or 3 times that of fp32
    Exact,
    /// No error above the tolerance wherever exact has none
    Auto,
}

impl Precision {
    /// The name used in reports and in the environment.
    pub fn name(self) -> &'static str {
        match self {
            Precision::Fast => "fast",
            Precision::Exact => "exact",
            Precision::Auto => "auto",
        }
    }

    /// The number in the C interface.
    pub fn number(self) -> i32 {
        self as i32
    }
}

/// Fast may be so many times as far off as TF32 operands.
const FAST_OF_TF32: f64 = 1.3;
/// Exact may have this relative L2 error of `output - x` ...
const EXACT_L2: f64 = 2e-5;
/// ... or so many times fp32's own.
const EXACT_OF_FP32: f64 = 3.0;
/// Largest error over the tolerance that exact may have on the challenge's own inputs.
const EXACT_CHALLENGE: f64 = 0.02;
/// No element of exact may be so many times as far off as the worst of fp32, unless within the tolerance.
const EXACT_ELEMENT: f64 = 4.0;

/// What an arithmetic makes of a case.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Errors {
    pub worst_over_tol: f64,
    pub rel_l2_delta: f64,
    pub max_abs: f64,
    pub not_finite: usize,
}

impl From<&Accuracy> for Errors {
    fn from(a: &Accuracy) -> Self {
        Self {
            worst_over_tol: a.worst_over_tol,
            rel_l2_delta: a.rel_l2_delta,
            max_abs: a.max_abs,
            not_finite: a.not_finite,
        }
    }
}

impl Errors {
    /// The larger of each.
    pub fn worst(self, other: Self) -> Self {
        Self {
            worst_over_tol: self.worst_over_tol.max(other.worst_over_tol),
            rel_l2_delta: self.rel_l2_delta.max(other.rel_l2_delta),
            max_abs: self.max_abs.max(other.max_abs),
            not_finite: self.not_finite.max(other.not_finite),
        }
    }
}

/// Plain fp32 arithmetic, in the worst of several orders of summation, and TF32 operands on the data of a case.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Beside {
    pub fp32: Errors,
    pub tf32: Errors,
}

/// Limits on one case, beside the tolerance.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Limits {
    /// An absolute error up to this is allowed beyond the tolerance.
    pub slack: f64,
    /// Largest relative L2 error of `output - x`.
    pub rel_l2_delta: f64,
    /// Largest error over the tolerance.
    pub worst_over_tol: f64,
}

impl Limits {
    /// The tolerance and so much slack.
    pub fn tolerance(slack: f64) -> Self {
        Self { slack, rel_l2_delta: HOPELESS, worst_over_tol: HOPELESS }
    }

    /// The limits under a contract. `exact` is the worst error over the tolerance that exact was seen to make.
    pub fn of(precision: Precision, beside: &Beside, official: bool, exact: Option<f64>) -> Self {
        match precision {
            Precision::Fast if official => Self::tolerance(0.0),
            Precision::Fast => Self::tolerance(FAST_OF_TF32 * beside.tf32.max_abs),
            Precision::Exact => Self {
                slack: EXACT_ELEMENT * beside.fp32.max_abs,
                rel_l2_delta: EXACT_L2.max(EXACT_OF_FP32 * beside.fp32.rel_l2_delta),
                worst_over_tol: if official { EXACT_CHALLENGE } else { HOPELESS },
            },
            Precision::Auto if exact.is_some_and(|worst| worst <= 1.0) => Self::tolerance(0.0),
            // Where exact was not seen, or is beyond the tolerance itself: what an element of it may be.
            Precision::Auto => Self::tolerance(EXACT_ELEMENT * beside.fp32.max_abs),
        }
    }

    /// The limits on contents that traps and times are made of, which are usual ones: so much slack, unless a precision is asked for that has none.
    pub fn of_usual(precision: Option<Precision>, slack: f64) -> Self {
        match precision {
            None | Some(Precision::Fast) => Self::tolerance(slack),
            Some(Precision::Exact) => Self { rel_l2_delta: EXACT_L2, ..Self::tolerance(slack) },
            Some(Precision::Auto) => Self::tolerance(0.0),
        }
    }

    /// What is promised beyond the limit of every element, which `check::compare` has looked at.
    pub fn judge(&self, a: &Accuracy) -> Result<(), Failure> {
        let wrong = |message| Err(Failure::new(Reason::WrongAnswer, message));
        let beyond = |v: f64, limit: f64| v > limit || v.is_nan();
        if beyond(a.rel_l2_delta, self.rel_l2_delta) {
            return wrong(format!(
                "the relative L2 error of output - x is {:.2e}, promised is {:.2e}",
                a.rel_l2_delta, self.rel_l2_delta
            ));
        }
        if beyond(a.worst_over_tol, self.worst_over_tol) {
            return wrong(format!(
                "the largest error is {:.4} of the tolerance, promised is {}",
                a.worst_over_tol, self.worst_over_tol
            ));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check;
    use crate::dims::{B_FC, B_QKV, BETA1, BETA2, GAMMA1, GAMMA2};
    use crate::inputs::{self, CHALLENGE, Flavour, Twist};
    use crate::oracle::{self, Operands, Rounding};
    use crate::rng::Stream;

    fn errors(worst: f64, l2: f64) -> Errors {
        Errors { worst_over_tol: worst, rel_l2_delta: l2, max_abs: worst * 1e-3, not_finite: 0 }
    }

    fn result(worst: f64, l2: f64) -> Accuracy {
        Accuracy { worst_over_tol: worst, rel_l2_delta: l2, ..Default::default() }
    }

    #[test]
    fn fast_may_be_as_far_off_as_tf32_and_a_bit() {
        let beside = Beside { fp32: errors(0.01, 1e-6), tf32: errors(8.0, 8e-4) };
        let limits = Limits::of(Precision::Fast, &beside, false, None);
        assert!((limits.slack - 1.3 * 8e-3).abs() < 1e-12 && limits.judge(&result(10.0, 1e-3)).is_ok());
        assert_eq!(Limits::of(Precision::Fast, &beside, true, None).slack, 0.0);
    }

    #[test]
    fn exact_is_held_to_its_sums() {
        let kind = Beside { fp32: errors(0.01, 1e-6), tf32: errors(8.0, 8e-4) };
        let limits = Limits::of(Precision::Exact, &kind, false, None);
        assert!((limits.slack - 4.0 * 1e-5).abs() < 1e-12, "{}", limits.slack);
        assert!(limits.judge(&result(0.01, 1.9e-5)).is_ok() && limits.judge(&result(0.01, 2.1e-5)).is_err());
        let hard = Beside { fp32: errors(0.01, 4e-4), ..kind };
        let limits = Limits::of(Precision::Exact, &hard, false, None);
        assert!(limits.judge(&result(0.01, 1.1e-3)).is_ok() && limits.judge(&result(0.01, 1.3e-3)).is_err());
        assert!(limits.judge(&result(0.01, f64::NAN)).is_err());
        let official = Limits::of(Precision::Exact, &kind, true, None);
        assert!(official.judge(&result(0.02, 1e-6)).is_ok() && official.judge(&result(0.03, 1e-6)).is_err());
    }

    /// `auto` lets fast stand where the kernels raise no alarm. At the limits of what is usual, all at once, the fp16
    /// operands of fast must still meet the tolerance, with room for longer inputs.
    #[test]
    fn the_usual_leaves_fast_within_the_tolerance() {
        let alarm = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../cuda/common/alarm.cuh")).unwrap();
        let limit = |name: &str| -> f32 {
            let at = alarm.find(&format!("{name} = ")).expect("a constant of this name") + name.len() + 3;
            alarm[at..].split('f').next().unwrap().parse().unwrap()
        };
        let mut w = inputs::weights(Flavour { std: 0.0205, ..CHALLENGE }, Stream::new(1, 1));
        for (value, vectors) in [
            (limit("USUAL_GAMMA"), vec![GAMMA1, GAMMA2]),
            (limit("USUAL_BETA"), vec![BETA1, BETA2]),
            (limit("USUAL_BIAS"), vec![B_QKV, B_FC]),
        ] {
            vectors.into_iter().for_each(|p| p.of_mut(&mut w).fill(value));
        }
        let x = inputs::tokens(CHALLENGE, 64, Stream::new(2, 1));
        let rows: Vec<usize> = (0..64).collect();
        let expected = oracle::forward(&x, &w, &rows, Rounding::None).output;
        let fast = oracle::emulate(&x, &w, &rows, Operands::Fp16);
        let worst = check::compare(&fast, &expected, &x, &rows, 0.0).worst_over_tol;
        assert!(worst < 0.95, "{worst}");
        // Values beyond fp16 end as infinities there, which is what rescues are for.
        let w = inputs::weights(Flavour { twist: Twist::HugeValues, ..CHALLENGE }, Stream::new(1, 1));
        let fast = oracle::emulate(&x, &w, &[0], Operands::Fp16);
        assert!(fast.iter().any(|v| !v.is_finite()));
    }

    #[test]
    fn auto_meets_the_tolerance_wherever_exact_does() {
        let slack = |fp32: f64, exact| {
            let beside = Beside { fp32: errors(fp32, 1e-6), tf32: errors(8.0, 8e-4) };
            Limits::of(Precision::Auto, &beside, false, exact).slack
        };
        assert_eq!(slack(2.0, Some(0.9)), 0.0);
        // Below the tolerance of 1e-3, so of no effect; and beyond it.
        assert!(slack(0.1, None) < 1e-3 && slack(2.0, None) > 1e-3 && slack(0.5, Some(1.1)) > 1e-3);
    }

    #[test]
    fn the_worst_of_several_orders_is_the_worst_in_everything() {
        let (one, other) = (errors(2.0, 1e-6), Errors { not_finite: 3, ..errors(1.0, 1e-5) });
        let worst = Errors { not_finite: 3, ..errors(2.0, 1e-5) };
        assert_eq!([one.worst(other), other.worst(one)], [worst; 2]);
    }
}
