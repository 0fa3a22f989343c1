//! A block whose weights are cast once: what a handle is on a GPU.

use std::ptr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cudarc::driver::sys;

use super::alarms::Alarms;
use super::block::{self, Buffers, Shape, prepare};
use super::capture::{self, is_capturing};
use super::device::Device;
use super::driver::{Driver, check};
use super::event::Event;
use super::graph::{Graphs, run_steps};
use super::launch::{number_of, raw};
use super::launchers::{Company, End};
use super::memory::{Buffer, copy_in, copy_out, fill, staged, wait};
use super::pointer::{Place, check_access, common_place};
use super::workspace::{ALARMS_BYTES, Purpose, Workspace, vectors};
use crate::dims::D;
use crate::error::Error;
use crate::host;
use crate::options::{BlockOptions, Stream};
use crate::precision::SolvePrecision;
use crate::span::{Span, Tokens};

/// Prepared weights and the memory for `options.max_tokens` rows, all on one device.
pub struct Prepared {
    device: &'static Device,
    options: BlockOptions,
    workspace: Workspace,
    scratch: Buffer,
    order: Mutex<Order>,
}

/// The block's calls run one after the other, whatever their streams.
struct Order {
    /// Recorded behind the latest call.
    done: Arc<Event>,
    /// The number of the latest call's stream.
    stream: Option<u64>,
    /// The same of calls that go into a graph of the caller's.
    captured: capture::Latest,
    graphs: Graphs,
    /// Of the weights that the next call finds.
    alarms: Alarms,
    /// An update has failed half-way, and none has come through since: the next call would find some of its weights and some of those before.
    incomplete: bool,
}

/// What a call on host memory copies before and behind its launches: to memory of the device, and from there.
struct Staging<'a> {
    bring: (u64, &'a Span),
    fetch: Option<(&'a Span, u64)>,
}

/// What becomes of a call's launches.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Run {
    /// They go into the caller's graph.
    Captured,
    /// They go to a stream of this number.
    Now(u64, Company),
}

impl Prepared {
    /// Prepares the weights on their device, or on the one that the options name.
    pub fn create(driver: &'static Driver, weights: &Span, options: BlockOptions) -> Result<Self, Error> {
        let place = common_place(&[*weights])?.place;
        let device = match (options.device, place) {
            (Some(ordinal), _) | (None, Place::Device(ordinal) | Place::Managed(ordinal)) => driver.device(ordinal)?,
            (None, Place::Host) => driver.current_device()?,
        };
        // Before memory is taken and others' calls are waited for
        if is_on_host(device, &[*weights])? {
            host::check([weights])?;
        }
        Self::on(device, weights, options)
    }

    /// Prepares the weights on this device.
    pub fn on(device: &'static Device, weights: &Span, options: BlockOptions) -> Result<Self, Error> {
        device.run(|| {
            let workspace = Workspace::new(device, options.max_tokens, Purpose::Prepared(options.precision))?;
            let scratch = Buffer::new(device, "scratch for x and output", options.max_tokens * D * size_of::<f32>())?;
            let (done, alarms) = (Arc::new(Event::new(device)?), Alarms::new(device, options.precision)?);
            device.launchers.note_end(&done);
            let order = Mutex::new(Order {
                done,
                stream: None,
                captured: capture::Latest::default(),
                graphs: Graphs::default(),
                alarms,
                incomplete: false,
            });
            let prepared = Self { device, options, workspace, scratch, order };
            prepared.update(weights, Stream::LEGACY)?;
            wait(Stream::LEGACY)?;
            device.launchers.leave_legacy()?;
            Ok(prepared)
        })
    }

    /// Casts other weights into the block.
    pub fn update(&self, weights: &Span, stream: Stream) -> Result<(), Error> {
        let on_host = is_on_host(self.device, &[*weights])?;
        if on_host {
            host::check([weights])?;
        }
        self.device.run(|| {
            let (mut copy, mut source) = (None, *weights);
            if on_host {
                refuse_capture(stream, "weights")?;
                let copy = copy.insert(Buffer::new(self.device, "scratch for the weights", weights.bytes)?);
                source.address = copy.address() as usize;
            }
            let staging = copy.as_ref().map(|copy| Staging { bring: (copy.address(), weights), fetch: None });
            self.in_order(stream, staging, |stream, order, run| {
                order.alarms.forget(run == Run::Captured);
                if run == Run::Captured {
                    return self.prepare(&source, stream);
                }
                order.incomplete = true;
                self.prepare(&source, stream)?;
                order.alarms.copy(self.workspace.parts().alarms, stream)?;
                order.incomplete = false;
                Ok(())
            })
        })
    }

    /// Enqueues the casts of weights that are on the device.
    fn prepare(&self, weights: &Span, stream: Stream) -> Result<(), Error> {
        let parts = self.workspace.parts();
        // What was unusual about the weights before is no longer.
        fill(parts.alarms, 0, ALARMS_BYTES, stream)?;
        let buffers = Buffers::of_weights(weights.address as u64, parts);
        // SAFETY: the weights were checked for their length, a preparation touches nothing of x and output.
        unsafe { run_steps(&prepare(self.device, self.shape(0, 0, None), &buffers)?, stream) }?;
        if parts.vectors == 0 {
            return Ok(());
        }
        // gamma1 and beta1 are the first of the weights.
        let layernorm1 = Span { bytes: 2 * D * size_of::<f32>(), ..*weights };
        copy_in(parts.vectors + 4 * vectors::GAMMA1 as u64, &layernorm1, stream)
    }

    /// Enqueues one forward.
    pub fn forward(&self, tokens: &Tokens, stream: Stream) -> Result<(), Error> {
        let on_host = is_on_host(self.device, &[tokens.x, tokens.output])?;
        if on_host {
            host::check([&tokens.x, &tokens.output])?;
        }
        tokens.check_overlap(None)?;
        let parts = self.workspace.parts();
        self.device
            .run(|| {
                let scratch = self.scratch.address();
                let staging = Staging { bring: (scratch, &tokens.x), fetch: Some((&tokens.output, scratch)) };
                if on_host {
                    refuse_capture(stream, "x and output")?;
                }
                self.in_order(stream, on_host.then_some(staging), |stream, order, run| {
                    if order.incomplete {
                        return Err(Error::Incomplete);
                    }
                    // A captured graph may be launched on any later weights, of which exact is always right.
                    let must_rescue = order.alarms.must_rescue().filter(|&must| must || run != Run::Captured);
                    let shape = self.shape(tokens.batch, tokens.seq_len, must_rescue);
                    staged(tokens, on_host, scratch, stream, |x, output| {
                        let buffers = Buffers::new(x, output, 0, &shape, parts);
                        // SAFETY: the caller's spans were checked for their length, the rows are at most max_tokens.
                        unsafe {
                            match run {
                                Run::Captured => capture::run(self.device, shape, &buffers, stream),
                                Run::Now(number, company) => {
                                    order.graphs.run(self.device, shape, &buffers, (stream, number), company)
                                }
                            }
                        }
                    })
                })
            })
            .inspect_err(|error| {
                if on_host {
                    host::spoil(tokens, error);
                }
            })
    }

    /// Launches that a forward would make now, uncaptured.
    pub fn launches(&self, batch: usize, seq_len: usize) -> Result<usize, Error> {
        self.device.run(|| {
            let shape = self.shape(batch, seq_len, self.order().alarms.must_rescue());
            let (x, parts) = (self.scratch.address(), self.workspace.parts());
            let buffers = Buffers::new(x, x, 0, &shape, parts);
            Ok(block::forward(self.device, shape, &buffers, true)?.len())
        })
    }

    /// `must_rescue`: whether the fast result must be computed again; None: the device is to decide.
    fn shape(&self, batch: usize, seq_len: usize, must_rescue: Option<bool>) -> Shape {
        let BlockOptions { causal, precision, .. } = self.options;
        let rescued = must_rescue == Some(true) && precision != SolvePrecision::Exact;
        let precision = if rescued { SolvePrecision::Exact } else { precision };
        let guarded = must_rescue.is_none() && precision != SolvePrecision::Exact;
        Shape { batch, seq_len, causal, prepared: true, precision, guarded, rescued }
    }

    fn order(&self) -> MutexGuard<'_, Order> {
        self.order.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The options that it was created with.
    #[must_use]
    pub fn options(&self) -> &BlockOptions {
        &self.options
    }

    /// Runs `enqueue` behind the block's latest call, and waits for it where arguments are on the host, but so that other launchers need not. Into a
    /// capturing stream, of which it is told, it goes as it is, without graphs of ours: a graph's launches are ordered by its owner.
    fn in_order(
        &self,
        stream: Stream,
        staging: Option<Staging<'_>>,
        enqueue: impl FnOnce(Stream, &mut Order, Run) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let mut order = self.order();
        let launchers = &self.device.launchers;
        if is_capturing(stream)? {
            check_whole(stream)?;
            launchers.capture();
            order.captured.precede(stream)?;
            let enqueued = enqueue(stream, &mut order, Run::Captured);
            return enqueued.and(order.captured.end(stream));
        }
        let number = number_of(stream)?;
        if order.stream != Some(number) {
            check_whole(stream)?;
            if order.stream.is_some() {
                order.done.precede(stream)?;
            }
        }
        order.stream = Some(number);
        let done = Arc::clone(&order.done);
        let end = End { event: &done, always: true };
        let launch =
            || launchers.enqueue(stream, end, |company| enqueue(stream, &mut order, Run::Now(number, company)));
        let Some(Staging { bring: (to, from), fetch }) = staging else { return launch() };
        let enqueued = copy_in(to, from, stream)
            .and_then(|()| launch())
            .and_then(|()| fetch.map_or(Ok(()), |(to, from)| copy_out(to, from, stream)));
        // After a failure too: a copy may be reading the caller's memory.
        enqueued.and(wait(stream))
    }
}

impl Drop for Prepared {
    fn drop(&mut self) {
        let order = self.order.get_mut().unwrap_or_else(PoisonError::into_inner);
        // On a lost device there is nothing to wait for. For launches of captured graphs, which no event of ours is behind, the driver waits when the
        // workspace is freed (`destroy_behind_a_graph`): to ask for that would spoil captures.
        let _ = self.device.run(|| order.done.wait());
    }
}

/// Whether a block's arguments are on the host. Elsewhere than on its device they are an error.
fn is_on_host(device: &Device, spans: &[Span]) -> Result<bool, Error> {
    let common = common_place(spans)?;
    match common.place {
        Place::Host => return Ok(true),
        Place::Device(ordinal) if ordinal != device.ordinal => {
            let block = format!("device {}", device.ordinal);
            return Err(Error::Elsewhere { argument: common.argument, place: common.place.to_string(), block });
        }
        _ if device.is_of(common.usable_in) => {}
        _ => device.run(|| check_access(spans))?,
    }
    Ok(false)
}

fn refuse_capture(stream: Stream, arguments: &str) -> Result<(), Error> {
    if !is_capturing(stream)? {
        return Ok(());
    }
    let why = "only calls on device or managed memory can be captured";
    Err(Error::Unsupported(format!("stream is being captured, but {arguments} are on the host: {why}")))
}

/// Blocks of a grid wait for each other, and are as many as the device has places for: where only a part of it is to be had they would wait for ever.
fn check_whole(stream: Stream) -> Result<(), Error> {
    let mut context = ptr::null_mut();
    // SAFETY: the caller's live stream; writes one pointer.
    check("cuStreamGetGreenCtx", unsafe { sys::cuStreamGetGreenCtx(raw(stream), &mut context) })?;
    if context.is_null() {
        return Ok(());
    }
    let text =
        "stream is of a green context, which has a part of the device's multiprocessors; a block needs all of them";
    Err(Error::Unsupported(text.into()))
}
