//! The tanh form of GELU: x/2 (1 + tanh(u)) with u = sqrt(2/pi) (x + 0.044715 x^3).

use pulp::Arch;
use rayon::prelude::*;

use super::CHUNK;
use super::exp::exp;

/// Replaces every value by its GELU.
pub fn gelu_tanh(values: &mut [f32]) {
    let arch = Arch::new();
    values.par_chunks_mut(CHUNK).for_each(|values| {
        arch.dispatch(|| {
            for v in values {
                *v = gelu(*v);
            }
        });
    });
}

/// (1 + tanh(u)) / 2 = 1 / (1 + e^(-2u)), which does not cancel for negative x as the form with tanh does.
#[inline(always)]
fn gelu(x: f32) -> f32 {
    const SQRT_2_OVER_PI: f32 = 0.797_884_6;
    x / (1.0 + exp(-2.0 * SQRT_2_OVER_PI * (x + 0.044715 * x * x * x)))
}

#[cfg(test)]
mod tests {
    use super::gelu;

    #[test]
    fn agrees_with_the_definition() {
        for i in -60_000..=60_000 {
            let x = i as f32 * 1e-4;
            let wide = f64::from(x);
            let u = (2.0 / std::f64::consts::PI).sqrt() * (wide + 0.044715 * wide.powi(3));
            let want = wide / (1.0 + (-2.0 * u).exp());
            // The exponent's own rounding, at most |2u| * 2^-24, is what remains in the negative tail.
            let error = (f64::from(gelu(x)) - want).abs();
            assert!(error <= (3e-7 + 2e-7 * (2.0 * u).abs()) * want.abs(), "gelu({x}) is off by {error:e}");
        }
    }

    #[test]
    fn has_its_limits() {
        assert_eq!(gelu(0.0), 0.0);
        assert_eq!(gelu(1e4), 1e4);
        assert_eq!(gelu(f32::MAX), f32::MAX);
        for x in [-11.0, -1e4, -1e18, -1e37, -3e38, f32::MIN] {
            assert_eq!(gelu(x), 0.0, "gelu({x})");
        }
        assert_eq!(gelu(f32::INFINITY), f32::INFINITY);
        assert!(gelu(f32::NEG_INFINITY).is_nan(), "infinity times 0, as on the GPU");
        assert!(gelu(f32::NAN).is_nan());
    }
}
