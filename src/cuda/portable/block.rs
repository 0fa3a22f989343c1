//! The portable block: each launch of the plan with its arguments.

use super::kernels::Kernels;
use super::plan::{Launch, Stage};
use crate::cuda::block::Buffers;
use crate::cuda::launch::{Arguments, Edge, Residency, Step};
use crate::cuda::workspace::{packed, vectors};

/// The steps of `plan` on these buffers.
#[must_use]
pub fn steps(kernels: &Kernels, plan: &[Launch], buffers: &Buffers) -> Vec<Step> {
    let Buffers { x, output, weights, x_copy, parts: w, .. } = *buffers;
    let (rows, seq_len) = (buffers.rows as u64, buffers.seq_len as u64);
    let matrix = |halves: usize| w.packed + 2 * halves as u64;
    let vector = |floats: usize| w.vectors + 4 * floats as u64;
    let arguments = |stage| match stage {
        // Prepared weights raise their alarms as the exact kernel splits them.
        Stage::Cast => Arguments::each(&[weights, w.packed, w.vectors, 0, 0, 0, 0, 0]),
        Stage::CastLayernorm1 => Arguments::each(&[weights, w.packed, w.vectors, x, w.h, rows, w.alarms, x_copy]),
        Stage::Layernorm1 => Arguments::each(&[x, vector(vectors::GAMMA1), vector(vectors::BETA1), w.h, rows, x_copy]),
        Stage::Qkv => Arguments::each(&[w.h, matrix(packed::QKV_), vector(vectors::B_QKV), 0, w.qkv, rows]),
        Stage::Attention => Arguments::each(&[w.qkv, w.h, seq_len]),
        Stage::AttnProj => Arguments::each(&[w.h, matrix(packed::ATTN), vector(vectors::B_ATTN), x, w.x1, rows]),
        Stage::Layernorm2 => Arguments::each(&[w.x1, vector(vectors::GAMMA2), vector(vectors::BETA2), w.h, rows, 0]),
        Stage::Fc => Arguments::each(&[w.h, matrix(packed::FC), vector(vectors::B_FC), 0, w.f, rows]),
        Stage::Proj => Arguments::each(&[w.f, matrix(packed::PROJ), vector(vectors::B_PROJ), w.x1, output, rows]),
    };
    plan.iter()
        .map(|launch| Step {
            what: launch.stage.what(),
            function: kernels.get(launch.kernel),
            grid: launch.grid,
            threads: launch.threads,
            shared: launch.shared,
            pairs: false,
            edge: Edge::Full,
            residency: Residency::Any,
            arguments: arguments(launch.stage),
        })
        .collect()
}
