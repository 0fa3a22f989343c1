//! The exponential as straight-line code, so that loops over it vectorise.

/// e^x to about 1e-7 relative: 0 below -87 (where fp32 loses its normal numbers), infinity above 88 (close below where fp32 ends), NaN for NaN.
///
/// x = n ln 2 + r with |r| <= ln 2 / 2; e^r by its Taylor polynomial, whose first dropped term is 5e-9; 2^n by its bits.
#[inline(always)]
pub fn exp(x: f32) -> f32 {
    const LOWEST: f32 = -87.0;
    const HIGHEST: f32 = 88.0;
    /// 1.5 * 2^23: adding it rounds to an integer, which then stands in the low bits.
    const ROUND: f32 = 12_582_912.0;
    /// ln 2 in two parts; the first has nine bits, so n times it is exact.
    const LN2_HIGH: f32 = 355.0 / 512.0;
    const LN2_LOW: f32 = (std::f64::consts::LN_2 - 355.0 / 512.0) as f32;

    // Comparisons rather than min and max, which would lose a NaN.
    let t = if x > HIGHEST { HIGHEST } else { x };
    let t = if t < LOWEST { LOWEST } else { t };
    let rounded = t * std::f32::consts::LOG2_E + ROUND;
    let n = rounded - ROUND;
    let r = (t - n * LN2_HIGH) - n * LN2_LOW;

    let p = 1.0 / 5040.0;
    let p = p * r + 1.0 / 720.0;
    let p = p * r + 1.0 / 120.0;
    let p = p * r + 1.0 / 24.0;
    let p = p * r + 1.0 / 6.0;
    let p = p * r + 1.0 / 2.0;
    let p = (p * r) * r + r + 1.0;
    let power = f32::from_bits(rounded.to_bits().wrapping_add(127) << 23);
    if x < LOWEST {
        0.0
    } else if x > HIGHEST {
        f32::INFINITY
    } else {
        p * power
    }
}

#[cfg(test)]
mod tests {
    use super::exp;

    #[test]
    fn is_accurate_over_its_range() {
        for i in -870_000..=880_000 {
            let x = i as f32 * 1e-4;
            let want = f64::from(x).exp();
            let error = (f64::from(exp(x)) - want).abs() / want;
            assert!(error < 1.5e-7, "exp({x}) is off by {error:e}");
        }
    }

    #[test]
    fn has_its_limits_and_keeps_nan() {
        assert_eq!(exp(0.0), 1.0);
        assert_eq!(exp(-88.0), 0.0);
        assert_eq!(exp(f32::NEG_INFINITY), 0.0);
        for x in [88.1, 100.0, f32::MAX, f32::INFINITY] {
            assert_eq!(exp(x), f32::INFINITY, "exp({x})");
        }
        assert!(exp(f32::NAN).is_nan());
    }
}
