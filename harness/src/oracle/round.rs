//! Number formats that the operands of a matrix product can be rounded to.

/// A format by its mantissa; the exponent's range is left wide, so only precision is modelled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rounding {
    /// Keep float64.
    None,
    /// float32: 24 significant bits.
    Fp32,
    /// TF32 (and fp16 inside its range): 11 significant bits.
    Tf32,
    /// bfloat16: 8 significant bits.
    Bf16,
    /// FP8 e4m3: 4 significant bits.
    Fp8,
}

impl Rounding {
    /// `v` to the nearest number of the format, ties to even.
    pub fn apply(self, v: f64) -> f64 {
        let bits = match self {
            Rounding::None => return v,
            Rounding::Fp32 => 24,
            Rounding::Tf32 => 11,
            Rounding::Bf16 => 8,
            Rounding::Fp8 => 4,
        };
        let drop = 53 - bits;
        let raw = v.to_bits();
        let half = 1u64 << (drop - 1);
        let odd = (raw >> drop) & 1;
        f64::from_bits((raw + (half - 1) + odd) >> drop << drop)
    }
}

#[cfg(test)]
mod tests {
    use super::Rounding;

    #[test]
    fn ties_go_to_even() {
        assert_eq!(Rounding::Bf16.apply(1.0 + 1.0 / 256.0), 1.0);
        assert_eq!(Rounding::Bf16.apply(1.0 + 3.0 / 256.0), 1.0 + 4.0 / 256.0);
        assert_eq!(Rounding::Fp32.apply(0.1), f64::from(0.1f32));
        assert_eq!(Rounding::Tf32.apply(-2049.0), -2048.0);
        assert_eq!(Rounding::Fp8.apply(0.0), 0.0);
    }
}
