//! The layout of the one weight buffer: twelve parameters end to end, matrices stored (in, out).

use crate::dims::{D, FFN, QKV};

/// A parameter's place in the weight buffer, in floats.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Param {
    /// First float.
    pub offset: usize,
    /// Number of floats.
    pub len: usize,
}

const fn after(previous: Param, len: usize) -> Param {
    Param { offset: previous.offset + previous.len, len }
}

/// First LayerNorm's scale, (D).
pub const GAMMA1: Param = Param { offset: 0, len: D };
/// First LayerNorm's shift, (D).
pub const BETA1: Param = after(GAMMA1, D);
/// Q, K and V projections side by side, (D, 3 D).
pub const W_QKV: Param = after(BETA1, D * QKV);
/// Bias of the Q, K and V projections, (3 D).
pub const B_QKV: Param = after(W_QKV, QKV);
/// Attention's output projection, (D, D).
pub const W_ATTN: Param = after(B_QKV, D * D);
/// Bias of the attention's output projection, (D).
pub const B_ATTN: Param = after(W_ATTN, D);
/// Second LayerNorm's scale, (D).
pub const GAMMA2: Param = after(B_ATTN, D);
/// Second LayerNorm's shift, (D).
pub const BETA2: Param = after(GAMMA2, D);
/// First feed-forward layer, (D, 4 D).
pub const W_FC: Param = after(BETA2, D * FFN);
/// Bias of the first feed-forward layer, (4 D).
pub const B_FC: Param = after(W_FC, FFN);
/// Second feed-forward layer, (4 D, D).
pub const W_PROJ: Param = after(B_FC, FFN * D);
/// Bias of the second feed-forward layer, (D).
pub const B_PROJ: Param = after(W_PROJ, D);
/// Floats in the whole buffer.
pub const WEIGHTS_LEN: usize = B_PROJ.offset + B_PROJ.len;

/// A parameter's name, place, and (in, out) where it is a matrix.
pub type Entry = (&'static str, Param, Option<(usize, usize)>);

/// The whole buffer as a table, in order.
pub const PARAMS: [Entry; 12] = [
    ("gamma1", GAMMA1, None),
    ("beta1", BETA1, None),
    ("w_qkv", W_QKV, Some((D, QKV))),
    ("b_qkv", B_QKV, None),
    ("w_attn", W_ATTN, Some((D, D))),
    ("b_attn", B_ATTN, None),
    ("gamma2", GAMMA2, None),
    ("beta2", BETA2, None),
    ("w_fc", W_FC, Some((D, FFN))),
    ("b_fc", B_FC, None),
    ("w_proj", W_PROJ, Some((FFN, D))),
    ("b_proj", B_PROJ, None),
];

const _: () = assert!(WEIGHTS_LEN == 7_087_872);

/// The weight buffer as its twelve parameters.
#[derive(Clone, Copy)]
#[allow(missing_docs, reason = "each field is the constant of the same name above")]
pub struct Weights<'a> {
    pub gamma1: &'a [f32],
    pub beta1: &'a [f32],
    pub w_qkv: &'a [f32],
    pub b_qkv: &'a [f32],
    pub w_attn: &'a [f32],
    pub b_attn: &'a [f32],
    pub gamma2: &'a [f32],
    pub beta2: &'a [f32],
    pub w_fc: &'a [f32],
    pub b_fc: &'a [f32],
    pub w_proj: &'a [f32],
    pub b_proj: &'a [f32],
}

impl<'a> Weights<'a> {
    /// Names the parts of a whole buffer.
    #[must_use]
    pub fn new(buffer: &'a [f32; WEIGHTS_LEN]) -> Self {
        let part = |p: Param| &buffer[p.offset..p.offset + p.len];
        Self {
            gamma1: part(GAMMA1),
            beta1: part(BETA1),
            w_qkv: part(W_QKV),
            b_qkv: part(B_QKV),
            w_attn: part(W_ATTN),
            b_attn: part(B_ATTN),
            gamma2: part(GAMMA2),
            beta2: part(BETA2),
            w_fc: part(W_FC),
            b_fc: part(B_FC),
            w_proj: part(W_PROJ),
            b_proj: part(B_PROJ),
        }
    }
}
