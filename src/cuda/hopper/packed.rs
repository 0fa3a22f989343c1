//! Where the fp16 weights lie. Those that a call casts share memory with what is dead by then, or will come when they are: what is written where L2
//! already has lines pushes nothing out of it. At 1024 rows that saves 0.3 us, and half of the bytes that a call writes to memory (H200).

use super::plan::{Gemm, Launch, qkv_makes_room};
use crate::cuda::block::Buffers;
use crate::cuda::workspace::{Parts, packed};
use crate::dims::{D, FFN, QKV};

/// Addresses of the matrices.
#[derive(Clone, Copy)]
pub struct Packed {
    /// [`packed`], of which W_fc and W_proj are where it says.
    base: u64,
    qkv: u64,
    attn: u64,
}

impl Packed {
    /// Those of a prepared block, all of which live on.
    pub fn kept(parts: &Parts) -> Self {
        let at = |halves: usize| parts.packed + 2 * halves as u64;
        Self { base: parts.packed, qkv: at(packed::QKV_), attn: at(packed::ATTN) }
    }

    /// Those of a call with these launches.
    pub fn of_call(buffers: &Buffers, launches: &[Launch]) -> Self {
        let Buffers { parts, rows, .. } = buffers;
        let mut all = Self::kept(parts);
        // Kept apart for a look at them?
        if parts.qkv != parts.f {
            return all;
        }
        if qkv_makes_room(launches) {
            all.qkv = parts.packed + 2 * (packed::LEN - D * QKV) as u64;
        }
        if rows * (FFN - QKV) >= D * D {
            all.attn = parts.behind_qkv(*rows);
        }
        all
    }

    /// The matrix of a product.
    pub fn matrix(&self, gemm: Gemm) -> u64 {
        match gemm {
            Gemm::Qkv => self.qkv,
            Gemm::AttnProj => self.attn,
            Gemm::Fc => self.base + 2 * packed::FC as u64,
            Gemm::Proj => self.base + 2 * packed::PROJ as u64,
        }
    }

    /// As `CastArgs` wants them: whence the numbers of chunks count.
    pub fn targets(&self) -> [u64; 3] {
        // Nobody casts where there is no room for it.
        [self.base, self.qkv, self.attn.wrapping_sub(2 * packed::ATTN as u64)]
    }
}
