//! The shape of the block and the layout of the one weight buffer, written down here a second time on
//! purpose: the grader shares no code with the library that it grades.

/// Model width.
pub const D: usize = 768;
/// Attention heads.
pub const HEADS: usize = 12;
/// Width of one head.
pub const HEAD: usize = 64;
/// Width of the feed-forward hidden layer.
pub const FFN: usize = 3072;
/// Added to the variance in both LayerNorms.
pub const EPS: f64 = 1e-5;
/// Floats in the weight buffer.
pub const WEIGHTS: usize = 7_087_872;

/// One parameter of the weight buffer.
#[derive(Clone, Copy, Debug)]
pub struct Param {
    /// Its place in the buffer, in floats.
    pub offset: usize,
    /// Rows: the inputs of a matrix, 1 for a vector.
    pub rows: usize,
    /// Columns: the outputs of a matrix, the length of a vector.
    pub cols: usize,
}

impl Param {
    /// This parameter's part of a whole buffer.
    pub fn of(self, weights: &[f32]) -> &[f32] {
        &weights[self.offset..self.offset + self.rows * self.cols]
    }

    /// This parameter's part of a whole buffer, writable.
    pub fn of_mut(self, weights: &mut [f32]) -> &mut [f32] {
        &mut weights[self.offset..self.offset + self.rows * self.cols]
    }
}

const fn param(offset: usize, rows: usize, cols: usize) -> Param {
    Param { offset, rows, cols }
}

pub const GAMMA1: Param = param(0, 1, D);
pub const BETA1: Param = param(768, 1, D);
pub const W_QKV: Param = param(1_536, D, 3 * D);
pub const B_QKV: Param = param(1_771_008, 1, 3 * D);
pub const W_ATTN: Param = param(1_773_312, D, D);
pub const B_ATTN: Param = param(2_363_136, 1, D);
pub const GAMMA2: Param = param(2_363_904, 1, D);
pub const BETA2: Param = param(2_364_672, 1, D);
pub const W_FC: Param = param(2_365_440, D, FFN);
pub const B_FC: Param = param(4_724_736, 1, FFN);
pub const W_PROJ: Param = param(4_727_808, FFN, D);
pub const B_PROJ: Param = param(7_087_104, 1, D);

/// All parameters in the order of the buffer.
#[cfg(test)]
pub const PARAMS: [Param; 12] =
    [GAMMA1, BETA1, W_QKV, B_QKV, W_ATTN, B_ATTN, GAMMA2, BETA2, W_FC, B_FC, W_PROJ, B_PROJ];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_fill_the_buffer_without_gaps() {
        let mut next = 0;
        for p in PARAMS {
            assert_eq!(p.offset, next);
            next += p.rows * p.cols;
        }
        assert_eq!(next, WEIGHTS);
    }
}
