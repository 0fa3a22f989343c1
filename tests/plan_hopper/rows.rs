//! Every row is computed, and what tiles have beyond the last one lies in the workspace.

use solve::cuda::hopper::plan::{
    ATTENTION, ATTENTION_PROJ, Dealing, Gemm, Kernel, SHORT, dealing, direct, product, qkv_attention, shared,
    starts_in_pairs,
};
use solve::cuda::hopper::views;

use super::plans;

#[test]
fn every_row_is_computed() {
    for (sms, shape, plan) in plans() {
        let rows = shape.rows();
        // Where QKV and attention are one kernel, it takes whole tiles of rows.
        let fused = plan.iter().any(|launch| matches!(launch.kernel, Kernel::QkvAttention { .. }));
        let in_pairs = |blocks: usize| if (65..=640).contains(&rows) { blocks.next_multiple_of(2) } else { blocks };
        let filled = if fused { rows.next_multiple_of(qkv_attention::ROWS) } else { rows };
        for launch in &plan {
            let what = format!("{shape:?} on {sms}: {launch:?}");
            assert!(!starts_in_pairs(launch, rows) || launch.grid[0].is_multiple_of(2), "{what}");
            match launch.kernel {
                Kernel::Gemm { gemm, tile } => {
                    let form = product::tiles(gemm)[tile];
                    assert!(shape.prepared || !form.transposed(), "{what}");
                    assert_eq!(gemm.columns() % form.n, 0, "{what}");
                    assert_eq!(gemm.depth() % (64 * form.splits), 0, "{what}");
                    let work = rows.div_ceil(form.m) * (gemm.columns() / form.n) * form.splits;
                    let blocks = launch.working as usize;
                    assert_eq!(launch.grid[0] as usize % form.cluster(), 0, "whole clusters: {what}");
                    // Either a block for each tile, or few enough to be resident and walk through them.
                    assert!(blocks == work || (form.splits == 1 && blocks < work && blocks <= sms), "{what}");
                    if gemm == Gemm::AttnProj {
                        assert!(blocks <= sms && blocks.is_multiple_of(768 / form.n), "LN2 waits for its row: {what}");
                    }
                }
                Kernel::Direct { gemm } => {
                    let form = direct::tile(gemm).expect("a tile");
                    assert_eq!((gemm.columns() % form.n, gemm.depth() % (64 * form.splits)), (0, 0), "{what}");
                    assert!(rows <= form.m, "{what}");
                    assert_eq!(launch.working as usize, gemm.columns() / form.n * form.splits, "{what}");
                    let watching = (launch.threads - form.threads()) / 32;
                    assert_eq!(direct::watchers(launch), watching * launch.working, "{what}");
                }
                Kernel::Shared { form } => {
                    let form = shared::SHARED[form];
                    assert!((form.m + 1..=2 * form.m).contains(&rows), "a cluster of two: {what}");
                    assert_eq!(form.gemm.columns() % form.n, 0, "{what}");
                    assert_eq!(launch.working as usize, 2 * form.gemm.columns() / form.n, "{what}");
                    assert_eq!(launch.grid[0] % 2, 0, "whole clusters: {what}");
                }
                Kernel::AttentionProj { form } => {
                    let form = ATTENTION_PROJ[form];
                    assert!((form.keys - 63..=form.keys).contains(&rows), "{what}");
                    assert_eq!(form.packed, shape.prepared || !launch.cast.is_empty(), "{what}");
                    assert_eq!(launch.working, rows.div_ceil(64) as u32 * 32, "{what}");
                    assert_eq!(launch.grid[0] % 4, 0, "whole clusters: {what}");
                    assert!(launch.working as usize <= sms, "LN2 waits for its row: {what}");
                }
                Kernel::Attention { form, .. } => {
                    let form = ATTENTION[form];
                    let (groups, heads) = (shape.seq_len.div_ceil(64), 12 * shape.batch);
                    assert!(form.takes(shape), "{what}");
                    let blocks = match form.blocks {
                        1 if form.dealt => {
                            let shares = launch.grid[0];
                            let Dealing { rows, key_tiles, share, longer } = dealing(shares as usize, shape, &form);
                            let rows = rows as usize;
                            assert!(rows == 64 * groups || rows == 192 * groups.div_ceil(3), "{what}");
                            assert!(2 * key_tiles as usize >= groups, "{what}");
                            assert!(groups > 1, "a unit has rows of two heads at most: {what}");
                            assert!(0 < share && longer < shares, "each has some: {what}");
                            assert_eq!(shares * share + longer, (heads * rows / 192) as u32 * key_tiles, "{what}");
                            assert_eq!(launch.grid, [sms as u32, 1, 1], "{what}");
                            sms
                        }
                        1 => groups.div_ceil(form.rows) * heads,
                        // Three row groups divide among the heads without a rest.
                        blocks => groups * heads / form.rows * blocks,
                    };
                    assert_eq!(launch.working as usize, blocks, "{what}");
                }
                Kernel::AttentionShort { form } => {
                    let (most, tiles) = (SHORT[form], SHORT[form] / 16);
                    assert!(shape.prepared && shape.seq_len <= most, "{what}");
                    // Four warps a block, each with 16 queries of a head.
                    let groups = launch.grid[0] as usize * 4 / 12 / tiles;
                    assert!(groups * (most / shape.seq_len) >= shape.batch, "{what}");
                }
                Kernel::QkvAttention { form } => {
                    let blocks = qkv_attention::BLOCKS[form];
                    assert_eq!((shape.batch, shape.seq_len.div_ceil(128)), (1, blocks), "{what}");
                    assert_eq!(launch.working as usize, 12 * blocks, "{what}");
                }
                // And VECTOR_BLOCKS of cuda/cast/cast_layernorm_sm90a.cu, or half as many where they are twice as large.
                Kernel::CastLayernorm => {
                    let least = filled.div_ceil(8) + 10 + launch.cast.len();
                    assert_eq!(launch.grid[0] as usize, in_pairs(least), "{what}");
                }
                Kernel::LayernormVectors => {
                    assert_eq!(launch.grid[0] as usize, in_pairs(rows.div_ceil(16) + 5), "{what}");
                }
                Kernel::Layernorm => assert_eq!(launch.grid[0] as usize, rows.div_ceil(8), "{what}"),
                Kernel::Apart { tile } | Kernel::FcScaled { tile } => {
                    let gemm = if matches!(launch.kernel, Kernel::Apart { .. }) { Gemm::AttnProj } else { Gemm::Fc };
                    let form = product::tiles(gemm)[tile];
                    let work = rows.div_ceil(form.m) * gemm.columns().div_ceil(form.n);
                    let blocks = launch.working as usize;
                    assert!(blocks == work || (blocks < work && blocks <= sms), "{what}");
                    // FC reads what the projection's tiles say about a row two by two.
                    assert!(gemm == Gemm::Fc || (768 / form.n).is_multiple_of(2), "{what}");
                }
                Kernel::Few { .. }
                | Kernel::FewInFp32 { .. }
                | Kernel::FewPrepare
                | Kernel::FewMerge
                | Kernel::TransposeQkv
                | Kernel::FoldLayernorm2 => {}
            }
        }
    }
}

/// Tiles that hang over the last row read on behind their left operand: in h, behind which f lies, or in f, behind which statistics and `x_copy` do
/// (src/cuda/workspace.rs). V of single tokens lies where f will, and there is room for it.
#[test]
fn what_hangs_over_the_last_row_stays_in_the_workspace() {
    const TILE_ROWS: usize = 128;
    for (sms, shape, plan) in plans() {
        let (rows, whole) = (shape.rows(), shape.rows().next_multiple_of(TILE_ROWS));
        for launch in &plan {
            let (gemm, tile) = match launch.kernel {
                Kernel::Gemm { gemm, tile } => (gemm, tile),
                Kernel::FcScaled { tile } => (Gemm::Fc, tile),
                Kernel::Apart { tile } => (Gemm::AttnProj, tile),
                _ => continue,
            };
            let form = product::tiles(gemm)[tile];
            let over = (rows.div_ceil(form.m) * form.m).saturating_sub(whole);
            let (row, behind) = match gemm {
                Gemm::Proj => (2 * 3072, 192 * whole + 4 * 768 * rows),
                Gemm::AttnProj if shape.seq_len == 1 => (2 * 2304, 2 * (3072 - 2304) * whole - 2 * 2 * 768),
                _ => (2 * 768, 2 * 3072 * whole),
            };
            assert!(over * row <= behind, "{shape:?} on {sms}: {launch:?}");
        }
    }
}

/// A box that hangs over the end of its matrix takes the copy engine longer.
#[test]
fn no_box_of_a_left_operand_hangs_over() {
    for (rows, high) in [(1_usize, 64), (897, 128), (961, 104), (992, 144)] {
        let whole = rows.next_multiple_of(high);
        assert_eq!(views::left_of(0, 768, 768, rows, high), views::left_of(0, 768, 768, whole, high));
        assert_eq!(views::direct_left(0, 768, 768, rows, high), views::direct_left(0, 768, 768, whole, high));
    }
}
