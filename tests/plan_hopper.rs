//! The plan for Hopper, without one: every weight is cast once, every row computed, on grids that fit the chip, for every size of chip.

#[path = "plan_hopper/attention.rs"]
mod attention;
#[path = "plan_hopper/casts.rs"]
mod casts;
#[path = "plan_hopper/fastest.rs"]
mod fastest;
#[path = "plan_hopper/few.rs"]
mod few;
#[path = "plan_hopper/rows.rs"]
mod rows;

use solve::cuda::block::Shape;
use solve::cuda::hopper::plan::{
    Chip, FEW_ROWS, Gemm, Kernel, Launch, forward, is_few, prepare, qkv_attention, shared, shared_bytes,
};
use solve::cuda::launch::Residency;
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
    shapes.chain(short_sequences()).flat_map(|shape| SMS.map(|sms| (sms, shape, forward(chip(sms), shape, true))))
}

/// Handles' batches of them.
fn short_sequences() -> impl Iterator<Item = Shape> {
    let batches = [33, 40, 64, 65, 100, 129, 300, 1000, 5000, 65_535];
    let shapes = batches.into_iter().flat_map(|batch| [1, 2, 3, 5, 15, 16, 17, 31, 32, 33].map(|len| (batch, len)));
    shapes.flat_map(|(batch, seq_len)| {
        [false, true].map(|causal| {
            let precision = SolvePrecision::Fast;
            Shape { batch, seq_len, causal, prepared: true, precision, guarded: true, rescued: false }
        })
    })
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
    assert_eq!(grid(Kernel::FoldLayernorm2), Some([3072 / 32 + 8 + 768 / 32, 1, 1]));
    let place = |kernel| launches.iter().position(|launch| launch.kernel == kernel);
    assert!(place(Kernel::CastLayernorm) < place(Kernel::FoldLayernorm2));
    assert!(place(Kernel::CastLayernorm).is_some() && place(Kernel::FewPrepare).is_some());
    assert_eq!(grid(Kernel::FewMerge), Some([768 / 32 * 4, 1, 1]));
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
                Kernel::AttentionShort { .. } => 2,
                Kernel::QkvAttention { .. } => 12,
                Kernel::AttentionProj { .. } => 23,
                Kernel::Apart { .. } => {
                    assert!(shape.prepared, "LN2 is folded into prepared weights only: {shape:?}");
                    3
                }
                Kernel::Few { .. }
                | Kernel::FewInFp32 { .. }
                | Kernel::FewPrepare
                | Kernel::FewMerge
                | Kernel::TransposeQkv
                | Kernel::FoldLayernorm2 => 9,
            })
            .collect();
        let right = [&[0, 1, 2, 3, 4, 5][..], &[0, 1, 23, 4, 5], &[0, 12, 3, 4, 5]];
        let of_single_tokens: &[u8] = if is_few(&shape) { &[9] } else { &[0, 1, 3, 4, 5] };
        let right = if shape.seq_len == 1 { &[of_single_tokens][..] } else { &right };
        assert!(right.contains(&&kinds[..]), "{shape:?}: {kinds:?}");
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
    let waiting = [Residency::Cooperative, Residency::Foremost(-5)];
    for (sms, shape, plan) in plans() {
        for launch in &plan {
            // Of a projection only the blocks of a row wait for each other, and those that cast for none.
            let (resident, most) = match launch.kernel {
                Kernel::Few { .. } | Kernel::FewInFp32 { .. } => ([Residency::Cooperative; 2], sms),
                Kernel::AttentionProj { .. } => (waiting, 4 * chip(sms).clusters[1]),
                Kernel::Gemm { gemm: Gemm::AttnProj, .. } => (waiting, sms),
                // The blocks of a cluster wait for each other, and those that cast for the others, which start before them.
                Kernel::QkvAttention { form } => {
                    ([Residency::Any; 2], qkv_attention::BLOCKS[form] * chip(sms).heads[form])
                }
                _ => ([Residency::Any; 2], usize::MAX),
            };
            let blocks: u32 = launch.grid.iter().product();
            assert_eq!(waiting.map(|waiting| launch.kernel.residency(waiting)), resident, "{launch:?}");
            assert!(blocks as usize <= most, "{shape:?} on {sms}: {launch:?}");
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
