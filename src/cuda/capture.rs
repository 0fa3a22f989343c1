//! A forward in the caller's own graph: launched step by step into the stream that is being captured.

use std::{ptr, slice};

use cudarc::driver::sys;

use super::block::{self, Buffers, Shape};
use super::device::Device;
use super::driver::check;
use super::launch::{Edge, launch, raw};
use crate::error::Error;
use crate::options::Stream;

/// Whether what is enqueued there becomes part of a graph.
pub fn is_capturing(stream: Stream) -> Result<bool, Error> {
    let mut status = sys::CUstreamCaptureStatus_enum::CU_STREAM_CAPTURE_STATUS_NONE;
    // SAFETY: writes one status.
    check("cuStreamIsCapturing", unsafe { sys::cuStreamIsCapturing(raw(stream), &mut status) })?;
    Ok(status != sys::CUstreamCaptureStatus_enum::CU_STREAM_CAPTURE_STATUS_NONE)
}

/// Captures of which a block knows its latest call: of more, those it served the longest ago are forgotten.
const KEPT: usize = 16;

/// The latest call of a block in each capture, the latest of all first. Streams of one capture that fork know nothing of each other, nor do captures into one
/// graph, so the block's next call is told to follow.
#[derive(Default)]
pub struct Latest(Vec<End>);

struct End {
    graph: Graph,
    stream: Stream,
    /// Those that end the call.
    nodes: Vec<sys::CUgraphNode>,
}

// SAFETY: nodes of a graph of the caller's, by which a call there may be ordered from any thread.
unsafe impl Send for End {}

/// A graph that is being captured. Its address may be another's later, its number never is, and is the same in all captures into it (driver 580).
#[derive(Clone, Copy, PartialEq, Eq)]
struct Graph {
    number: u64,
    address: usize,
}

impl Latest {
    /// What is enqueued on the stream from now on runs after the latest call in the same graph.
    pub fn precede(&self, stream: Stream) -> Result<(), Error> {
        let (graph, before) = info(stream)?;
        let Some(end) = self.0.iter().find(|end| end.graph == graph) else { return Ok(()) };
        let follows = end.stream == stream && stream != Stream::PER_THREAD && !before.is_empty();
        if follows {
            return Ok(());
        }
        let mut nodes: Vec<_> = end.nodes.iter().copied().filter(|node| !before.contains(node)).collect();
        if nodes.is_empty() { Ok(()) } else { follow_also(stream, &mut nodes) }
    }

    /// It ends here now.
    pub fn end(&mut self, stream: Stream) -> Result<(), Error> {
        let (graph, nodes) = info(stream)?;
        self.0.retain(|end| end.graph != graph);
        self.0.truncate(KEPT - 1);
        self.0.insert(0, End { graph, stream, nodes });
        Ok(())
    }
}

/// Enqueues one forward. Behind a kernel it begins while that ends: from call to call 0.45 us less at 1 to 32 rows, 0.1 to 0.3 above (H200, 20 calls of a
/// handle in a graph).
///
/// # Safety
/// As for [`Graphs::run`](super::graph::Graphs::run).
pub unsafe fn run(device: &Device, shape: Shape, buffers: &Buffers, stream: Stream) -> Result<(), Error> {
    for step in block::captured(device, shape, buffers)? {
        let mut before = if step.edge == Edge::Beside { info(stream)?.1 } else { Vec::new() };
        // SAFETY: the caller's promise.
        unsafe { launch(&step, stream) }?;
        if !before.is_empty() {
            follow_also(stream, &mut before)?;
        }
    }
    Ok(())
}

/// The graph that the stream is captured into, and those of its nodes that what comes next on the stream is to follow.
fn info(stream: Stream) -> Result<(Graph, Vec<sys::CUgraphNode>), Error> {
    let mut status = sys::CUstreamCaptureStatus_enum::CU_STREAM_CAPTURE_STATUS_NONE;
    let (mut number, mut graph) = (0, ptr::null_mut());
    let (mut nodes, mut edges, mut count) = (ptr::null(), ptr::null(), 0);
    // SAFETY: writes one of each.
    let result = unsafe {
        sys::cuStreamGetCaptureInfo_v3(
            raw(stream),
            &mut status,
            &mut number,
            &mut graph,
            &mut nodes,
            &mut edges,
            &mut count,
        )
    };
    check("cuStreamGetCaptureInfo", result)?;
    let graph = Graph { number, address: graph.addr() };
    if count == 0 {
        return Ok((graph, Vec::new()));
    }
    // SAFETY: the driver's, until the next call that takes the stream.
    Ok((graph, unsafe { slice::from_raw_parts(nodes, count) }.to_vec()))
}

/// Has what comes next follow these nodes, too.
fn follow_also(stream: Stream, nodes: &mut [sys::CUgraphNode]) -> Result<(), Error> {
    let flags = sys::CUstreamUpdateCaptureDependencies_flags_enum::CU_STREAM_ADD_CAPTURE_DEPENDENCIES as u32;
    // SAFETY: nodes of the stream's graph, by full edges.
    let result = unsafe {
        sys::cuStreamUpdateCaptureDependencies_v2(raw(stream), nodes.as_mut_ptr(), ptr::null(), nodes.len(), flags)
    };
    check("cuStreamUpdateCaptureDependencies", result)
}
