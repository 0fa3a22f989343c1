//! How accurately the GPU computes. The CPU backend is fp32 throughout and serves both.

/// Precision of the matrix products.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum SolvePrecision {
    /// fp16 operands, fp32 accumulation, fp32 residual stream.
    #[default]
    Fast = 0,
    /// Operands split in two halves: close to fp32. Needs the CPU backend in this version.
    Exact = 1,
}

impl SolvePrecision {
    /// The precision with this number in the C ABI.
    #[must_use]
    pub fn from_number(number: i32) -> Option<Self> {
        match number {
            0 => Some(Self::Fast),
            1 => Some(Self::Exact),
            _ => None,
        }
    }

    /// The precision of this name in `SOLVE_PRECISION`.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        match name {
            "fast" => Some(Self::Fast),
            "exact" => Some(Self::Exact),
            _ => None,
        }
    }
}
