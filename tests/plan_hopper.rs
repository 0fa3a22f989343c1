//! The plan for Hopper, without one: every weight is cast once, every row computed, on grids that fit the chip, for every size of chip.

use std::ops::Range;

use solve::cuda::block::Shape;
use solve::cuda::hopper::kernels::symbol;
use solve::cuda::hopper::plan::{
    ATTENTION, ATTENTION_PROJ, CHUNKS, CHUNKS_ATTN, CHUNKS_QKV, Chip, DIRECT_ROWS, Dealing, FEW, FEW_IN_FP32, FEW_ROWS,
    FewWeights, Gemm, Kernel, Launch, SHARED_ROWS, attention_forms, dealing, direct, fc_watches, forward, in_fp32,
    prepare, product, proj_rows_before_fc, qkv_attention, qkv_makes_room, row_groups, shared, shared_bytes,
};
use solve::cuda::hopper::views;
use solve::precision::SolvePrecision;

/// Slices of an H100, H100 PCIe with fewer SMs, H100 PCIe, H100 SXM and H200, GH100 in full.
const SMS: [usize; 6] = [16, 60, 78, 114, 132, 144];
/// Chunks of W_fc, and of W_proj.
const CHUNKS_FC: u32 = (768 * 3072 / 4096) as u32;
/// Bytes of shared memory that a block may have.
const SHARED: u32 = 227 << 10;

/// With as many clusters as an H200 and an H100 have of their SMs: the others are left over in groups of 16 and 18.
fn chip(sms: usize) -> Chip {
    let eights = sms / 8 - sms / 126;
    let heads = [sms / 6 - sms / 26, sms / 7 - sms / 44, eights];
    Chip { sms, clusters: [sms / 2, sms / 4 - sms / 66, eights], heads }
}

fn plans() -> impl Iterator<Item = (usize, Shape, Vec<Launch>)> {
    let edges = (320..=4224).step_by(16).flat_map(|size| [size - 1, size, size + 1]);
    let sizes = (1..=300).chain(edges).chain([8192, 10_007, 131_072, 1 << 20]);
    let shapes = sizes.flat_map(|seq_len| {
        let kinds = [
            (1, false, false),
            (1, true, true),
            (3, true, false),
            (9, true, false),
            (2, false, true),
            (17, false, true),
        ];
        let precision = SolvePrecision::Fast;
        kinds.map(|(batch, causal, prepared)| Shape {
            batch,
            seq_len,
            causal,
            prepared,
            precision,
            guarded: true,
            rescued: false,
        })
    });
    shapes.flat_map(|shape| SMS.map(|sms| (sms, shape, forward(chip(sms), shape, true))))
}

#[test]
fn few_rows_are_one_resident_launch() {
    for (sms, shape, plan) in plans().filter(|(_, shape, _)| shape.rows() <= FEW_ROWS) {
        let [launch] = &plan[..] else { panic!("{shape:?}: {plan:?}") };
        let form = match launch.kernel {
            Kernel::Few { weights, tile } => {
                assert!(!in_fp32(&shape), "{shape:?} in {launch:?}");
                assert_eq!(weights == FewWeights::Prepared, shape.prepared, "{shape:?} in {launch:?}");
                assert!(weights.tiles().contains(&tile), "no such kernel: {launch:?}");
                FEW[tile]
            }
            Kernel::FewInFp32 { form, .. } => {
                assert!(in_fp32(&shape), "{shape:?} in {launch:?}");
                FEW_IN_FP32[form]
            }
            _ => panic!("{launch:?}"),
        };
        assert!(form.rows >= shape.rows(), "{shape:?} in {launch:?}");
        let fewest = FEW.iter().chain(&FEW_IN_FP32).map(|form| form.rows).filter(|&rows| rows >= shape.rows()).min();
        assert!(form.single || Some(form.rows) <= fewest.max(Some(8)), "{shape:?} in {launch:?}");
        assert!(!form.single || shape.seq_len == 1, "{shape:?} in {launch:?}");
        let may_be_single = shape.seq_len == 1 && shape.rows() <= if in_fp32(&shape) { 1 } else { 8 };
        assert_eq!(form.single, may_be_single && (shape.prepared || in_fp32(&shape)), "{shape:?} in {launch:?}");
        assert!(launch.grid[0] as usize <= sms, "all blocks at once: {launch:?} on {sms}");
        // The copy engine takes no matrix that is not aligned.
        let of = |prepared, aligned| match forward(chip(sms), Shape { prepared, ..shape }, aligned)[..] {
            [Launch { kernel: Kernel::Few { weights, .. }, .. }] => weights,
            [Launch { kernel: Kernel::FewInFp32 { aligned: true, .. }, .. }] => FewWeights::Aligned,
            [Launch { kernel: Kernel::FewInFp32 { aligned: false, .. }, .. }] => FewWeights::Unaligned,
            _ => panic!("{shape:?} on {sms}"),
        };
        let weights = [(false, true), (false, false), (true, true), (true, false)].map(|(p, aligned)| of(p, aligned));
        let (prepared, [aligned, unaligned]) = (FewWeights::Prepared, [FewWeights::Aligned, FewWeights::Unaligned]);
        assert_eq!(weights, [aligned, unaligned, prepared, prepared], "{shape:?} on {sms}");
    }
}

/// Who does not wait for all that is before it would read, or write over, what an earlier call or step still has to do with.
#[test]
fn the_first_launch_of_a_call_and_each_of_a_preparation_waits_for_all_before_it() {
    for (sms, shape, plan) in plans() {
        let first: Vec<_> = plan.iter().map(|launch| launch.kernel.comes_first()).collect();
        assert!(first[0] && first[1..].iter().all(|&first| !first), "{shape:?} on {sms}: {plan:?}");
    }
    assert!(prepare().iter().all(|launch| launch.kernel.comes_first()));
}

/// In squares of 32 (cuda/cast/transpose_sm90a.cu, cuda/cast/fold_layernorm2_sm90a.cu), and W_fc is there before LN2 is folded into it.
#[test]
fn a_preparation_covers_the_matrices() {
    let launches = prepare();
    let grid = |kernel| launches.iter().find(|launch| launch.kernel == kernel).map(|launch| launch.grid);
    assert_eq!(grid(Kernel::TransposeQkv), Some([2304 / 32, 768 / 32, 1]));
    assert_eq!(grid(Kernel::FoldLayernorm2), Some([3072 / 32 + 1 + 768 / 32, 1, 1]));
    let place = |kernel| launches.iter().position(|launch| launch.kernel == kernel);
    assert!(place(Kernel::CastLayernorm) < place(Kernel::FoldLayernorm2));
    assert!(place(Kernel::CastLayernorm).is_some() && place(Kernel::FewPrepare).is_some());
}

/// In exact the fewest rows, of handles too, and where the weights come with the call one row in each precision; but nobody who takes the place of fast kernels.
#[test]
fn the_fewest_rows_are_computed_in_fp32() {
    let most = |precision, prepared, rescued| {
        let shape = |batch, seq_len| {
            let (causal, guarded) = (seq_len % 2 == 0, false);
            in_fp32(&Shape { batch, seq_len, causal, prepared, precision, guarded, rescued })
        };
        let most = (1..=FEW_ROWS).take_while(|&rows| shape(1, rows)).count();
        assert!((1..=FEW_ROWS).all(|rows| shape(rows, 1) == (rows <= most)), "{precision:?} {prepared} {rescued}");
        most
    };
    use SolvePrecision::{Auto, Exact, Fast};
    assert_eq!([Fast, Auto, Exact].map(|precision| most(precision, false, false)), [1, 1, 8]);
    assert_eq!([Fast, Auto, Exact].map(|precision| most(precision, true, false)), [0, 0, 8]);
    assert_eq!([most(Exact, false, true), most(Exact, true, true)], [0, 0]);
}

#[test]
fn more_rows_are_six_launches_or_five() {
    for (_, shape, plan) in plans().filter(|(_, shape, _)| shape.rows() > FEW_ROWS) {
        let kinds: Vec<u8> = plan
            .iter()
            .map(|launch| match launch.kernel {
                Kernel::CastLayernorm | Kernel::LayernormVectors | Kernel::Layernorm => 0,
                Kernel::Gemm { gemm, .. } | Kernel::Direct { gemm } => [1, 3, 4, 5][gemm as usize],
                Kernel::Shared { form } => [1, 3, 4, 5][shared::SHARED[form].gemm as usize],
                Kernel::FcScaled { .. } => 4,
                Kernel::Attention { causal, .. } => {
                    assert_eq!(causal, shape.causal);
                    2
                }
                Kernel::QkvAttention { .. } => 12,
                Kernel::AttentionProj { .. } => 23,
                Kernel::Apart { .. } => {
                    assert!(shape.prepared, "LN2 is folded into prepared weights only: {shape:?}");
                    3
                }
                Kernel::Few { .. }
                | Kernel::FewInFp32 { .. }
                | Kernel::FewPrepare
                | Kernel::TransposeQkv
                | Kernel::FoldLayernorm2 => 9,
            })
            .collect();
        let right = [&[0, 1, 2, 3, 4, 5][..], &[0, 1, 23, 4, 5], &[0, 12, 3, 4, 5]];
        assert!(right.contains(&&kinds[..]), "{shape:?}: {kinds:?}");
    }
}

#[test]
fn every_weight_is_cast_once_or_was_before_or_is_read_as_it_is() {
    let edges = [0, CHUNKS_QKV, CHUNKS_QKV + CHUNKS_ATTN, CHUNKS - CHUNKS_FC, CHUNKS];
    for (sms, shape, plan) in plans().filter(|(_, shape, _)| shape.rows() > FEW_ROWS) {
        let rows = shape.rows();
        // By the matrix: those whose weights a kernel reads as they are.
        let mut reads = [false; 4];
        for launch in &plan {
            match launch.kernel {
                Kernel::Direct { gemm } => reads[gemm as usize] = true,
                Kernel::Shared { form } => reads[shared::SHARED[form].gemm as usize] = true,
                Kernel::AttentionProj { form } if !ATTENTION_PROJ[form].packed => reads[Gemm::AttnProj as usize] = true,
                _ => {}
            }
        }
        let most = [SHARED_ROWS, DIRECT_ROWS, SHARED_ROWS, DIRECT_ROWS];
        let may = most.map(|most| !shape.prepared && rows <= most);
        assert!(reads.iter().zip(may).all(|(&reads, may)| may || !reads), "{shape:?} on {sms}: {plan:?}");
        // Of attention and its projection 32 blocks wait for each other.
        let direct = !shape.prepared && rows <= DIRECT_ROWS && sms >= 32;
        assert!(!direct || reads == [true; 4], "{shape:?} on {sms}: {plan:?}");
        let mut next = 0;
        let pass_over = |next: &mut u32| {
            for (matrix, &reads) in edges.windows(2).zip(&reads) {
                if reads && *next == matrix[0] {
                    *next = matrix[1];
                }
            }
        };
        for launch in plan.iter().filter(|launch| !launch.cast.is_empty()) {
            pass_over(&mut next);
            assert_eq!(launch.cast.start, next, "{shape:?} on {sms}: {plan:?}");
            next = launch.cast.end;
            // QKV that reads its own weights leaves W_fc out of what it casts, and nobody else does.
            let of_fc = launch.cast.start < edges[3] && launch.cast.end > edges[2];
            let leaves_out = matches!(launch.kernel, Kernel::Shared { .. });
            assert!(!of_fc || leaves_out == reads[Gemm::Fc as usize], "W_fc, {shape:?} on {sms}: {plan:?}");
        }
        pass_over(&mut next);
        assert_eq!(next, if shape.prepared { 0 } else { CHUNKS }, "{shape:?} on {sms}");
    }
    assert_eq!(prepare().iter().map(|launch| launch.cast.len()).sum::<usize>(), CHUNKS as usize);
}

/// A weight is there before the kernel begins that reads it ahead of its wait: the one after the next.
#[test]
fn what_a_projection_fetches_early_is_cast_two_kernels_before() {
    let mut seen = [0; 2];
    let shares = |plan: &[Launch]| plan.iter().any(|launch| matches!(launch.kernel, Kernel::Shared { .. }));
    for (sms, shape, plan) in plans().filter(|(_, _, plan)| shares(plan)) {
        let what = format!("{shape:?} on {sms}: {plan:?}");
        assert!((DIRECT_ROWS + 1..=SHARED_ROWS).contains(&shape.rows()), "{what}");
        let casts = |chunk: u32| plan.iter().position(|launch| launch.cast.contains(&chunk));
        let there =
            |mut chunks: Range<u32>, latest: usize| chunks.all(|chunk| casts(chunk).is_some_and(|at| at <= latest));
        assert!(there(CHUNKS - CHUNKS_FC..CHUNKS, plan.len() - 3), "W_proj, {what}");
        assert!(there(CHUNKS_QKV..CHUNKS_QKV + CHUNKS_ATTN, 1), "W_attn, {what}");
        // QKV of these forms tells nobody how long queries and keys are.
        let told = |kernel| matches!(kernel, Kernel::Attention { form, .. } if ATTENTION[form].wants_lengths());
        assert!(!plan.iter().any(|launch| told(launch.kernel)), "lengths, {what}");
        seen[plan.len() - 5] += 1;
    }
    assert!(seen.iter().all(|&plans| plans > 0), "{seen:?}");
}

/// Where FC casts the last of W_proj, proj fetches only what was cast before FC began, and whoever judges the alarms knows.
#[test]
fn what_fc_casts_is_neither_fetched_early_nor_unwatched() {
    let mut lengths = [0; 2];
    for (sms, shape, plan) in plans().filter(|(_, shape, _)| shape.rows() > SHARED_ROWS && !shape.prepared) {
        let what = format!("{shape:?} on {sms}: {plan:?}");
        let [.., before, fc, proj] = &plan[..] else { panic!("{what}") };
        let Kernel::Gemm { gemm: Gemm::Proj, tile } = proj.kernel else { panic!("{what}") };
        let form = &product::tiles(Gemm::Proj)[tile];
        let (rows, depth) = (3072 / form.splits, form.depth() as usize);
        let early = product::early(shape.rows()).min((rows / depth) as u32);
        let fetched = product::early_of_proj(shape.rows(), form, proj_rows_before_fc(&plan));
        let Kernel::Gemm { gemm: Gemm::Fc, tile } = fc.kernel else { panic!("{what}") };
        if fc.cast.is_empty() {
            assert_eq!((fetched, fc_watches(chip(sms), shape.rows())), (early, false), "{what}");
            continue;
        }
        assert!(before.cast.is_empty() || before.cast.end == fc.cast.start, "{what}");
        assert_eq!(fc.cast.end, CHUNKS, "{what}");
        let there = (fc.cast.start - (CHUNKS - CHUNKS_FC)) as usize * 4096 / 768;
        let stages = fetched as usize;
        assert!((0..form.splits).all(|part| part * rows + stages * depth <= there), "{what}");
        let warps = (fc.threads - product::product_in(chip(sms), Gemm::Fc, tile, shape.rows()).threads) / 32;
        assert_eq!(warps, product::tiles(Gemm::Fc)[tile].casting_warps(), "{what}");
        assert!(warps > 0 && fc_watches(chip(sms), shape.rows()), "{what}");
        lengths[usize::from(fetched < early)] += 1;
    }
    assert!(lengths.iter().all(|&plans| plans > 0), "{lengths:?}");
}

/// What FC reads of the caller's weights nobody has looked at before.
#[test]
fn an_fc_that_reads_the_callers_weights_is_watched() {
    let mut reading = 0;
    for (sms, shape, plan) in plans().filter(|(_, shape, _)| shape.rows() > FEW_ROWS && !shape.prepared) {
        let reads = |launch: &Launch| match launch.kernel {
            Kernel::Direct { gemm } => gemm == Gemm::Fc,
            Kernel::Shared { form } => shared::SHARED[form].gemm == Gemm::Fc,
            _ => false,
        };
        if plan.iter().any(reads) {
            assert!(fc_watches(chip(sms), shape.rows()), "{shape:?} on {sms}: {plan:?}");
            reading += 1;
        }
    }
    assert!(reading > 0);
}

#[test]
fn a_launch_that_casts_has_blocks_for_it() {
    for (sms, shape, plan) in plans().filter(|(_, shape, _)| shape.rows() > FEW_ROWS && !shape.prepared) {
        for launch in &plan[1..] {
            let blocks: u32 = launch.grid.iter().product();
            assert!(blocks >= launch.working, "{launch:?}");
            let beside = match launch.kernel {
                Kernel::Attention { causal, .. } => !causal,
                Kernel::Gemm { gemm: Gemm::Fc, tile } => {
                    launch.threads > product::product_in(chip(sms), Gemm::Fc, tile, shape.rows()).threads
                }
                _ => false,
            };
            assert!(
                launch.cast.is_empty() || beside || blocks > launch.working,
                "{shape:?} on {sms}: {launch:?} casts with none"
            );
        }
    }
}

#[test]
fn w_qkv_makes_room_for_what_is_cast_when_it_is_dead() {
    for (sms, shape, plan) in plans().filter(|(_, shape, _)| shape.rows() > FEW_ROWS) {
        if !qkv_makes_room(&plan) {
            continue;
        }
        let attends = |launch: &Launch| matches!(launch.kernel, Kernel::Attention { .. } | Kernel::QkvAttention { .. });
        let first = plan.iter().position(attends).expect("attention");
        let cast = |launches: &[Launch]| launches.iter().flat_map(|launch| launch.cast.clone()).collect::<Vec<_>>();
        let (before, behind) = (cast(&plan[..first]), cast(&plan[first..]));
        assert!((0..CHUNKS_QKV).all(|chunk| before.contains(&chunk)), "{shape:?} on {sms}: {plan:?}");
        assert!((CHUNKS - CHUNKS_QKV..CHUNKS).all(|chunk| behind.contains(&chunk)), "{shape:?} on {sms}: {plan:?}");
    }
    let h200 = |seq_len| {
        let precision = SolvePrecision::Fast;
        forward(
            chip(132),
            Shape { batch: 1, seq_len, causal: false, prepared: false, precision, guarded: true, rescued: false },
            true,
        )
    };
    assert!([257, 512, 1024, 2048].into_iter().all(|rows| qkv_makes_room(&h200(rows))));
    assert!([128, 256].into_iter().all(|rows| !qkv_makes_room(&h200(rows))), "it is not cast");
}

#[test]
fn every_row_is_computed() {
    for (sms, shape, plan) in plans() {
        let rows = shape.rows();
        // Where QKV and attention are one kernel, it takes whole tiles of rows.
        let fused = plan.iter().any(|launch| matches!(launch.kernel, Kernel::QkvAttention { .. }));
        let filled = if fused { rows.next_multiple_of(qkv_attention::ROWS) } else { rows };
        for launch in &plan {
            let what = format!("{shape:?} on {sms}: {launch:?}");
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
                Kernel::QkvAttention { form } => {
                    let blocks = qkv_attention::BLOCKS[form];
                    assert_eq!((shape.batch, shape.seq_len.div_ceil(128)), (1, blocks), "{what}");
                    assert_eq!(launch.working as usize, 12 * blocks, "{what}");
                }
                // And VECTOR_BLOCKS of cuda/cast/cast_layernorm_sm90a.cu, or half as many where they are twice as large.
                Kernel::CastLayernorm => {
                    assert_eq!(launch.grid[0] as usize, filled.div_ceil(8) + 10 + launch.cast.len(), "{what}");
                }
                Kernel::LayernormVectors => assert_eq!(launch.grid[0] as usize, rows.div_ceil(16) + 5, "{what}"),
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
                | Kernel::TransposeQkv
                | Kernel::FoldLayernorm2 => {}
            }
        }
    }
}

#[test]
fn a_launch_asks_for_the_shared_memory_that_its_kernel_was_given() {
    for (_, shape, plan) in plans() {
        for launch in plan {
            assert_eq!(launch.shared, shared_bytes(launch.kernel), "{shape:?}: {launch:?}");
        }
    }
}

#[test]
fn a_grid_that_waits_for_itself_fits_the_chip() {
    for (sms, shape, plan) in plans() {
        for launch in &plan {
            // Of a projection only the blocks of a row wait for each other, and those that cast for none.
            let (resident, most) = match launch.kernel {
                Kernel::Few { .. } | Kernel::FewInFp32 { .. } => ([true, true], sms),
                Kernel::AttentionProj { .. } => ([true, false], 4 * chip(sms).clusters[1]),
                Kernel::Gemm { gemm: Gemm::AttnProj, .. } => ([true, false], sms),
                // The blocks of a cluster wait for each other, and those that cast for the others, which start before them.
                Kernel::QkvAttention { form } => ([false, false], qkv_attention::BLOCKS[form] * chip(sms).heads[form]),
                _ => ([false, false], usize::MAX),
            };
            let blocks: u32 = launch.grid.iter().product();
            assert_eq!([false, true].map(|alone| launch.kernel.is_resident(alone)), resident, "{launch:?}");
            assert!(blocks as usize <= most, "{shape:?} on {sms}: {launch:?}");
        }
    }
}

/// Tiles that hang over the last row read on behind their left operand: in h, behind which f lies, or in f, behind which statistics and `x_copy` do
/// (src/cuda/workspace.rs).
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
            let (row, behind) =
                if gemm == Gemm::Proj { (2 * 3072, 192 * whole + 4 * 768 * rows) } else { (2 * 768, 2 * 3072 * whole) };
            assert!(over * row <= behind, "{shape:?} on {sms}: {launch:?}");
        }
    }
}

#[test]
fn every_launch_is_one_that_the_gpu_accepts() {
    for (sms, shape, plan) in plans() {
        for launch in plan.iter().chain(&prepare()) {
            let what = format!("{shape:?} on {sms}: {launch:?}");
            let [x, y, z] = launch.grid;
            assert!((1..1 << 31).contains(&x) && (1..65_536).contains(&y) && (1..65_536).contains(&z), "{what}");
            assert!(launch.threads.is_multiple_of(32) && launch.threads <= 1024, "{what}");
            assert!(launch.shared <= SHARED, "{what}");
        }
    }
}

/// Every tile and form that is compiled is the choice for some call on some chip.
#[test]
fn every_form_is_chosen_somewhere() {
    let mut chosen = std::collections::HashSet::new();
    let rows = (1..4300).chain((4300..40_000).step_by(97)).chain([65_536, 131_072, 1 << 20]);
    for seq_len in rows {
        for sms in 78..=144 {
            // In precision exact these launches are of the fewest rows only.
            let (fast, exact) = (SolvePrecision::Fast, SolvePrecision::Exact);
            let precision = if seq_len <= 8 && sms % 4 < 2 { exact } else { fast };
            for (prepared, causal) in [(false, false), (true, false), (true, true)] {
                let shape = Shape { batch: 1, seq_len, causal, prepared, precision, guarded: true, rescued: false };
                let launches = forward(chip(sms), shape, (seq_len + sms) % 2 == 0);
                chosen.extend(launches.into_iter().map(|launch| launch.kernel));
            }
        }
    }
    let mut all = Vec::new();
    all.extend((0..qkv_attention::BLOCKS.len()).map(|form| Kernel::QkvAttention { form }));
    for gemm in Gemm::ALL {
        all.extend((0..product::tiles(gemm).len()).map(|tile| Kernel::Gemm { gemm, tile }));
        all.extend(direct::tile(gemm).map(|_| Kernel::Direct { gemm }));
    }
    all.extend((0..shared::SHARED.len()).map(|form| Kernel::Shared { form }));
    all.extend((0..ATTENTION_PROJ.len()).map(|form| Kernel::AttentionProj { form }));
    for causal in [false, true] {
        all.extend(attention_forms(causal).map(|form| Kernel::Attention { form, causal }));
    }
    for weights in FewWeights::ALL {
        all.extend(weights.tiles().map(|tile| Kernel::Few { weights, tile }));
    }
    for aligned in [false, true] {
        all.extend((0..FEW_IN_FP32.len()).map(|form| Kernel::FewInFp32 { aligned, form }));
    }
    let unused: Vec<_> = all.into_iter().filter(|kernel| !chosen.contains(kernel)).collect();
    assert!(unused.is_empty(), "compiled in vain: {unused:?}");
}

/// Clusters of attention find the head of a group of rows by a multiplication (`RowGroups` in cuda/attention/attention_tile_sm90a.cuh), which is exact where
/// the number of the last group times a sequence's groups is below 2^31.
#[test]
fn attention_has_few_enough_groups_where_clusters_take_them() {
    // More rows than a GPU has memory for.
    let many = (1..=2048).map(|groups| ((1 << 24) / (64 * groups), 64 * groups));
    let batches = many.flat_map(|(batch, seq_len)| {
        let shape = |prepared| Shape {
            batch,
            seq_len,
            causal: false,
            prepared,
            precision: SolvePrecision::Fast,
            guarded: true,
            rescued: false,
        };
        [shape(false), shape(true)]
            .into_iter()
            .flat_map(|shape| SMS.map(|sms| (shape, forward(chip(sms), shape, true))))
    });
    let mut clusters = 0;
    for (shape, plan) in plans().map(|(_, shape, plan)| (shape, plan)).chain(batches) {
        for launch in plan {
            let Kernel::Attention { form, .. } = launch.kernel else { continue };
            if ATTENTION[form].blocks > 1 {
                let (groups, inverse) = row_groups(shape.seq_len);
                let (groups, inverse) = (groups as usize, u64::from(inverse));
                let heads = 12 * shape.batch;
                assert!(heads * groups * groups < 1 << 31, "{shape:?}");
                for head in [0, heads / 2, heads - 1] {
                    for group in [head * groups, (head + 1) * groups - 1] {
                        let found = (2 * group as u64 * inverse) >> 32;
                        assert_eq!(found as usize, head, "{shape:?}, group {group}");
                    }
                }
                clusters += 1;
            }
        }
    }
    assert!(clusters > 0, "no plan has clusters");
}

/// Where attention's work is dealt out, a unit has rows of two heads rather than too few of one, unless blocks get whole ones without that.
#[test]
fn dealt_units_are_full_or_go_round() {
    let form = *ATTENTION.iter().find(|form| form.dealt).expect("a form that deals work out");
    let dealt = |sms: usize, batch: usize, seq_len: usize| {
        let precision = SolvePrecision::Fast;
        let shape = Shape { batch, seq_len, causal: false, prepared: true, precision, guarded: true, rescued: false };
        form.takes(shape).then(|| dealing(sms, shape, &form))
    };
    for seq_len in 1..=5000 {
        for (sms, batch) in SMS.into_iter().flat_map(|sms| [1, 2, 7, 100].map(|batch| (sms, batch))) {
            let Some(Dealing { rows, key_tiles, share, longer }) = dealt(sms, batch, seq_len) else { continue };
            let full = rows as usize == seq_len.next_multiple_of(64);
            let whole = longer == 0 && share.is_multiple_of(key_tiles);
            assert!(full || whole, "{batch} of {seq_len} on {sms}");
        }
    }
    let rows = |batch, seq_len| dealt(132, batch, seq_len).map(|dealing| dealing.rows);
    assert_eq!([rows(1, 2113), rows(1, 4096), rows(2, 2048), rows(3, 1000)], [2176, 4224, 2112, 1024].map(Some));
    assert_eq!([rows(1, 2048), rows(100, 64)], [None; 2], "too few rows, and units of three heads");
}

/// Where the chip has no room for all heads and the cast, QKV and attention are two kernels.
#[test]
fn qkv_and_attention_are_one_kernel_where_its_clusters_fit() {
    let together = |heads: [usize; 3], seq_len: usize, batch: usize, prepared: bool| {
        let precision = SolvePrecision::Fast;
        let shape = Shape { batch, seq_len, causal: false, prepared, precision, guarded: true, rescued: false };
        let plan = forward(Chip { heads, ..chip(132) }, shape, true);
        plan.iter().any(|launch| matches!(launch.kernel, Kernel::QkvAttention { .. }))
    };
    let enough = [16, 15, 15];
    for rows in 500..1200 {
        assert_eq!(together(enough, rows, 1, false), (641..=1024).contains(&rows), "{rows} rows");
        assert!(!together([15, 14, 14], rows, 1, false) && !together(enough, rows, 1, true), "{rows} rows");
    }
    assert!(!together(enough, 512, 2, false));
}

/// The forms that were measured to be the fastest on an H200, and who casts from which chunk on: what another figure anywhere in the plan would change
/// without any result being wrong.
#[test]
fn an_h200_runs_what_was_measured_to_be_the_fastest() {
    let chip = Chip { sms: 132, clusters: [66, 30, 15], heads: [17, 15, 15] };
    let plan = |batch, seq_len, causal, prepared| {
        let precision = SolvePrecision::Fast;
        forward(chip, Shape { batch, seq_len, causal, prepared, precision, guarded: true, rescued: false }, true)
    };
    let names = |plan: &[Launch]| {
        let names: Vec<_> = plan[1..].iter().map(|launch| symbol(launch.kernel)).collect();
        names.join(" ").replace("gemm_", "").replace("_f16", "")
    };
    for ((batch, seq_len), casts, kernels) in [
        ((1, 64), &[][..], "qkv_direct_64x32 attention_proj_direct_64 fc_direct_64x32 proj_direct_64x64_k8"),
        ((1, 96), &[432, 1332][..], "qkv_shared_64x48 attention_proj_packed_128 fc_shared_64x64 proj_64x64_k4"),
        ((1, 128), &[432, 1152][..], "qkv_shared_64x48 attention_proj_packed_128 fc_shared_64x64 proj_64x64_k4"),
        ((1, 256), &[432, 1296][..], "qkv_shared_128x48 attention_1x2 attn_proj_64x96 fc_shared_128x64 proj_128x64_k4"),
        (
            (1, 257),
            &[0, 432, 792, 1152, 1440][..],
            "qkv_128x96 attention_1x2 attn_proj_64x96 fc_128x96 proj_32x64_k1_swapped",
        ),
        (
            (1, 400),
            &[0, 432, 720, 1224, 1512][..],
            "qkv_128x96 attention_1x2 attn_proj_64x96 fc_128x96 proj_48x128_k2_swapped",
        ),
        (
            (1, 512),
            &[0, 432, 864, 1440][..],
            "qkv_128x96 attention_1x2 attn_proj_64x96 fc_128x96 proj_56x128_k2_swapped",
        ),
        (
            (1, 576),
            &[0, 432, 1152, 1440][..],
            "qkv_160x128_swapped attention_1x2 attn_proj_64x128 fc_128x128 proj_64x128_k2_swapped",
        ),
        (
            (1, 640),
            &[0, 432, 504, 1224, 1512][..],
            "qkv_128x96 attention_1x2 attn_proj_64x128 fc_128x128 proj_64x128_k2_swapped",
        ),
        ((1, 700), &[0, 432, 1512][..], "qkv_attention_6 attn_proj_64x128 fc_144x128_swapped proj_72x128_k2_swapped"),
        ((1, 896), &[0, 432, 1512][..], "qkv_attention_7 attn_proj_64x128 fc_128x192 proj_96x128_k2_swapped"),
        ((1, 1024), &[0, 432][..], "qkv_attention_8 attn_proj_64x128 fc_128x192 proj_104x128_k2_swapped"),
        (
            (1, 1025),
            &[0, 432, 720, 1458][..],
            "qkv_128x192 attention_2x1 attn_proj_64x128 fc_144x192_swapped proj_104x128_k2_swapped",
        ),
        (
            (1, 1500),
            &[0, 432, 504, 1440][..],
            "qkv_224x128_swapped attention_3x1 attn_proj_128x96 fc_192x192 proj_152x64_k1_swapped",
        ),
        ((1, 2048), &[0, 432][..], "qkv_192x192 attention_3x1 attn_proj_128x96 fc_128x192 proj_104x128_k1_swapped"),
        (
            (1, 3000),
            &[0, 432, 504, 1440][..],
            "qkv_224x128_swapped attention_3x1_dealt attn_proj_128x192 fc_192x192 proj_160x128_k1_swapped",
        ),
        ((1, 4096), &[0, 432][..], "qkv_192x192 attention_3x1 attn_proj_128x192 fc_128x192 proj_208x128_k1_swapped"),
        (
            (1, 8192),
            &[0, 432, 468][..],
            "qkv_192x192 attention_3x1_dealt attn_proj_128x192 fc_128x192 proj_208x128_k1_swapped",
        ),
        (
            (2, 360),
            &[0, 432, 983, 1368, 1512][..],
            "qkv_160x128_swapped attention_3x1x2 attn_proj_64x128 fc_144x128_swapped proj_72x128_k2_swapped",
        ),
        (
            (2, 512),
            &[0, 432, 1026, 1584][..],
            "qkv_128x192 attention_3x1x2 attn_proj_64x128 fc_128x192 proj_104x128_k2_swapped",
        ),
        (
            (8, 112),
            &[0, 432, 787, 1368, 1512][..],
            "qkv_160x128_swapped attention_3x1x2 attn_proj_64x128 fc_128x192 proj_96x128_k2_swapped",
        ),
    ] {
        let plan = plan(batch, seq_len, false, false);
        let starts: Vec<_> =
            plan.iter().map(|launch| &launch.cast).filter(|cast| !cast.is_empty()).map(|cast| cast.start).collect();
        assert_eq!((&starts[..], &*names(&plan)), (casts, kernels), "solve of {batch} x {seq_len}");
    }
    for (rows, kernels, causal) in [
        (64, "qkv_64x64 attention_proj_packed_64 fc_64x64 proj_64x64_k4", "attention_proj_packed_64"),
        (128, "qkv_64x64 attention_1x2 attn_proj_apart_64x96 fc_scaled_64x96 proj_64x64_k4", "attention_1x2"),
        (256, "qkv_64x96 attention_1x2 attn_proj_apart_64x96 fc_scaled_64x96 proj_128x64_k4", "attention_1x2"),
        (
            400,
            "qkv_128x96 attention_1x2 attn_proj_apart_64x96 fc_scaled_128x96 proj_48x128_k2_swapped",
            "attention_1x2",
        ),
        (
            512,
            "qkv_128x96 attention_1x2 attn_proj_apart_64x96 fc_scaled_128x96 proj_56x128_k2_swapped",
            "attention_1x2",
        ),
        (
            640,
            "qkv_128x96 attention_1x2 attn_proj_apart_64x128 fc_scaled_128x128 proj_64x128_k2_swapped",
            "attention_1x2",
        ),
        (
            700,
            "qkv_128x144 attention_3x1x2 attn_proj_apart_64x128 fc_scaled_144x128_swapped proj_72x128_k2_swapped",
            "attention_1x2",
        ),
        (
            1024,
            "qkv_128x144 attention_3x1x2 attn_proj_apart_64x128 fc_scaled_128x192 proj_104x128_k2_swapped",
            "attention_1x2",
        ),
        (
            1025,
            "qkv_160x128_swapped attention_2x1 attn_proj_apart_64x128 fc_scaled_144x192_swapped proj_104x128_k2_swapped",
            "attention_1x2",
        ),
        (
            1500,
            "qkv_224x128_swapped attention_3x1 attn_proj_apart_128x96 fc_scaled_192x192 proj_152x64_k1_swapped",
            "attention_1x2",
        ),
        (
            2048,
            "qkv_128x144 attention_3x1 attn_proj_apart_128x96 fc_scaled_128x192 proj_104x128_k1_swapped",
            "attention_2x1",
        ),
        (
            3000,
            "qkv_224x128_swapped attention_3x1_dealt attn_proj_apart_128x192 fc_scaled_192x192 proj_160x128_k1_swapped",
            "attention_3x1",
        ),
        (
            4096,
            "qkv_192x192 attention_3x1 attn_proj_apart_128x192 fc_scaled_128x192 proj_208x128_k1_swapped",
            "attention_3x1",
        ),
    ] {
        assert_eq!(names(&plan(1, rows, false, true)), kernels, "a handle, {rows} rows");
        let of_causal = names(&plan(1, rows, true, true));
        assert_eq!(
            of_causal.split(' ').nth(1),
            Some(&*if rows > 64 { format!("{causal}_causal") } else { causal.into() })
        );
    }
    let early = [32, 64, 65, 512, 513, 640, 641].map(product::early);
    assert_eq!(early, [3, 3, u32::MAX >> 1, u32::MAX >> 1, 3, 3, 1]);
}

/// A box that hangs over the end of its matrix takes the copy engine longer.
#[test]
fn no_box_of_a_left_operand_hangs_over() {
    for (rows, high) in [(1_usize, 64), (897, 128), (961, 104), (992, 144)] {
        let whole = rows.next_multiple_of(high);
        assert_eq!(views::left_of(0, 768, 768, rows, high), views::left_of(0, 768, 768, whole, high));
        assert_eq!(views::direct_left(0, 768, rows, high), views::direct_left(0, 768, whole, high));
    }
}
