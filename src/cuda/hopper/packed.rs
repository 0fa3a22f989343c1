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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cuda::block::Shape;
    use crate::cuda::hopper::plan::{CHUNKS, CHUNKS_QKV, Chip, Kernel, forward};
    use crate::precision::SolvePrecision;

    const F: u64 = 1 << 40;
    const KEPT: u64 = 1 << 20;

    fn parts() -> Parts {
        Parts { packed: KEPT, qkv: F, f: F, ..Parts::NONE }
    }

    /// What a call casts takes no place of what it still reads.
    #[test]
    fn the_matrices_of_a_call_lie_where_nothing_else_lives() {
        let chip = Chip { sms: 132, clusters: [66, 30, 15], heads: [17, 15, 15] };
        let mut seen = [[0; 2]; 2];
        for rows in (257..1200).chain([2048, 4096]) {
            let (batch, seq_len, precision) = (1, rows, SolvePrecision::Fast);
            let (causal, prepared, guarded, rescued) = (false, false, true, false);
            let shape = Shape { batch, seq_len, causal, prepared, precision, guarded, rescued };
            let launches = forward(chip, shape, true);
            let buffers = Buffers { x: 0, output: 0, weights: 0, x_copy: 0, rows, seq_len, parts: parts() };
            let all = Packed::of_call(&buffers, &launches);
            let [qkv, attn, fc, proj] = Gemm::ALL.map(|gemm| all.matrix(gemm));
            let [(at_qkv, own_qkv), (at_attn, own_attn)] =
                [(qkv, packed::QKV_), (attn, packed::ATTN)].map(|(at, own)| (at, KEPT + 2 * own as u64));
            assert_eq!([fc, proj], [packed::FC, packed::PROJ].map(|halves| KEPT + 2 * halves as u64));
            // Behind qkv, which is read as long as W_attn is not, and in front of the end of f
            let [behind, end] = [QKV, FFN].map(|columns| F + 2 * (rows * columns) as u64);
            let fits = at_attn >= behind && at_attn + 2 * (D * D) as u64 <= end;
            assert!(at_attn == own_attn || fits, "{rows} rows: W_attn at {at_attn:#x}");
            // At the end of W_proj, which attention or who comes behind it casts
            let attends =
                |launch: &Launch| matches!(launch.kernel, Kernel::Attention { .. } | Kernel::QkvAttention { .. });
            let before = launches.iter().take_while(|launch| !attends(launch));
            let late = before.flat_map(|launch| launch.cast.clone()).all(|chunk| chunk < CHUNKS - CHUNKS_QKV);
            let at_end = at_qkv + 2 * (D * QKV) as u64 == KEPT + 2 * packed::LEN as u64;
            assert!(at_qkv == own_qkv || (at_end && late), "{rows} rows: W_qkv at {at_qkv:#x}");
            // Chunks of W_attn are counted from the first of W_qkv.
            let [base, cast_qkv, cast_attn] = all.targets();
            assert_eq!([base, cast_qkv, cast_attn + 2 * packed::ATTN as u64], [KEPT, qkv, attn], "{rows} rows");
            seen[0][usize::from(fits)] += 1;
            seen[1][usize::from(at_end)] += 1;
        }
        assert!(seen[0].iter().all(|&calls| calls > 0) && seen[1][1] > 0, "{seen:?}");
        let read_as_they_are = Packed::of_call(
            &Buffers { x: 0, output: 0, weights: 0, x_copy: 0, rows: 256, seq_len: 256, parts: parts() },
            &[],
        );
        assert_eq!(read_as_they_are.matrix(Gemm::Qkv), KEPT, "nobody makes room");
    }
}
