//! How accurately the GPU computes. The CPU backend is fp32 throughout and serves every precision.

/// Precision of the matrix products on a GPU. LayerNorm, softmax and the residual stream are fp32 in each; so are all sums. What fp32 arithmetic
/// computes as finite numbers comes out finite in each. On Hopper products are in fp32 themselves where solve has one token, in every precision, and up to
/// eight tokens in exact.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum SolvePrecision {
    /// fp16 operands. The error is at most the larger of 1e-3 + 1e-3 |reference| and 1.3 times that of operands rounded to TF32, but for chance: on random
    /// inputs one of 51,588 calls of 1 to 4299 tokens was beyond both, by 5 %. The error may be larger where rows of x, which nobody watches, spread less than
    /// 1e-5 and matrices or gamma are several times the usual, and where rounding decides between the largest scores of an all but one-hot softmax.
    /// The kernels watch the weights as they read them: where some are so large that fp16 might overflow, or so small that it might lose them, the device
    /// computes the call again as SOLVE_PRECISION_EXACT, without the host. Such a call takes up to 3 times as long as one in that precision; right behind a
    /// solve_block_update, or in a graph captured before it, up to 4 times, of one token up to 6 (H200).
    #[default]
    Fast = 0,
    /// fp16 operands in two halves, three products: relative L2 error of output - x at most the larger of 2e-5 and 3 times that of fp32 arithmetic.
    /// Where some columns of V, or of the hidden layer, are more than 1e5 times as large as others that count, these may lose bits and the error is larger.
    /// On an H200 solve takes up to 2.8 times as long as in fast (1 to 4096 tokens, back to back).
    Exact = 1,
    /// As fast, but computed again as exact already where weights, biases, gamma or beta are too unusual (beyond those of a freshly initialised GPT-2)
    /// for fast to stay within 1e-3 + 1e-3 |reference|, but for chance: two of those 51,588 calls were beyond that, by 3 and 5 %. The speed of fast on all
    /// others.
    Auto = 2,
}

impl SolvePrecision {
    /// All of them, with their names in `SOLVE_PRECISION`.
    pub const ALL: [(Self, &'static str); 3] = [(Self::Fast, "fast"), (Self::Exact, "exact"), (Self::Auto, "auto")];

    /// The precision with this number in the C ABI.
    #[must_use]
    pub fn from_number(number: i32) -> Option<Self> {
        Self::ALL.into_iter().map(|(precision, _)| precision).find(|&precision| precision as i32 == number)
    }

    /// The precision of this name in `SOLVE_PRECISION`.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|(_, own)| *own == name).map(|(precision, _)| precision)
    }
}
