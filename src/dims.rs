//! The shape of the block. `cuda/dims.h` holds the same numbers for the kernels.

/// Model width.
pub const D: usize = 768;
/// Attention heads.
pub const HEADS: usize = 12;
/// Width of one head.
pub const HEAD_DIM: usize = D / HEADS;
/// Width of the fused Q | K | V buffer.
pub const QKV: usize = 3 * D;
/// Width of the feed-forward hidden layer.
pub const FFN: usize = 4 * D;
/// Added to the variance in both LayerNorms.
pub const LN_EPS: f32 = 1e-5;
