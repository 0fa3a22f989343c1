//! Who casts which weights, and that they are there for whoever reads them.

use std::ops::Range;

use solve::cuda::block::Shape;
use solve::cuda::hopper::plan::{
    ATTENTION, ATTENTION_PROJ, CHUNKS, CHUNKS_ATTN, CHUNKS_QKV, DIRECT_ROWS, FEW_ROWS, Gemm, Kernel, Launch,
    SHARED_ROWS, fc_watches, forward, prepare, product, proj_rows_before_fc, qkv_makes_room, shared,
};
use solve::precision::SolvePrecision;

use super::{CHUNKS_FC, chip, plans};

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
