//! What a caller may choose about a block, checked.

use crate::error::Error;
use crate::precision::SolvePrecision;

/// A `CUstream` of the caller, as a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stream(pub usize);

impl Stream {
    /// The stream that null means and that `solve()` uses: it orders a call among everything else on its device.
    pub const LEGACY: Self = Self(1);
    /// What each thread takes for a stream of its own.
    pub const PER_THREAD: Self = Self(2);

    /// The caller's stream argument.
    #[must_use]
    pub fn from_address(address: usize) -> Self {
        if address == 0 { Self::LEGACY } else { Self(address) }
    }
}

/// What a handle is to be, checked.
#[derive(Clone, Copy, Debug)]
pub struct BlockOptions {
    /// Ordinal of the GPU, or where the weights are.
    pub device: Option<usize>,
    /// What the GPU may round.
    pub precision: SolvePrecision,
    /// Token i attends to tokens 0..=i only.
    pub causal: bool,
    /// Rows that one forward may have.
    pub max_tokens: usize,
}

impl Default for BlockOptions {
    fn default() -> Self {
        Self { device: None, precision: SolvePrecision::Fast, causal: false, max_tokens: 4096 }
    }
}

impl BlockOptions {
    /// The caller's numbers, in the order of the struct in the header.
    pub fn from_numbers(device: i32, precision: i32, causal: i32, max_tokens: i32) -> Result<Self, Error> {
        let invalid = |argument, value: i32, expected| Error::Invalid { argument, value: value.into(), expected };
        let default = Self::default();
        Ok(Self {
            device: match device {
                -1 => None,
                _ => Some(usize::try_from(device).map_err(|_| invalid("options->device", device, "-1 or more"))?),
            },
            precision: SolvePrecision::from_number(precision)
                .ok_or_else(|| invalid("options->precision", precision, "a solve_precision, 0 to 2"))?,
            causal: causal != 0,
            max_tokens: match usize::try_from(max_tokens) {
                Ok(0) => default.max_tokens,
                Ok(tokens) => tokens,
                Err(_) => return Err(invalid("options->max_tokens", max_tokens, "0 or more")),
            },
        })
    }
}
