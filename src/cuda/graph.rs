//! One forward as a CUDA graph: built once for a shape, pointed at other buffers when they change, launched in one call.
//! Six launches into a stream cost 16 to 22 us of host time on an H200, a graph of them 1.4 us.

use std::ptr;

use cudarc::driver::sys;

use super::addresses::{Addresses, Words, elsewhere};
use super::block::{self, Buffers, Shape};
use super::device::Device;
use super::driver::check;
use super::exact::sleep::{Sleep, Waker};
use super::launch::{Edge, Step, launch, raw};
use super::launchers::Company;
use super::lone::Lone;
use super::memory::fill;
use super::nodes::{add_empty_node, add_node, connect, name_on_device, parameters_of};
use super::workspace::AWAKE;
use crate::error::Error;
use crate::options::Stream;

/// Shapes whose graphs are kept.
const KEPT: usize = 16;
const _: () = assert!(KEPT * size_of::<u32>() <= AWAKE.end - AWAKE.start);

/// The calls of one workspace, the latest used first.
#[derive(Default)]
pub struct Graphs {
    kept: Vec<Kept>,
    /// Number of the latest call's, unless it failed. The first one on another goes by its graph, which fails where not all blocks have room.
    stream: Option<u64>,
}

struct Kept {
    key: Key,
    /// Below `KEPT`, and no other has it.
    number: usize,
    /// None until the shape comes a second time: building a graph costs more than launching plainly.
    ready: Option<Ready>,
}

/// A call of a shape that came before.
struct Ready {
    graph: Graph,
    /// Instead of it behind a call that is still running.
    lone: Option<Lone>,
}

/// What decides which kernels run.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Key {
    shape: Shape,
    aligned: bool,
    copies_x: bool,
    alone: bool,
}

impl Graphs {
    /// Enqueues one forward. `number` is that of the stream: CU_STREAM_PER_THREAD is another one in each thread, and a destroyed one's address comes again.
    /// Who has but one stream may give it any number.
    ///
    /// # Safety
    /// The device's context is current, and the buffers have the sizes that their comments say for this shape.
    pub unsafe fn run(
        &mut self,
        device: &'static Device,
        shape: Shape,
        buffers: &Buffers,
        (stream, number): (Stream, u64),
        company: Company,
    ) -> Result<(), Error> {
        let follows = company.follows && self.stream == Some(number);
        self.stream = None;
        // SAFETY: the caller's promise.
        unsafe { self.enqueue(device, shape, buffers, stream, Company { follows, ..company }) }?;
        self.stream = Some(number);
        Ok(())
    }

    unsafe fn enqueue(
        &mut self,
        device: &'static Device,
        shape: Shape,
        buffers: &Buffers,
        stream: Stream,
        Company { alone, follows }: Company,
    ) -> Result<(), Error> {
        let key = Key { shape, aligned: buffers.weights.is_multiple_of(16), copies_x: buffers.x_copy != 0, alone };
        let Some(place) = self.kept.iter().position(|kept| kept.key == key) else {
            self.kept.truncate(KEPT - 1);
            let number = (0..KEPT).find(|&n| self.kept.iter().all(|kept| kept.number != n)).unwrap_or(0);
            self.kept.insert(0, Kept { key, number, ready: None });
            let steps = block::forward(device, shape, buffers, alone)?;
            // SAFETY: the caller's promise.
            return unsafe { run_steps(&steps, stream) };
        };
        self.kept[..=place].rotate_right(1);
        let kept = &mut self.kept[0];
        let addresses = buffers.addresses();
        if let Some(ready) = &mut kept.ready {
            // SAFETY: the caller's promise.
            let outcome = unsafe { ready.launch_at(addresses, stream, follows) };
            if outcome.is_err() {
                // It may point at some buffers of this call and at some of the one before.
                kept.ready = None;
            }
            return outcome;
        }
        let steps_at = |addresses| block::forward(device, shape, &buffers.at(addresses), alone);
        let (steps, others) = (steps_at(addresses)?, steps_at(elsewhere(addresses)));
        let awake = buffers.parts.alarms + (AWAKE.start + kept.number * size_of::<u32>()) as u64;
        let sleep = block::sleep(device, shape, steps.len()).map(|sleep| (sleep, awake));
        let Some(words) = others.ok().and_then(|others| Words::find(&steps, addresses, &others, elsewhere(addresses)))
        else {
            // SAFETY: the caller's promise.
            return unsafe { run_steps(&steps, stream) };
        };
        let lone = match (&steps[..], block::early(device, shape)) {
            ([step], Some(priority)) if alone => Some(Lone::new(step.clone(), words.clone(), addresses, priority)),
            _ => None,
        };
        if sleep.is_some() {
            // Of a graph that had this number before: this one's exact kernel sleeps.
            fill(awake, 0, size_of::<u32>(), stream)?;
        }
        match Graph::new(device, steps.clone(), words, addresses, sleep, block::idle(device), stream) {
            // SAFETY: the caller's promise.
            Ok(graph) => unsafe { kept.ready.insert(Ready { graph, lone }).launch_at(addresses, stream, follows) },
            Err(fault) if fault.is_fault() => Err(fault),
            // There is no memory for it, for instance. SAFETY: the caller's promise.
            Err(_) => unsafe { run_steps(&steps, stream) },
        }
    }

    /// Forgets all of them: their workspace is going away. Nothing may be running any more.
    pub fn clear(&mut self) {
        self.kept.clear();
    }
}

impl Ready {
    /// Enqueues it for the buffers of a call. `follows`: as in [`Company`].
    ///
    /// # Safety
    /// As for [`Graphs::run`].
    unsafe fn launch_at(&mut self, addresses: Addresses, stream: Stream, follows: bool) -> Result<(), Error> {
        match &mut self.lone {
            // SAFETY: the caller's promise.
            Some(lone) if follows => unsafe { lone.launch_at(addresses, stream) },
            _ => self.graph.point_at(addresses).and_then(|()| self.graph.launch(stream)),
        }
    }
}

/// Enqueues steps one by one.
///
/// # Safety
/// As for [`launch`].
pub unsafe fn run_steps(steps: &[Step], stream: Stream) -> Result<(), Error> {
    // SAFETY: the caller's promise.
    steps.iter().try_for_each(|step| unsafe { launch(step, stream) })
}

/// A chain of launches. Where an exact kernel sleeps behind it, `steps` has what wakes that in its place.
struct Graph {
    device: &'static Device,
    steps: Vec<Step>,
    nodes: Vec<sys::CUgraphNode>,
    /// Where the steps hold addresses of the caller's, and which.
    words: Words,
    addresses: Addresses,
    template: sys::CUgraph,
    exec: sys::CUgraphExec,
}

// SAFETY: graphs are used by one thread at a time, under the lock of whoever owns the workspace.
unsafe impl Send for Graph {}

impl Graph {
    /// Of these steps, whose `words` hold the caller's `addresses`. `sleep`: how the last of them sleeps, and an address for its own use. `idle`: see
    /// [`block::idle`].
    fn new(
        device: &'static Device,
        mut steps: Vec<Step>,
        mut words: Words,
        addresses: Addresses,
        sleep: Option<(Sleep, u64)>,
        idle: Option<Step>,
        stream: Stream,
    ) -> Result<Self, Error> {
        let mut template = ptr::null_mut();
        // SAFETY: writes one graph.
        check("cuGraphCreate", unsafe { sys::cuGraphCreate(&mut template, 0) })?;
        let (nodes, exec) = (Vec::new(), ptr::null_mut());
        let (no_steps, no_words) = (Vec::new(), Words::default());
        let mut graph = Self { device, steps: no_steps, nodes, words: no_words, addresses, template, exec };
        let mut sleeper = None;
        if let (Some((sleep, awake)), Some(exact)) = (&sleep, steps.last()) {
            // Its node is the device's to change.
            let node = add_node(template, &Step { grid: [sleep.blocks, 1, 1], ..exact.clone() })?;
            // Whoever wakes it tells it the buffers.
            words.truncate(steps.len() - 1);
            sleep.replace(&mut steps, name_on_device(node)?, *awake);
            sleeper = Some(node);
        }
        let waker = sleep.map(|(sleep, _)| sleep.waker);
        for (number, step) in steps.iter().enumerate() {
            let node = add_node(template, step)?;
            let before = match waker {
                Some(Waker::Beside(_, before) | Waker::Ahead(_, before)) if number + 1 == steps.len() => Some(before),
                _ => number.checked_sub(1),
            };
            if let Some(before) = before {
                connect(template, graph.nodes[before], node, step.edge)?;
            }
            graph.nodes.push(node);
        }
        (graph.steps, graph.words) = (steps, words);
        let idle = match (sleeper, idle) {
            (Some(sleeper), _) => Some(sleeper),
            (None, Some(idle)) if graph.nodes.len() > 1 => Some(add_node(template, &idle)?),
            _ => None,
        };
        if let Some(idle) = idle {
            graph.end_behind(idle, waker)?;
        }
        // SAFETY: the graph was just built.
        check("cuGraphInstantiate", unsafe { sys::cuGraphInstantiateWithFlags(&mut graph.exec, template, 0) })?;
        if let Some(idle) = idle {
            // SAFETY: a node of this graph.
            check("cuGraphNodeSetEnabled", unsafe { sys::cuGraphNodeSetEnabled(graph.exec, idle, 0) })?;
            // What the device changes must be there before. SAFETY: an instantiated graph and the caller's live stream.
            check("cuGraphUpload", unsafe { sys::cuGraphUpload(graph.exec, raw(stream)) })?;
        }
        Ok(graph)
    }

    /// Ends the graph behind its last kernel and behind a node that is passed over, the exact kernel that sleeps or an idle one. The GPU passes over it while
    /// the last kernel still runs, so the end is another.
    fn end_behind(&self, idle: sys::CUgraphNode, waker: Option<Waker>) -> Result<(), Error> {
        let full = |before, after| connect(self.template, before, after, Edge::Full);
        let last = match (waker, &self.nodes[..]) {
            (Some(Waker::Beside(..)), &[.., product, waker]) => full(waker, idle).map(|()| product)?,
            (Some(Waker::Ahead(..)), &[.., product, waker]) => full(waker, product).map(|()| product)?,
            (_, &[.., last]) => last,
            _ => idle,
        };
        connect(self.template, last, idle, Edge::Programmatic)?;
        let end = add_empty_node(self.template)?;
        full(last, end)?;
        full(idle, end)
    }

    /// Points the launches at the buffers of another call. Those already enqueued keep theirs.
    fn point_at(&mut self, addresses: Addresses) -> Result<(), Error> {
        let (exec, nodes) = (self.exec, &self.nodes);
        self.words.follow(&mut self.steps, self.addresses, addresses, |number, step| {
            let mut pointers = step.arguments.pointers();
            let parameters = parameters_of(step, pointers.as_mut_ptr());
            // SAFETY: a node of this graph; the driver copies the parameters.
            let result = unsafe { sys::cuGraphExecKernelNodeSetParams_v2(exec, nodes[number], &parameters) };
            check("cuGraphExecKernelNodeSetParams", result)
        })?;
        self.addresses = addresses;
        Ok(())
    }

    fn launch(&self, stream: Stream) -> Result<(), Error> {
        // SAFETY: an instantiated graph and the caller's live stream.
        check("cuGraphLaunch", unsafe { sys::cuGraphLaunch(self.exec, raw(stream)) })
    }
}

impl Drop for Graph {
    fn drop(&mut self) {
        // A lost device has nothing left to free.
        let _ = self.device.run(|| {
            // SAFETY: owned by this value.
            unsafe {
                if !self.exec.is_null() {
                    sys::cuGraphExecDestroy(self.exec);
                }
                sys::cuGraphDestroy(self.template);
            }
            Ok(())
        });
    }
}
