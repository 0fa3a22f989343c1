//! What arithmetic the errors look like, in words.

use crate::bank::Bank;
use crate::report::CaseResult;

/// Compares the error on ordinary inputs with what rounded operands would give.
pub fn class(bank: &mut Bank, results: &[CaseResult]) -> Option<String> {
    let ordinary = results.iter().filter(|r| r.pass && r.official && r.seq >= 16);
    let errors: Vec<f64> = ordinary.map(|r| r.accuracy.rel_l2_delta).collect();
    let error = crate::stats::median(&errors);
    if !error.is_finite() {
        return None;
    }
    Some(words(error, &bank.formats()))
}

fn words(error: f64, formats: &[(&str, f64)]) -> String {
    let distance = |reference: f64| (error.max(1e-12) / reference).ln().abs();
    let nearest = formats.iter().min_by(|a, b| distance(a.1).total_cmp(&distance(b.1)));
    let Some(&(name, reference)) = nearest else { return "unknown".into() };
    let ratio = error / reference;
    if name == "fp32" {
        return format!("behaves like fp32 (relative error of output - x: {error:.1e})");
    }
    format!("behaves like {name} operands (relative error of output - x: {error:.1e}, {ratio:.1} x theirs)")
}

#[cfg(test)]
mod tests {
    use super::words;

    #[test]
    fn the_nearest_format_is_named() {
        let formats = [("fp32", 5e-8), ("TF32 or fp16", 4.2e-4), ("bf16", 3.3e-3), ("FP8", 5.4e-2)];
        assert!(words(4.5e-4, &formats).contains("TF32 or fp16"));
        assert!(words(3e-3, &formats).contains("bf16"));
        assert!(words(2e-7, &formats).starts_with("behaves like fp32"));
    }
}
