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

/// fp32 to TF32, ties away from zero.
pub fn tf32(v: f32) -> f32 {
    let raw = v.to_bits();
    if v.is_finite() { f32::from_bits((raw + 0x1000) & !0x1fff) } else { v }
}

/// fp32 to fp16 and back, ties to even.
#[cfg(test)]
pub fn fp16(v: f32) -> f32 {
    const SMALLEST_NORMAL: f32 = 1.0 / 16_384.0;
    if v.abs() < SMALLEST_NORMAL {
        // 0.75 has its last bit where fp16's subnormals have theirs.
        return ((v.abs() + 0.75) - 0.75).copysign(v);
    }
    let raw = v.to_bits();
    let rounded = f32::from_bits((raw + 0xfff + ((raw >> 13) & 1)) & !0x1fff);
    if rounded.abs() > 65_504.0 { f32::INFINITY.copysign(v) } else { rounded }
}

#[cfg(test)]
mod tests {
    use super::{Rounding, fp16, tf32};

    #[test]
    fn the_formats_of_the_hardware() {
        assert_eq!((tf32(1.0 + 1.0 / 2048.0), tf32(-1.0 - 1.0 / 4096.0)), (1.0 + 1.0 / 1024.0, -1.0));
        assert_eq!((fp16(65_519.0), fp16(-65_520.0)), (65_504.0, f32::NEG_INFINITY));
        let step = 2f32.powi(-24);
        assert_eq!((fp16(2.4 * step), fp16(2.5 * step), fp16(-0.5 * step)), (2.0 * step, 2.0 * step, 0.0));
        assert_eq!((fp16(1.0 + 1.0 / 2048.0), fp16(1.0 + 3.0 / 2048.0)), (1.0, 1.0 + 1.0 / 512.0));
        assert!(fp16(f32::NAN).is_nan() && tf32(f32::INFINITY).is_infinite());
    }

    #[test]
    fn ties_go_to_even() {
        assert_eq!(Rounding::Bf16.apply(1.0 + 1.0 / 256.0), 1.0);
        assert_eq!(Rounding::Bf16.apply(1.0 + 3.0 / 256.0), 1.0 + 4.0 / 256.0);
        assert_eq!(Rounding::Fp32.apply(0.1), f64::from(0.1f32));
        assert_eq!(Rounding::Tf32.apply(-2049.0), -2048.0);
        assert_eq!(Rounding::Fp8.apply(0.0), 0.0);
    }
}
