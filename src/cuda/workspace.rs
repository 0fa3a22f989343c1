//! Where the intermediate values of one forward live: one allocation, carved by a table.

use super::arch::Arch;
use super::device::Device;
use super::exact;
use super::hopper::plan::{FEW_ROWS, FLAG_BYTES, MOST_SHARES, PART_BYTES, UNDEALT_ROWS};
use super::memory::{Buffer, fill, wait};
use crate::dims::{D, FFN, HEADS, QKV};
use crate::error::Error;
use crate::options::Stream;
use crate::precision::SolvePrecision;

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

/// The vectors as fp32, aligned: offsets in floats. A prepared block has gamma1 and beta1 behind those that Hopper's cast kernel writes.
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
    /// What rows of a prepared block have in common (cuda/gemm/row_facts_sm90a.cuh), in 256 bytes.
    pub const RESIDUAL_FACTS: usize = BETA1 + D;
    pub const LEN: usize = RESIDUAL_FACTS + 64;
}

/// Bytes of what alarms tell.
pub const ALARMS_BYTES: usize = 512;
/// Where behind the alarms one int for each graph says whether its exact kernel is awake, up to where the few-token kernel has two sets of its own.
pub const AWAKE: std::ops::Range<usize> = 192..256;
/// Bytes of the counters that the exact kernel's memory begins with.
const COUNTERS: usize = 256;
/// Bytes of what Hopper's few-token kernel keeps, and of its form of prepared weights (cuda/small).
const FEW_BYTES: usize = 3_000_320;
const FEW_WEIGHTS_BYTES: usize = 15_381_504;

/// Bytes a row of h, x1, and of f, which takes the place of qkv: what is written where L2 already has lines pushes nothing out. For the same reason x1 lies in
/// the output where this has been measured.
const fn per_row(arch: Arch) -> [usize; 3] {
    [D * F16, if matches!(arch, Arch::Sm90a) { 0 } else { D * F32 }, FFN * F16]
}

/// Bytes of statistics a row, 24 words of 8.
const STATISTICS: usize = 192;
/// Bytes of the squares of each head's longest query and key, a line each.
const LONGEST_ROWS: usize = 2 * HEADS * 128;
/// Tiles that hang over the last row write statistics of rows that do not exist, and read what is behind it in h, att, f and, of single tokens' V, qkv. So
/// these have room for whole tiles of 128 rows; QKV's and FC's of up to 256 rows read on into what lies behind h, and proj's of up to 208 into what lies
/// behind f, statistics and `x_copy`.
const TILE_ROWS: usize = 128;

const _: () = assert!((packed::LEN * F16).is_multiple_of(256) && (vectors::LEN * F32).is_multiple_of(256));
const _: () = assert!(FEW_BYTES.is_multiple_of(256) && FEW_WEIGHTS_BYTES.is_multiple_of(256));

/// Addresses of the parts, 0 for one that its purpose does without.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parts {
    /// `uint[128]`: what the fast kernels found unusual about the weights (cuda/common/alarm.cuh), 0 while nothing is
    pub alarms: u64,
    /// `half[7077888]`: [`packed`]; for where calls of `solve()` have some of them on Hopper see hopper/packed.rs
    pub packed: u64,
    /// (3 D, D) half: W_qkv transposed; of a prepared block on Hopper only
    pub qkv_transposed: u64,
    /// `float[10048]`: [`vectors`]
    pub vectors: u64,
    /// The few-token kernel's own; of Hopper only.
    pub few: u64,
    /// Weights prepared for the few-token kernel; of a prepared block on Hopper only.
    pub few_weights: u64,
    /// The exact kernel's own. What it keeps a row shares memory with `h` to `statistics`, because it runs when they have had their last reader.
    pub exact: u64,
    /// (rows, D) half: LN1's output, then attention's, then LN2's
    pub h: u64,
    /// (rows, 3 D) half: Q | K | V; where QKV and attention are one kernel, which keeps Q to itself, attention's output in place of Q
    pub qkv: u64,
    /// (rows, D) float: the residual after attention; 0 if it comes into the output, where proj adds to it in place
    pub x1: u64,
    /// (rows, FFN) half: GELU's output, where qkv was, which attention has read
    pub f: u64,
    /// What the blocks of LN2 tell each other; or, where they do not, what LN1 and they tell FC ([`Parts::row_facts`]).
    pub statistics: u64,
    /// What QKV tells attention of its queries and keys (cuda/gemm/longest_rows_sm90a.cuh); of Hopper only
    pub longest_rows: u64,
    /// Where attention's work is dealt out, whether a block has left its part, zeros when nobody attends; of Hopper only
    pub flags: u64,
    /// Those parts; beyond so many rows as are dealt out. They share memory with what the exact kernel keeps a row.
    pub shares: u64,
    /// (rows, D) float: x of a call in place
    pub x_copy: u64,
}

impl Parts {
    /// Of a prepared block on Hopper: facts of each row, and its parts by the tiles of the attention projection (cuda/gemm/row_facts_sm90a.cuh).
    #[must_use]
    pub fn row_facts(&self, rows: usize) -> [u64; 2] {
        [self.statistics, self.statistics + 8 * rows.next_multiple_of(TILE_ROWS) as u64]
    }

    /// Behind qkv, where GELU's output will be. Of a prepared block (rows, D) half: attention's output where the projection must not write over it; of
    /// `solve()` W_attn, if there is room.
    #[must_use]
    pub fn behind_qkv(&self, rows: usize) -> u64 {
        self.f + (rows * QKV * F16) as u64
    }
}

/// Whose calls a workspace serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// `solve()`: the weights come with each call, in any precision.
    Stateless,
    /// A block that keeps its weights in the forms that this precision reads.
    Prepared(SolvePrecision),
}

/// The parts for up to so many rows.
pub struct Workspace {
    device: &'static Device,
    buffer: Buffer,
    /// Behind the buffer: to free that waits for what runs in it.
    _joined: Joined,
    rows: usize,
    sizes: Sizes,
}

/// One of the device's launchers while this lives.
struct Joined(&'static Device);

impl Joined {
    fn new(device: &'static Device) -> Result<Self, Error> {
        device.launchers.join(device).map(|()| Self(device))
    }
}

impl Drop for Joined {
    fn drop(&mut self) {
        self.0.launchers.leave();
    }
}

impl Workspace {
    /// Most bytes for so many rows, on whichever GPU.
    #[must_use]
    pub fn bytes(rows: usize) -> usize {
        let prepared = [SolvePrecision::Fast, SolvePrecision::Exact].map(Purpose::Prepared);
        let purposes = [Purpose::Stateless].into_iter().chain(prepared);
        let sizes = purposes.flat_map(|purpose| Arch::ALL.map(|arch| Sizes::new(arch, rows, purpose).total()));
        sizes.max().unwrap_or(0)
    }

    /// Allocates; the device's context is current.
    pub fn new(device: &'static Device, rows: usize, purpose: Purpose) -> Result<Self, Error> {
        let sizes = Sizes::new(device.arch, rows, purpose);
        let bound = match purpose {
            Purpose::Stateless => "seq_len",
            Purpose::Prepared(_) => "max_tokens",
        };
        let buffer = Buffer::new(device, &format!("the workspace of {bound} = {rows}"), sizes.total())?;
        let workspace = Self { device, buffer, _joined: Joined::new(device)?, rows, sizes };
        let parts = workspace.parts();
        fill(parts.alarms, 0, ALARMS_BYTES, Stream::LEGACY)?;
        fill(parts.exact, 0, COUNTERS, Stream::LEGACY)?;
        if parts.flags != 0 {
            fill(parts.flags, 0, FLAG_BYTES, Stream::LEGACY)?;
        }
        if parts.few != 0 {
            // The few-token kernel's counters start from here (cuda/small/exchange.cuh).
            fill(parts.few, 0xff, sizes.few, Stream::LEGACY)?;
        }
        wait(Stream::LEGACY)?;
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
        let Sizes { packed, qkv_transposed, vectors, few, few_weights, exact, rows, flags, x_copy } = self.sizes;
        let mut next = self.buffer.address();
        let mut take = |bytes: usize| {
            let here = next;
            next += bytes as u64;
            if bytes == 0 { 0 } else { here }
        };
        let alarms = take(ALARMS_BYTES);
        let [packed, qkv_transposed, vectors] = [packed, qkv_transposed, vectors].map(&mut take);
        let [few, few_weights, exact] = [few, few_weights, exact].map(&mut take);
        let stages = take(rows);
        let x_copy = take(x_copy);
        let flags = take(flags);
        let mut next = stages;
        let [h, x1, f] = per_row(self.device.arch).map(|bytes| {
            let here = next;
            next += (bytes * self.rows.next_multiple_of(TILE_ROWS)) as u64;
            if bytes == 0 { 0 } else { here }
        });
        let statistics = next;
        let longest_rows = statistics + (STATISTICS * self.rows.next_multiple_of(TILE_ROWS)) as u64;
        Parts {
            alarms,
            packed,
            qkv_transposed,
            vectors,
            few,
            few_weights,
            exact,
            h,
            qkv: f,
            x1,
            f,
            statistics,
            longest_rows,
            flags,
            shares: longest_rows + LONGEST_ROWS as u64,
            x_copy,
        }
    }
}

/// Bytes of the parts, all multiples of 256.
#[derive(Clone, Copy)]
struct Sizes {
    packed: usize,
    qkv_transposed: usize,
    vectors: usize,
    few: usize,
    few_weights: usize,
    /// The exact kernel's, without what it keeps a row.
    exact: usize,
    /// `h` to `statistics`, or what the exact kernel keeps a row.
    rows: usize,
    flags: usize,
    x_copy: usize,
}

impl Sizes {
    fn new(arch: Arch, rows: usize, purpose: Purpose) -> Self {
        let whole_tiles = rows.next_multiple_of(TILE_ROWS);
        let (hopper, prepared) = (arch == Arch::Sm90a, purpose != Purpose::Stateless);
        let form = exact::form(arch);
        let exact = form.fixed + if prepared { form.prepared } else { 0 };
        let exact_rows = whole_tiles * form.per_row;
        let few = if hopper { FEW_BYTES } else { 0 };
        if purpose == Purpose::Prepared(SolvePrecision::Exact) {
            let [packed, qkv_transposed, vectors, few_weights, flags, x_copy] = [0; 6];
            return Self { packed, qkv_transposed, vectors, few, few_weights, exact, rows: exact_rows, flags, x_copy };
        }
        // A prepared block that never has more than a few rows needs its weights in one fast form only.
        let only_few = hopper && prepared && rows <= FEW_ROWS;
        let stages = whole_tiles * (per_row(arch).iter().sum::<usize>() + STATISTICS) + LONGEST_ROWS;
        let shares = if hopper && rows > UNDEALT_ROWS { MOST_SHARES * PART_BYTES } else { 0 };
        Self {
            packed: if only_few { 0 } else { packed::LEN * F16 },
            qkv_transposed: if hopper && prepared && !only_few { D * QKV * F16 } else { 0 },
            vectors: vectors::LEN * F32,
            few,
            few_weights: if hopper && prepared { FEW_WEIGHTS_BYTES } else { 0 },
            exact,
            rows: (stages + shares).max(exact_rows),
            flags: if hopper { FLAG_BYTES } else { 0 },
            x_copy: rows * D * F32,
        }
    }

    fn total(&self) -> usize {
        let Self { packed, qkv_transposed, vectors, few, few_weights, exact, rows, flags, x_copy } = self;
        ALARMS_BYTES + packed + qkv_transposed + vectors + few + few_weights + exact + rows + flags + x_copy
    }
}

#[cfg(test)]
impl Parts {
    pub(super) const NONE: Self = Self {
        alarms: 0,
        packed: 0,
        qkv_transposed: 0,
        vectors: 0,
        few: 0,
        few_weights: 0,
        exact: 0,
        h: 0,
        qkv: 0,
        x1: 0,
        f: 0,
        statistics: 0,
        longest_rows: 0,
        flags: 0,
        shares: 0,
        x_copy: 0,
    };
}

#[cfg(test)]
mod tests {
    use super::*;
    use SolvePrecision::{Auto, Exact, Fast};

    /// Those of each architecture and purpose, for rows at the edges.
    fn all() -> impl Iterator<Item = (Arch, usize, Purpose, Sizes)> {
        let purposes = [Purpose::Stateless].into_iter().chain([Fast, Auto, Exact].map(Purpose::Prepared));
        let rows = [1, 32, 33, 128, 129, 256, 2048, 2049, 5000];
        let all = purposes.flat_map(move |purpose| rows.map(|rows| (rows, purpose)));
        all.flat_map(|(rows, purpose)| Arch::ALL.map(|arch| (arch, rows, purpose, Sizes::new(arch, rows, purpose))))
    }

    #[test]
    fn the_readme_has_what_lies_beside_the_tokens() {
        let readme = include_str!("../../README.md").split_whitespace().collect::<Vec<_>>().join(" ");
        let bytes = |arch, rows, purpose| Sizes::new(arch, rows, purpose).total();
        let megabytes =
            |arch, purpose| ((2 * bytes(arch, 128, purpose) - bytes(arch, 256, purpose)) as f64 / 1e6).round();
        let hopper = [Purpose::Stateless, Purpose::Prepared(Auto)].map(|purpose| megabytes(Arch::Sm90a, purpose));
        let other = megabytes(Arch::Sm80, Purpose::Stateless);
        let said = format!("{} MB (a handle: {} MB) on Hopper and {other} MB on others", hopper[0], hopper[1]);
        assert!(readme.contains(&said), "{said}");
    }

    #[test]
    fn there_is_room_for_what_the_stages_and_the_exact_kernel_keep_a_row() {
        for (arch, rows, purpose, sizes) in all() {
            let what = format!("{arch:?}, {rows} rows, {purpose:?}");
            let whole = rows.next_multiple_of(128);
            let form = exact::form(arch);
            assert!(sizes.rows >= whole * form.per_row, "{what}");
            let prepared = if purpose == Purpose::Stateless { 0 } else { form.prepared };
            assert!(sizes.exact == form.fixed + prepared && sizes.total().is_multiple_of(256), "{what}");
            if purpose != Purpose::Prepared(Exact) {
                // h, x1 unless it lies in the output, and f, in the place of qkv
                let [h, x1, f] = per_row(arch);
                assert_eq!([h, x1, f], [2 * 768, if arch == Arch::Sm90a { 0 } else { 4 * 768 }, 2 * 3072]);
                let dealt = if arch == Arch::Sm90a && rows > 2048 { MOST_SHARES * PART_BYTES } else { 0 };
                assert!(sizes.rows >= whole * (h + x1 + f + STATISTICS) + LONGEST_ROWS + dealt, "{what}");
                assert_eq!(sizes.x_copy, rows * 4 * 768, "{what}");
            }
        }
    }

    #[test]
    fn weights_are_kept_in_the_forms_that_are_read() {
        for (arch, rows, purpose, sizes) in all() {
            let (hopper, fast) = (arch == Arch::Sm90a, purpose != Purpose::Prepared(Exact));
            let prepared = purpose != Purpose::Stateless;
            let only_few = hopper && prepared && rows <= 32;
            let kept = [sizes.packed, sizes.qkv_transposed, sizes.few_weights, sizes.vectors].map(|bytes| bytes > 0);
            let wanted = [!only_few, hopper && prepared && !only_few, hopper && prepared, true];
            assert_eq!(kept, wanted.map(|wanted| wanted && fast), "{arch:?}, {rows} rows, {purpose:?}");
        }
    }
}
