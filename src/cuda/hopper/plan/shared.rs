//! The matrix products for two tiles of rows that read fp32 weights as the caller stores them: the two blocks of a cluster convert half of a tile's weights
//! each.

use super::{CHUNKS_ATTN, CHUNKS_QKV, Chip, FEWEST_WORKERS, Kernel, Launch, NOTHING, count};
use crate::cuda::block::Gemm;

/// What a block computes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SharedTile {
    /// Whose product.
    pub gemm: Gemm,
    /// Rows, half of the most that it is for.
    pub m: usize,
    /// Columns.
    pub n: usize,
    /// Bytes of shared memory.
    pub shared: u32,
}

impl SharedTile {
    /// Columns of a box of results.
    #[must_use]
    pub fn slab(&self) -> u32 {
        1 << self.n.trailing_zeros().min(6)
    }
}

/// The forms that there are: QKV and FC of 65 to 128 rows, FC of 129 to 256.
pub const SHARED: [SharedTile; 3] = [
    SharedTile { gemm: Gemm::Qkv, m: 64, n: 48, shared: 173_504 },
    SharedTile { gemm: Gemm::Fc, m: 64, n: 64, shared: 198_144 },
    SharedTile { gemm: Gemm::Fc, m: 128, n: 64, shared: 230_944 },
];
/// Their places.
pub(super) const QKV: usize = 0;
pub(super) const FC: usize = 1;
pub(super) const FC_256: usize = 2;

/// Blocks of a cluster.
const BLOCKS: usize = 2;
/// Warps of a block that convert weights, and watch them.
const CONVERTERS: u32 = 8;

/// The launch of this form.
#[must_use]
pub fn shared(form: usize) -> Launch {
    let SharedTile { gemm, m, n, shared } = SHARED[form];
    let blocks = count(BLOCKS * gemm.columns() / n);
    Launch {
        kernel: Kernel::Shared { form },
        grid: [blocks, 1, 1],
        // Two warps for each 16 rows and the converters; one warp brings the left operand, one hands on what has been converted.
        threads: 2 * m as u32 + 64 + 32 * CONVERTERS,
        shared,
        working: blocks,
        cast: NOTHING,
    }
}

/// QKV, and W_attn cast on the SMs that it leaves idle. None: these are too few.
pub(super) fn casting_qkv(chip: Chip) -> Option<Launch> {
    let (launch, blocks) = (shared(QKV), count(BLOCKS * chip.clusters[0]));
    let cast = CHUNKS_QKV..CHUNKS_QKV + CHUNKS_ATTN;
    (blocks >= launch.working + FEWEST_WORKERS).then_some(Launch { grid: [blocks, 1, 1], cast, ..launch })
}

/// Warps that count themselves when they have watched weights in these launches; of 129 rows and more, where who judges the result does not wait for FC to
/// end.
#[must_use]
pub fn watchers(launches: &[Launch]) -> u32 {
    let counting = launches.iter().find(|launch| launch.kernel == Kernel::Shared { form: FC_256 });
    counting.map_or(0, |launch| CONVERTERS * launch.working)
}
