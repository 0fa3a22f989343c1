//! The nodes and edges of a CUDA graph, as the driver takes them.

use std::ptr;

use cudarc::driver::sys;
use sys::CUlaunchAttributeID_enum as Attribute;

use super::driver::check;
use super::launch::{Edge, Residency, Step, cluster_of};
use crate::error::Error;

/// How the node of a step runs. `parameters` are pointers to its arguments, for as long as this is in use.
pub(super) fn parameters_of(step: &Step, parameters: *mut *mut std::ffi::c_void) -> sys::CUDA_KERNEL_NODE_PARAMS {
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

/// Adds the node of a step.
pub(super) fn add_node(graph: sys::CUgraph, step: &Step) -> Result<sys::CUgraphNode, Error> {
    let mut node = ptr::null_mut();
    let mut pointers = step.arguments.pointers();
    let parameters = parameters_of(step, pointers.as_mut_ptr());
    // SAFETY: the driver copies the parameters.
    let result = unsafe { sys::cuGraphAddKernelNode_v2(&mut node, graph, ptr::null(), 0, &parameters) };
    check(step.what, result)?;
    let set = |attribute, value: sys::CUkernelNodeAttrValue| {
        // SAFETY: the node was just added.
        check("cuGraphKernelNodeSetAttribute", unsafe { sys::cuGraphKernelNodeSetAttribute(node, attribute, &value) })
    };
    if step.pairs {
        set(
            Attribute::CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION,
            sys::CUkernelNodeAttrValue { clusterDim: cluster_of(2) },
        )?;
    }
    if step.residency == Residency::Cooperative {
        set(Attribute::CU_LAUNCH_ATTRIBUTE_COOPERATIVE, sys::CUkernelNodeAttrValue { cooperative: 1 })?;
    }
    Ok(node)
}

/// Adds a node that only waits for others.
pub(super) fn add_empty_node(graph: sys::CUgraph) -> Result<sys::CUgraphNode, Error> {
    let mut node = ptr::null_mut();
    // SAFETY: adds to a graph that is being built.
    check("cuGraphAddEmptyNode", unsafe { sys::cuGraphAddEmptyNode(&mut node, graph, ptr::null(), 0) })?;
    Ok(node)
}

/// Lets kernels of its graph enable the node, and give it parameters, by the handle that this returns.
pub(super) fn name_on_device(node: sys::CUgraphNode) -> Result<u64, Error> {
    // SAFETY: an attribute's value is plain numbers.
    let mut value: sys::CUkernelNodeAttrValue = unsafe { std::mem::zeroed() };
    value.deviceUpdatableKernelNode.deviceUpdatable = 1;
    let attribute = Attribute::CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE;
    // SAFETY: a kernel node of a graph that is being built.
    check("cuGraphKernelNodeSetAttribute", unsafe { sys::cuGraphKernelNodeSetAttribute(node, attribute, &value) })?;
    // SAFETY: the same node; writes one value.
    let result = unsafe { sys::cuGraphKernelNodeGetAttribute(node, attribute, &mut value) };
    check("cuGraphKernelNodeGetAttribute", result)?;
    // SAFETY: this attribute's member of the union.
    Ok(unsafe { value.deviceUpdatableKernelNode.devNode } as u64)
}

/// Has one node start behind another, as soon as the edge says.
pub(super) fn connect(
    graph: sys::CUgraph,
    before: sys::CUgraphNode,
    after: sys::CUgraphNode,
    edge: Edge,
) -> Result<(), Error> {
    // SAFETY: an edge is plain numbers; all zero is a full dependency.
    let mut data: sys::CUgraphEdgeData = unsafe { std::mem::zeroed() };
    if edge != Edge::Full {
        data.from_port = sys::CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC as u8;
        data.type_ = sys::CUgraphDependencyType_enum::CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC as u8;
    }
    // SAFETY: both nodes are of this graph.
    check("cuGraphAddDependencies", unsafe { sys::cuGraphAddDependencies_v2(graph, &before, &after, &data, 1) })
}
