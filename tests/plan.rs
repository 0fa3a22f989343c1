//! The plan needs no GPU: every row is computed once, on grids that a GPU can launch, in the memory that was promised.

use std::io::Write;

use solve::cuda::arch::Arch;
use solve::cuda::block::Shape;
use solve::cuda::portable::plan::{self, Gemm, Kernel, Launch, Stage, TILES};
use solve::cuda::workspace::Workspace;
use solve::precision::SolvePrecision;

/// H100 PCIe (older), H100 PCIe, H100/H200 SXM, GH100 in full.
const SMS: [usize; 4] = [78, 114, 132, 144];

/// Every size to 300, then the edges of every tile, then large ones.
fn sizes() -> impl Iterator<Item = usize> {
    let edges = (320..=4224).step_by(16).flat_map(|size| [size - 1, size, size + 1]);
    (1..=300).chain(edges).chain([8192, 10_007, 131_072, 1 << 20])
}

fn plans() -> impl Iterator<Item = (Arch, Shape, [Launch; 7])> {
    let shapes = sizes().flat_map(|seq_len| {
        [(1, false, false), (1, true, true), (3, false, true)].map(|(batch, causal, prepared)| Shape {
            batch,
            seq_len,
            causal,
            prepared,
            precision: SolvePrecision::Fast,
            guarded: true,
            rescued: false,
        })
    });
    shapes.flat_map(|shape| {
        [Arch::Sm75, Arch::Sm80]
            .into_iter()
            .flat_map(move |arch| SMS.into_iter().map(move |sms| (arch, shape, plan::forward(arch, sms, shape))))
    })
}

#[test]
fn stages_come_in_the_order_of_the_block() {
    use Stage::{Attention, AttnProj, CastLayernorm1, Fc, Layernorm1, Layernorm2, Proj, Qkv};
    for (_, shape, plan) in plans() {
        let first = if shape.prepared { Layernorm1 } else { CastLayernorm1 };
        let stages: Vec<Stage> = plan.iter().map(|launch| launch.stage).collect();
        assert_eq!(stages, [first, Qkv, Attention, AttnProj, Layernorm2, Fc, Proj]);
    }
}

#[test]
fn every_row_has_exactly_one_block() {
    for (arch, shape, plan) in plans() {
        let rows = shape.batch * shape.seq_len;
        for launch in plan.iter() {
            let what = format!("{arch:?} {shape:?} {launch:?}");
            let [x, y, z] = launch.grid.map(|blocks| blocks as usize);
            match launch.kernel {
                Kernel::Gemm { gemm, tile } => {
                    let (tile, columns) = (TILES[tile], gemm.columns());
                    assert_eq!(columns % tile.n, 0, "{what}");
                    assert_eq!(x, rows.div_ceil(tile.m) * (columns / tile.n), "{what}");
                    assert_eq!((y, z), (1, 1), "{what}");
                }
                Kernel::Attention { causal } => {
                    assert_eq!((x, y, z), (shape.seq_len.div_ceil(128), 12, shape.batch), "{what}");
                    assert_eq!(causal, shape.causal);
                }
                Kernel::Layernorm => assert_eq!((x, y, z), (rows.div_ceil(8), 1, 1), "{what}"),
                Kernel::CastLayernorm => assert!(x > rows.div_ceil(8) && (y, z) == (1, 1), "{what}"),
            }
        }
    }
}

#[test]
fn every_launch_is_one_that_a_gpu_accepts() {
    let fits = |launch: &Launch, shared: u32| {
        let [x, y, z] = launch.grid;
        let grid = (1..1 << 31).contains(&x) && (1..65_536).contains(&y) && (1..65_536).contains(&z);
        grid && launch.threads.is_multiple_of(32) && launch.threads <= 1024 && launch.shared <= shared
    };
    for (arch, shape, plan) in plans() {
        // What a block may have on sm_75, and on sm_86, the smallest of the 8.x.
        let shared = if arch == Arch::Sm75 { 64 << 10 } else { 99 << 10 };
        for launch in plan.iter() {
            assert!(fits(launch, shared), "{arch:?} {shape:?} {launch:?}");
        }
    }
}

#[test]
fn a_large_product_fills_the_gpu_and_a_small_one_uses_low_tiles() {
    let launch_of = |arch, sms, seq_len, stage| {
        let precision = SolvePrecision::Fast;
        let shape =
            Shape { batch: 1, seq_len, causal: false, prepared: false, precision, guarded: true, rescued: false };
        let plan = plan::forward(arch, sms, shape);
        let launch = plan.iter().find(|launch| launch.stage == stage).expect("every stage");
        match launch.kernel {
            Kernel::Gemm { tile, .. } => (TILES[tile], launch.grid[0] as usize),
            other => panic!("{other:?} is no product"),
        }
    };
    for arch in [Arch::Sm75, Arch::Sm80] {
        for sms in SMS {
            for stage in [Stage::Qkv, Stage::Fc, Stage::Proj, Stage::AttnProj] {
                let (tile, blocks) = launch_of(arch, sms, 1, stage);
                assert!(tile.m <= 32 && blocks >= 12, "{tile:?} x {blocks} for one token");
                let (tile, blocks) = launch_of(arch, sms, 4096, stage);
                assert!(tile.m == 128 && 10 * blocks >= 7 * sms, "{tile:?} x {blocks} on {sms} SMs");
            }
        }
    }
    assert_eq!(Gemm::ALL.map(Gemm::columns), [2304, 768, 3072, 768]);
}

#[test]
fn the_workspace_is_linear_and_within_its_bound() {
    for rows in sizes() {
        let scratch = rows * 768 * 4;
        assert!(Workspace::bytes(rows) + scratch <= rows * (28 << 10) + (108 << 20), "{rows} rows");
        let more = Workspace::bytes(rows + 128) - Workspace::bytes(rows);
        // A few rows need less than the others.
        if rows > 64 {
            assert!(more <= 128 * (25 << 10), "{rows} rows");
        }
    }
}

#[test]
fn a_gpu_runs_the_latest_family_that_is_for_it() {
    if Arch::built_in().count() < Arch::ALL.len() {
        let _ = writeln!(std::io::stderr(), "\nskipped: this build leaves architectures out");
        return;
    }
    let (sm75, sm80, sm90a) = (Some(Arch::Sm75), Some(Arch::Sm80), Some(Arch::Sm90a));
    let best = |capability| Arch::best_for(capability, 132);
    let gpus = [(7, 0), (7, 5), (8, 0), (8, 9), (9, 0), (10, 0), (12, 0)];
    assert_eq!(gpus.map(best), [None, sm75, sm80, sm80, sm90a, sm80, sm80]);
    // By machine code of its own generation, and by PTX on later ones.
    for (arch, capability, ptx) in [
        (Arch::Sm75, (7, 5), false),
        (Arch::Sm75, (8, 0), true),
        (Arch::Sm80, (8, 9), false),
        (Arch::Sm80, (9, 0), true),
        (Arch::Sm80, (10, 0), true),
        (Arch::Sm90a, (9, 0), false),
    ] {
        let mut images = arch.images(capability).peekable();
        assert!(images.peek().is_some() && images.all(|image| image.ptx == ptx), "{arch:?} on {capability:?}");
    }
}

/// Tiles hang over the last row, and x of a call in place is copied.
#[test]
fn the_workspace_has_room_for_whole_tiles_and_a_copy_of_x() {
    for rows in [257_usize, 300, 383, 1025] {
        let whole = rows.next_multiple_of(128);
        assert_eq!(Workspace::bytes(whole) - Workspace::bytes(rows), (whole - rows) * 768 * 4, "{rows} rows");
    }
}

/// A tile with few blocks leaves multiprocessors idle, and one with a few more than there are of these needs another wave for them.
#[test]
fn waves_of_blocks_choose_the_tile() {
    let shape = |seq_len| {
        let (precision, guarded) = (SolvePrecision::Fast, true);
        Shape { batch: 1, seq_len, causal: false, prepared: false, precision, guarded, rescued: false }
    };
    // Rows and columns of the tiles on 132 multiprocessors: QKV, the attention projection, FC, proj.
    for (rows, tiles) in [
        (16, [(16, 32), (16, 32), (16, 32), (16, 32)]),
        (512, [(128, 96), (64, 64), (128, 96), (64, 64)]),
        (1024, [(128, 192), (64, 96), (128, 192), (64, 96)]),
        (1025, [(128, 192), (128, 96), (128, 96), (128, 96)]),
    ] {
        let plan = plan::forward(Arch::Sm80, 132, shape(rows));
        let of = |launch: &Launch| match launch.kernel {
            Kernel::Gemm { tile, .. } => Some((TILES[tile].m, TILES[tile].n)),
            _ => None,
        };
        assert_eq!(plan.iter().filter_map(of).collect::<Vec<_>>(), tiles, "{rows} rows");
    }
}
