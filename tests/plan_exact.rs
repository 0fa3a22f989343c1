//! The plans of precision exact on Hopper, without one: every row and column is computed once, every slab split in time, for every size of chip.

use solve::cuda::exact::work::{self, Call, Tiles};
use solve::cuda::exact::{chain, long};

/// Slices of an H100, H100 PCIe with fewer SMs, H100 PCIe, H100 SXM and H200, GH100 in full.
const SMS: [usize; 6] = [16, 60, 78, 114, 132, 144];
/// Bytes of shared memory that a block may have.
const SHARED: u32 = 227 << 10;

/// The chain computes every row and column, and where an H200 has room for its clusters, in one round of tiles.
#[test]
fn exact_chains_cover_everything_once() {
    let room = |splits| [132, 66, 0, 30, 0, 0, 0, 15][splits - 1];
    for rows in 1..=600 {
        let Some(kernels) = chain::plan(rows) else {
            assert!(rows > *chain::rows(false).end(), "{rows} rows");
            continue;
        };
        for kernel in kernels {
            let [x, y, _] = kernel.grid(rows).map(|blocks| blocks as usize);
            let chain::Kernel::Product(gemm, tile) = kernel else {
                let (across, tile) = if kernel == chain::Kernel::Attention { (12, 64) } else { (0, 2) };
                assert_eq!((x, y), if across == 0 { (rows.div_ceil(tile), 1) } else { (across, rows.div_ceil(tile)) });
                continue;
            };
            let tile = chain::TILES[gemm as usize][tile];
            assert_eq!(x, gemm.columns() / tile.columns * tile.splits, "{rows} rows, {gemm:?}");
            assert!(y * 64 * tile.warpgroups >= rows && tile.shared <= SHARED, "{rows} rows, {gemm:?}");
            assert!(x / tile.splits * y <= room(tile.splits), "{rows} rows, {gemm:?}: {x} x {y} blocks");
        }
    }
    for (prepared, last) in [(false, 256), (true, 128)] {
        let first_and_last = [16, 17, last, last + 1].map(|rows| chain::rows(prepared).contains(&rows));
        assert_eq!(first_and_last, [false, true, true, false], "prepared {prepared}");
    }
}

/// Calls of the chain for many rows on every number of SMs, in one sequence, in several that end within a tile, causal, and prepared.
fn long_calls() -> impl Iterator<Item = (String, Call)> {
    let lengths = SMS.into_iter().flat_map(|sms| (long::FROM_ROWS..=6000).map(move |rows| (sms, rows)));
    lengths.flat_map(|(sms, rows)| {
        [(rows, false, true), (rows, false, false), (rows, true, true), (100, false, true), (1000, false, true)].map(
            |(seq_len, causal, casts)| {
                let call = Call { sms, fours: sms / 4 * 10 / 11, rows, seq_len, causal, casts };
                (format!("{rows} rows of {seq_len}, causal {causal}, casts {casts}, {sms} SMs"), call)
            },
        )
    })
}

/// The projections have all blocks of all tiles at once, or else go round in the largest tiles; and the chain names no kernel that is not loaded.
#[test]
fn long_exact_chains_have_all_their_tiles() {
    use long::{Kernel, WIDE};
    let all: Vec<_> = long::Kernel::all().collect();
    for (what, call) in long_calls() {
        let plan = long::plan(call, &call.work());
        assert!(plan.iter().all(|kernel| all.contains(kernel)), "{what}");
        let [
            Kernel::Begin,
            Kernel::Qkv(_),
            attention @ (Kernel::Attention | Kernel::AttentionHalves),
            Kernel::AttnProj(_),
            Kernel::Norm2,
            Kernel::Fc(_),
            Kernel::Proj(_),
        ] = plan
        else {
            panic!("{what}: {plan:?}")
        };
        let halves = 24 * call.rows.div_ceil(128) <= call.sms;
        assert_eq!(attention == Kernel::AttentionHalves, halves, "{what}");
        for kernel in [plan[3], plan[6]] {
            let cut = kernel.cut().expect("a projection's");
            let (blocks, tiles) = (kernel.blocks(call.sms, call.rows), call.rows.div_ceil(128) * (768 / cut.columns));
            assert!(blocks <= call.sms && (cut.splits < 4 || blocks <= 4 * call.fours), "{what}: {cut:?}");
            assert!(blocks == tiles * cut.splits || (cut.columns == WIDE && cut.splits == 1), "{what}: {cut:?}");
        }
        assert!(Kernel::Norm2.blocks(call.sms, call.rows) * long::NORM_THREADS as usize / 32 >= call.rows, "{what}");
    }
}

#[test]
fn long_exact_chains_compute_everything_once() {
    for (what, call) in long_calls() {
        let (work, row_tiles) = (call.work(), call.rows.div_ceil(128));
        for (tiles, n) in [(work.qkv, 2304_usize), (work.fc, 3072)] {
            let columns = work::FORMS[tiles.form].0;
            // The kernel counts where the others begin in their own columns.
            assert_eq!(tiles.words(), [(tiles.wide | (192 * tiles.wide / columns) << 32) as u64], "{what}: {tiles:?}");
            // Tiles of other columns are at most one for each SM, alone, or behind whole rounds where they do not go across the end of a row.
            if tiles.wide == 0 {
                assert_eq!(tiles.rest, row_tiles * n.div_ceil(columns), "{what}: {tiles:?}");
            } else {
                assert_eq!(192 * tiles.wide + columns * tiles.rest, row_tiles * n, "{what}: {tiles:?}");
            }
            let whole = n.is_multiple_of(columns) && (192 * tiles.wide).is_multiple_of(columns);
            let behind = tiles.wide == 0 || (tiles.wide.is_multiple_of(call.sms) && whole);
            let is_rest = tiles.rest > 0 && tiles.rest <= call.sms && behind;
            assert!(is_rest || (tiles.rest == 0 && columns == 192), "{what}: {tiles:?}");
        }
        let runs = work.runs;
        assert!(runs.dealt == 0 || (!call.causal && runs.run * call.sms >= runs.dealt * runs.each), "{what}: {runs:?}");
        assert!(runs.dealt == 0 || runs.dealt == row_tiles * 12 % call.sms, "{what}: {runs:?}");
        // A tile of rows with the ends of sequences in it has more keys than others.
        let alike = call.seq_len >= call.rows || call.seq_len.is_multiple_of(128);
        assert!(runs.dealt == 0 || alike, "{what}: {runs:?}");
    }
}

/// Each slab is split once, before it is needed, and by blocks that have no unit in the last round of their kernel.
#[test]
fn long_exact_chains_split_every_slab_in_time() {
    for (what, call) in long_calls() {
        let work = call.work();
        let [front, in_qkv, in_attention, in_fc] = work.slabs;
        let all = if call.casts { work::SLABS } else { [0; 5] };
        let ends = work.slabs.map(|slabs| slabs.end);
        assert!(front.begin == 0 && front.block == 0 && in_fc.end == all[4], "{what}: {:?}", work.slabs);
        assert!((0..4).all(|stage| ends[stage] >= all[stage + 1]), "{what}: {:?}", work.slabs);
        let last = |tiles: Tiles| if tiles.rest > 0 { tiles.rest } else { tiles.wide };
        let units = call.rows.div_ceil(128) * if call.halves() { 24 } else { 12 };
        for (before, slabs, units) in
            [(front, in_qkv, last(work.qkv)), (in_qkv, in_attention, units), (in_attention, in_fc, last(work.fc))]
        {
            assert_eq!(slabs.begin, before.end, "{what}");
            let idle = slabs.block == units % call.sms && slabs.block > 0;
            assert!(slabs.begin == slabs.end || idle, "{what}: {slabs:?}");
        }
        assert!(work.runs.dealt == 0 || in_attention.begin == in_attention.end, "{what}: nobody is idle");
    }
}

/// The forms that were measured to be the fastest on an H200, and how many slabs are split in front, beside QKV, attention and FC.
#[test]
fn an_h200_runs_what_was_measured_to_be_the_fastest() {
    let plan = |rows, casts| {
        let call = Call { sms: 132, fours: 30, rows, seq_len: rows, causal: false, casts };
        let work = call.work();
        let names = long::plan(call, &work).map(|kernel| kernel.symbol().replace("exact_long_", ""));
        (names[1..].join(" ").replace(" norm2", ""), work.runs.dealt, work.slabs.map(|slabs| slabs.end - slabs.begin))
    };
    for (rows, kernels, dealt, slabs) in [
        (257, "qkv_64 attention_halves attn_64_k2 fc_80 proj_96_k4", 0, [75, 48, 120, 45]),
        (384, "qkv_64 attention_halves attn_64_k2 fc_80 proj_96_k4", 0, [75, 48, 120, 45]),
        (512, "qkv_96 attention_halves attn_64_k2 fc_96 proj_128_k4", 0, [96, 108, 72, 12]),
        (640, "qkv_128 attention_halves attn_64_k2 fc_128 proj_128_k4", 0, [90, 126, 36, 36]),
        (768, "qkv_128 attention attn_64_k1 fc_144 proj_96_k2", 0, [72, 36, 180, 0]),
        (1024, "qkv_144 attention attn_64_k1 fc_192 proj_96_k2", 0, [108, 16, 144, 20]),
        (1500, "qkv_64 attention attn_192_k2 fc_96 proj_192_k2", 12, [96, 192, 0, 0]),
        (2048, "qkv_128 attention attn_192_k2 fc_192 proj_192_k2", 60, [122, 126, 0, 40]),
        (3000, "qkv_64 attention attn_192_k1 fc_192 proj_192_k1", 24, [108, 120, 0, 60]),
        (4096, "qkv_192 attention attn_192_k1 fc_192 proj_192_k1", 0, [72, 24, 112, 80]),
    ] {
        assert_eq!(plan(rows, true), (kernels.to_owned(), dealt, slabs), "{rows} rows");
    }
    for (rows, kernels) in [
        (129, "qkv_64 attention_halves attn_64_k4 fc_64 proj_64_k4"),
        (512, "qkv_80 attention_halves attn_64_k2 fc_96 proj_128_k4"),
        (640, "qkv_96 attention_halves attn_64_k2 fc_128 proj_128_k4"),
        (2048, "qkv_96 attention attn_192_k2 fc_192 proj_192_k2"),
    ] {
        assert_eq!(plan(rows, false).0, kernels, "a handle, {rows} rows");
    }
}
