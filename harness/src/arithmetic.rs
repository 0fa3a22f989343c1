//! What arithmetic the errors look like, in words.

use crate::bank::Bank;
use crate::report::CaseResult;

/// Compares the error on ordinary inputs with what rounded operands would give: the largest, because a library may round at some lengths only.
pub fn class(bank: &mut Bank, results: &[CaseResult]) -> Option<String> {
    let ordinary = results.iter().filter(|r| r.pass && r.official && r.seq >= 16);
    let error = ordinary.map(|r| r.accuracy.rel_l2_delta).reduce(f64::max)?;
    error.is_finite().then(|| words(error, &bank.formats()))
}

/// So many times away from a format, an error is not that format's.
const BETWEEN: f64 = 20.0;

fn words(error: f64, formats: &[(&str, f64)]) -> String {
    let distance = |reference: f64| (error.max(1e-12) / reference).ln().abs();
    let nearest = formats.iter().min_by(|a, b| distance(a.1).total_cmp(&distance(b.1)));
    let Some(&(name, reference)) = nearest else { return "unknown".into() };
    let ratio = error / reference;
    // Split operands: neither one nor the other.
    let between = |low: &str, high: &str| {
        let of = |name: &str| formats.iter().find(|f| f.0 == name).map_or(f64::NAN, |f| f.1);
        error > BETWEEN * of(low) && BETWEEN * error < of(high)
    };
    if between("fp32", "TF32 or fp16") {
        return format!("lies between fp32 and TF32 operands (relative error of output - x: up to {error:.1e})");
    }
    if name == "fp32" {
        return format!("behaves like fp32 (relative error of output - x: up to {error:.1e})");
    }
    format!("behaves like {name} operands (relative error of output - x: up to {error:.1e}, {ratio:.1} x theirs)")
}

#[cfg(test)]
mod tests {
    use super::{class, words};
    use crate::bank::Bank;
    use crate::check::Accuracy;
    use crate::report::CaseResult;

    #[test]
    fn one_length_of_rounded_operands_counts() {
        let case = |seq, error| CaseResult {
            case: format!("official:{seq}"),
            seq,
            official: true,
            pass: true,
            accuracy: Accuracy { rel_l2_delta: error, ..Default::default() },
            fp32: None,
            tf32: None,
            message: None,
        };
        let of = |last| class(&mut Bank::new(1), &[case(16, 5e-8), case(64, 5e-8), case(1024, last)]);
        assert!(of(5e-8).is_some_and(|words| words.starts_with("behaves like fp32 ")));
        assert!(of(4e-4).is_some_and(|words| words.starts_with("behaves like TF32 or fp16 operands ")));
        assert!(class(&mut Bank::new(1), &[case(1, 5e-8)]).is_none());
    }

    #[test]
    fn the_nearest_format_is_named() {
        let formats = [("fp32", 5e-8), ("TF32 or fp16", 4.2e-4), ("bf16", 3.3e-3), ("FP8", 5.4e-2)];
        assert!(words(4.5e-4, &formats).contains("TF32 or fp16"));
        assert!(words(3e-3, &formats).contains("bf16"));
        assert!(words(2e-7, &formats).starts_with("behaves like fp32"));
        assert!(words(4.7e-6, &formats).contains("between fp32 and TF32"));
    }
}
