//! Where the intermediate values of one forward live: one allocation, carved by a table.

use super::arch::Arch;
use super::device::Device;
use super::hopper::plan::FEW_ROWS;
use super::memory::{Buffer, fill, wait};
use crate::dims::{D, FFN, QKV};
use crate::error::Error;
use crate::options::Stream;

/// Bytes of an fp16 and of an fp32 value.
const F16: usize = 2;
const F32: usize = 4;

/// The four matrices as fp16, one after the other: offsets in halves.
#[allow(missing_docs)]
pub mod packed {
    use super::{D, FFN, QKV};
    pub const QKV_: usize = 0;
    pub const ATTN: usize = QKV_ + D * QKV;
    pub const FC: usize = ATTN + D * D;
    pub const PROJ: usize = FC + D * FFN;
    pub const LEN: usize = PROJ + FFN * D;
}

/// The vectors as fp32, aligned: offsets in floats. A prepared block has gamma1 and beta1 behind those that the cast kernel writes.
#[allow(missing_docs)]
pub mod vectors {
    use super::{D, FFN, QKV};
    pub const B_QKV: usize = 0;
    pub const B_ATTN: usize = B_QKV + QKV;
    pub const GAMMA2: usize = B_ATTN + D;
    pub const BETA2: usize = GAMMA2 + D;
    pub const B_FC: usize = BETA2 + D;
    pub const B_PROJ: usize = B_FC + FFN;
    pub const GAMMA1: usize = B_PROJ + D;
    pub const BETA1: usize = GAMMA1 + D;
    pub const LEN: usize = BETA1 + D;
}

/// Bytes of the parts that do not depend on the rows: `packed`, `vectors`.
const FIXED: [usize; 2] = [packed::LEN * F16, vectors::LEN * F32];
/// Bytes of what Hopper's few-token kernel keeps, and of its form of prepared weights (cuda/small).
const FEW: [usize; 2] = [5_310_464, 14_195_712];
/// Bytes a row of the others: h, qkv, x1, f.
const PER_ROW: [usize; 4] = [D * F16, QKV * F16, D * F32, FFN * F16];
/// Bytes of statistics a row, 24 words of 8: written for the rows of whole tiles.
const STATISTICS: usize = 192;
const TILE_ROWS: usize = 128;

const _: () = assert!(FIXED[0].is_multiple_of(256) && FIXED[1].is_multiple_of(256));
const _: () = assert!(FEW[0].is_multiple_of(256) && FEW[1].is_multiple_of(256));

/// Addresses of the parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parts {
    /// half[7077888]: [`packed`]; 0 for a prepared block of a few rows on Hopper
    pub packed: u64,
    /// float[9984]: [`vectors`]
    pub vectors: u64,
    /// The few-token kernel's own; of Hopper only.
    pub few: u64,
    /// Weights prepared for the few-token kernel; of a prepared block on Hopper only.
    pub few_weights: u64,
    /// (rows, D) half: LN1's output, then attention's, then LN2's
    pub h: u64,
    /// (rows, 3 D) half: Q | K | V
    pub qkv: u64,
    /// (rows, D) float: the residual after attention
    pub x1: u64,
    /// (rows, FFN) half: GELU's output
    pub f: u64,
    /// What the blocks of LN2 tell each other.
    pub statistics: u64,
}

/// The parts for up to so many rows.
pub struct Workspace {
    buffer: Buffer,
    rows: usize,
    fixed: [usize; 4],
}

impl Workspace {
    /// Most bytes for so many rows, on whichever GPU.
    #[must_use]
    pub fn bytes(rows: usize) -> usize {
        let kinds = [(false, false), (true, false), (true, true)];
        kinds.map(|(hopper, prepared)| bytes_with(rows, fixed(rows, hopper, prepared))).into_iter().max().unwrap_or(0)
    }

    /// Allocates for a block that prepares its weights or not; the device's context is current.
    pub fn new(device: &'static Device, rows: usize, prepared: bool) -> Result<Self, Error> {
        let fixed = fixed(rows, device.arch == Arch::Sm90a, prepared);
        let workspace = Self { buffer: Buffer::new(device, "the workspace", bytes_with(rows, fixed))?, rows, fixed };
        if fixed[2] > 0 {
            // The few-token kernel's counters start from here (cuda/small/exchange.cuh).
            fill(workspace.parts().few, 0xff, fixed[2], Stream::LEGACY)?;
            wait(Stream::LEGACY)?;
        }
        Ok(workspace)
    }

    /// Rows that it has room for.
    #[must_use]
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Where everything is.
    #[must_use]
    pub fn parts(&self) -> Parts {
        let mut next = self.buffer.address();
        let mut take = |bytes: usize| {
            let here = next;
            next += bytes as u64;
            here
        };
        let [packed, vectors, few, few_weights] = self.fixed.map(&mut take);
        let packed = if self.fixed[0] == 0 { 0 } else { packed };
        let [h, qkv, x1, f] = PER_ROW.map(|bytes| take(bytes * self.rows));
        let statistics = take(STATISTICS * self.rows.next_multiple_of(TILE_ROWS));
        Parts { packed, vectors, few, few_weights, h, qkv, x1, f, statistics }
    }
}

/// Bytes of the parts that do not depend on the rows: `packed`, `vectors`, `few`, `few_weights`.
fn fixed(rows: usize, hopper: bool, prepared: bool) -> [usize; 4] {
    let [packed, vectors] = FIXED;
    match (hopper, prepared) {
        (false, _) => [packed, vectors, 0, 0],
        (true, false) => [packed, vectors, FEW[0], 0],
        // A block that never has more than a few rows needs its weights in one form only.
        (true, true) if rows <= FEW_ROWS => [0, vectors, FEW[0], FEW[1]],
        (true, true) => [packed, vectors, FEW[0], FEW[1]],
    }
}

fn bytes_with(rows: usize, fixed: [usize; 4]) -> usize {
    let fixed: usize = fixed.iter().sum();
    fixed + rows * PER_ROW.iter().sum::<usize>() + rows.next_multiple_of(TILE_ROWS) * STATISTICS
}
