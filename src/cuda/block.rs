//! The block on a GPU: the sequence of launches, each with its arguments.

use super::device::Device;
use super::launch::launch;
use super::plan::{Plan, Stage};
use super::workspace::{Parts, packed, vectors};
use crate::error::Error;
use crate::options::Stream;

/// What one forward reads and writes, all device addresses; x and output are 16-byte aligned.
#[derive(Clone, Copy, Debug)]
pub struct Buffers {
    /// (rows, D) float
    pub x: u64,
    /// (rows, D) float, may be x
    pub output: u64,
    /// The caller's weights; not read by a prepared plan.
    pub weights: u64,
    /// Rows of x.
    pub rows: usize,
    /// Tokens in a sequence.
    pub seq_len: usize,
    /// The workspace, with room for the rows.
    pub parts: Parts,
}

/// Enqueues the launches of `plan`. The device's context is current.
///
/// # Safety
/// The buffers have the sizes that their comments say for the shape that the plan was made for.
pub unsafe fn enqueue(device: &Device, plan: &Plan, buffers: &Buffers, stream: Stream) -> Result<(), Error> {
    let Buffers { x, output, weights, parts: w, .. } = *buffers;
    let (rows, seq_len) = (buffers.rows as u64, buffers.seq_len as u64);
    let matrix = |halves: usize| w.packed + 2 * halves as u64;
    let vector = |floats: usize| w.vectors + 4 * floats as u64;
    for step in plan.iter() {
        let arguments: &[u64] = match step.stage {
            Stage::Cast => &[weights, w.packed, w.vectors, 0, 0, 0],
            Stage::CastLayernorm1 => &[weights, w.packed, w.vectors, x, w.h, rows],
            Stage::Layernorm1 => &[x, vector(vectors::GAMMA1), vector(vectors::BETA1), w.h, rows],
            Stage::Qkv => &[w.h, matrix(packed::QKV_), vector(vectors::B_QKV), 0, w.qkv, rows],
            Stage::Attention => &[w.qkv, w.h, seq_len],
            Stage::AttnProj => &[w.h, matrix(packed::ATTN), vector(vectors::B_ATTN), x, w.x1, rows],
            Stage::Layernorm2 => &[w.x1, vector(vectors::GAMMA2), vector(vectors::BETA2), w.h, rows],
            Stage::Fc => &[w.h, matrix(packed::FC), vector(vectors::B_FC), 0, w.f, rows],
            Stage::Proj => &[w.f, matrix(packed::PROJ), vector(vectors::B_PROJ), w.x1, output, rows],
        };
        // SAFETY: the arguments are those in the signature of the stage's kernel, the sizes are the caller's promise.
        unsafe { launch(device.kernels.get(step.kernel), step, arguments, stream) }?;
    }
    Ok(())
}
