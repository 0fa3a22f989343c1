//! One forward as a CUDA graph: built once for a shape, pointed at other buffers when they change, launched in one call.
//! Six launches into a stream cost 16 to 22 us of host time on an H200, a graph of them 1.4 us (measured.md).

use std::ptr;

use cudarc::driver::sys;

use super::block::{self, Buffers, Shape};
use super::device::Device;
use super::driver::check;
use super::launch::{Edge, Step, launch, raw};
use super::tensor_map::Maps;
use crate::error::Error;
use crate::options::Stream;

/// Shapes whose graphs are kept.
const KEPT: usize = 16;

/// The graphs of one workspace, the latest used first.
#[derive(Default)]
pub struct Graphs(Vec<Kept>);

struct Kept {
    key: Key,
    buffers: Buffers,
    maps: Maps,
    /// None until the shape comes a second time: building one costs more than launching plainly.
    graph: Option<Graph>,
}

/// What decides which kernels run.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Key {
    shape: Shape,
    aligned: bool,
    alone: bool,
}

impl Graphs {
    /// Enqueues one forward.
    ///
    /// # Safety
    /// The device's context is current, and the buffers have the sizes that their comments say for this shape.
    pub unsafe fn run(
        &mut self,
        device: &Device,
        shape: Shape,
        buffers: &Buffers,
        stream: Stream,
    ) -> Result<(), Error> {
        // SAFETY: the caller's promise.
        device.launchers.enqueue(|alone| unsafe { self.run_beside(device, shape, buffers, stream, alone) })
    }

    /// # Safety
    /// As for [`Graphs::run`].
    unsafe fn run_beside(
        &mut self,
        device: &Device,
        shape: Shape,
        buffers: &Buffers,
        stream: Stream,
        alone: bool,
    ) -> Result<(), Error> {
        let key = Key { shape, aligned: buffers.weights.is_multiple_of(16), alone };
        let Some(place) = self.0.iter().position(|kept| kept.key == key) else {
            self.0.truncate(KEPT - 1);
            self.0.insert(0, Kept { key, buffers: *buffers, maps: Maps::default(), graph: None });
            let steps = block::forward(device, shape, buffers, &mut self.0[0].maps, alone)?;
            // SAFETY: the caller's promise.
            return unsafe { run_steps(&steps, stream) };
        };
        self.0[..=place].rotate_right(1);
        let kept = &mut self.0[0];
        match &mut kept.graph {
            Some(_) if kept.buffers == *buffers => {}
            Some(graph) => graph.point_at(block::forward(device, shape, buffers, &mut kept.maps, alone)?)?,
            None => kept.graph = Some(Graph::new(block::forward(device, shape, buffers, &mut kept.maps, alone)?)?),
        }
        kept.buffers = *buffers;
        kept.graph.as_ref().map_or(Ok(()), |graph| graph.launch(stream))
    }

    /// Forgets all of them: their workspace is going away. Nothing may be running any more.
    pub fn clear(&mut self) {
        self.0.clear();
    }
}

/// Enqueues one forward launch by launch, for a stream that is being captured into the caller's own graph.
///
/// # Safety
/// As for [`Graphs::run`].
pub unsafe fn run_plainly(device: &Device, shape: Shape, buffers: &Buffers, stream: Stream) -> Result<(), Error> {
    // Who else is there when the caller's graph is launched?
    let steps = block::forward(device, shape, buffers, &mut Maps::default(), false)?;
    // SAFETY: the caller's promise.
    unsafe { run_steps(&steps, stream) }
}

/// Enqueues steps one by one.
///
/// # Safety
/// As for [`launch`].
pub unsafe fn run_steps(steps: &[Step], stream: Stream) -> Result<(), Error> {
    // SAFETY: the caller's promise.
    steps.iter().try_for_each(|step| unsafe { launch(step, stream) })
}

/// A chain of launches.
struct Graph {
    steps: Vec<Step>,
    nodes: Vec<sys::CUgraphNode>,
    template: sys::CUgraph,
    exec: sys::CUgraphExec,
}

// SAFETY: graphs are used by one thread at a time, under the lock of whoever owns the workspace.
unsafe impl Send for Graph {}

impl Graph {
    fn new(steps: Vec<Step>) -> Result<Self, Error> {
        let mut template = ptr::null_mut();
        // SAFETY: writes one graph.
        check("cuGraphCreate", unsafe { sys::cuGraphCreate(&mut template, 0) })?;
        let mut graph = Self { steps, nodes: Vec::new(), template, exec: ptr::null_mut() };
        for step in &graph.steps {
            let node = add_node(template, step)?;
            if let Some(&before) = graph.nodes.last() {
                connect(template, before, node, step.edge)?;
            }
            graph.nodes.push(node);
        }
        // SAFETY: the graph was just built.
        check("cuGraphInstantiate", unsafe { sys::cuGraphInstantiateWithFlags(&mut graph.exec, template, 0) })?;
        Ok(graph)
    }

    /// Gives each launch whose parameters changed its new ones. Launches already enqueued keep theirs.
    fn point_at(&mut self, steps: Vec<Step>) -> Result<(), Error> {
        for ((old, new), &node) in self.steps.iter_mut().zip(steps).zip(&self.nodes) {
            if *old == new {
                continue;
            }
            *old = new;
            let mut pointers = old.arguments.pointers();
            let parameters = node_parameters(old, pointers.as_mut_ptr());
            // SAFETY: a node of this graph; the driver copies the parameters.
            let result = unsafe { sys::cuGraphExecKernelNodeSetParams_v2(self.exec, node, &parameters) };
            check("cuGraphExecKernelNodeSetParams", result)?;
        }
        Ok(())
    }

    fn launch(&self, stream: Stream) -> Result<(), Error> {
        // SAFETY: an instantiated graph and the caller's live stream.
        check("cuGraphLaunch", unsafe { sys::cuGraphLaunch(self.exec, raw(stream)) })
    }
}

impl Drop for Graph {
    fn drop(&mut self) {
        // SAFETY: owned by this value. Of a lost device there is nothing left to free, so results do not matter.
        unsafe {
            if !self.exec.is_null() {
                sys::cuGraphExecDestroy(self.exec);
            }
            sys::cuGraphDestroy(self.template);
        }
    }
}

fn node_parameters(step: &Step, parameters: *mut *mut std::ffi::c_void) -> sys::CUDA_KERNEL_NODE_PARAMS {
    sys::CUDA_KERNEL_NODE_PARAMS {
        func: step.function.0,
        gridDimX: step.grid[0],
        gridDimY: step.grid[1],
        gridDimZ: step.grid[2],
        blockDimX: step.threads,
        blockDimY: 1,
        blockDimZ: 1,
        sharedMemBytes: step.shared,
        kernelParams: parameters,
        extra: ptr::null_mut(),
        kern: ptr::null_mut(),
        ctx: ptr::null_mut(),
    }
}

fn add_node(graph: sys::CUgraph, step: &Step) -> Result<sys::CUgraphNode, Error> {
    let mut node = ptr::null_mut();
    let mut pointers = step.arguments.pointers();
    let parameters = node_parameters(step, pointers.as_mut_ptr());
    // SAFETY: the driver copies the parameters.
    let result = unsafe { sys::cuGraphAddKernelNode_v2(&mut node, graph, ptr::null(), 0, &parameters) };
    check(step.what, result)?;
    if step.cooperative {
        // SAFETY: an attribute's value is plain numbers.
        let mut value: sys::CUkernelNodeAttrValue = unsafe { std::mem::zeroed() };
        value.cooperative = 1;
        let attribute = sys::CUlaunchAttributeID_enum::CU_LAUNCH_ATTRIBUTE_COOPERATIVE;
        // SAFETY: the node was just added.
        check("cuGraphKernelNodeSetAttribute", unsafe { sys::cuGraphKernelNodeSetAttribute(node, attribute, &value) })?;
    }
    Ok(node)
}

fn connect(graph: sys::CUgraph, before: sys::CUgraphNode, after: sys::CUgraphNode, edge: Edge) -> Result<(), Error> {
    // SAFETY: an edge is plain numbers; all zero is a full dependency.
    let mut data: sys::CUgraphEdgeData = unsafe { std::mem::zeroed() };
    if edge != Edge::Full {
        data.from_port = sys::CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC as u8;
        data.type_ = sys::CUgraphDependencyType_enum::CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC as u8;
    }
    // SAFETY: both nodes are of this graph.
    check("cuGraphAddDependencies", unsafe { sys::cuGraphAddDependencies_v2(graph, &before, &after, &data, 1) })
}
