//! A block whose weights are cast once: what a handle is on a GPU.

use std::ptr;
use std::sync::{Mutex, PoisonError};

use cudarc::driver::sys;

use super::block::{Buffers, Shape, prepare};
use super::device::Device;
use super::driver::{Driver, check};
use super::graph::{Graphs, run_plainly, run_steps};
use super::launch::raw;
use super::memory::{Buffer, copy_in, fill, staged, wait};
use super::pointer::{Place, common_place};
use super::workspace::{ALARMS_BYTES, Purpose, Workspace, vectors};
use crate::dims::D;
use crate::error::Error;
use crate::host;
use crate::options::{BlockOptions, Stream};
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
    done: Event,
    /// The driver's never reused number of the latest call's stream.
    stream: Option<u64>,
    graphs: Graphs,
}

struct Event(sys::CUevent);
// SAFETY: an event may be used from any thread.
unsafe impl Send for Event {}

impl Prepared {
    /// Prepares the weights on their device, or on the one that the options name.
    pub fn create(driver: &'static Driver, weights: &Span, options: BlockOptions) -> Result<Self, Error> {
        let place = common_place(&[*weights])?.place;
        let device = match (options.device, place) {
            (Some(ordinal), _) | (None, Place::Device(ordinal) | Place::Managed(ordinal)) => driver.device(ordinal)?,
            (None, Place::Host) => driver.current_device()?,
        };
        Self::on(device, weights, options)
    }

    /// Prepares the weights on this device.
    pub fn on(device: &'static Device, weights: &Span, options: BlockOptions) -> Result<Self, Error> {
        device.run(|| {
            let workspace = Workspace::new(device, options.max_tokens, Purpose::Prepared(options.precision))?;
            let scratch = Buffer::new(device, "scratch for x and output", options.max_tokens * D * size_of::<f32>())?;
            let mut done = ptr::null_mut();
            let flags = sys::CUevent_flags_enum::CU_EVENT_DISABLE_TIMING as u32;
            // SAFETY: writes one event.
            check("cuEventCreate", unsafe { sys::cuEventCreate(&mut done, flags) })?;
            let order = Mutex::new(Order { done: Event(done), stream: None, graphs: Graphs::default() });
            let prepared = Self { device, options, workspace, scratch, order };
            prepared.update(weights, Stream::LEGACY)?;
            wait(Stream::LEGACY)?;
            Ok(prepared)
        })
    }

    /// Casts other weights into the block.
    pub fn update(&self, weights: &Span, stream: Stream) -> Result<(), Error> {
        let on_host = self.is_on_host(&[*weights])?;
        if on_host {
            host::check(weights, "readable")?;
        }
        self.device.run(|| {
            self.in_order(stream, on_host, |stream, _| {
                let mut source = *weights;
                let copy;
                if on_host {
                    copy = Buffer::new(self.device, "scratch for the weights", weights.bytes)?;
                    copy_in(copy.address(), weights, stream)?;
                    source.address = copy.address() as usize;
                }
                let parts = self.workspace.parts();
                // What was unusual about the weights before is no longer.
                fill(parts.alarms, 0, ALARMS_BYTES, stream)?;
                let buffers = Buffers::of_weights(source.address as u64, parts);
                // SAFETY: the weights were checked for their length, a preparation touches nothing of x and output.
                unsafe { run_steps(&prepare(self.device, self.shape(0, 0), &buffers)?, stream) }?;
                if parts.vectors != 0 {
                    // gamma1 and beta1 are the first of the weights.
                    let layernorm1 = Span { bytes: 2 * D * size_of::<f32>(), ..source };
                    copy_in(parts.vectors + 4 * vectors::GAMMA1 as u64, &layernorm1, stream)?;
                }
                if on_host { wait(stream) } else { Ok(()) }
            })
        })
    }

    /// Enqueues one forward.
    pub fn forward(&self, tokens: &Tokens, stream: Stream) -> Result<(), Error> {
        let on_host = self.is_on_host(&[tokens.x, tokens.output])?;
        if on_host {
            host::check(&tokens.x, "readable")?;
            host::check(&tokens.output, "writable")?;
        }
        tokens.check_overlap(None)?;
        let (shape, parts) = (self.shape(tokens.batch, tokens.seq_len), self.workspace.parts());
        self.device
            .run(|| {
                self.in_order(stream, on_host, |stream, graphs| {
                    staged(tokens, on_host, self.scratch.address(), stream, |x, output| {
                        let buffers = Buffers::new(x, output, 0, &shape, parts);
                        // SAFETY: the caller's spans were checked for their length, the rows are at most max_tokens.
                        unsafe {
                            match graphs {
                                Some(graphs) => graphs.run(self.device, shape, &buffers, stream),
                                None => run_plainly(self.device, shape, &buffers, stream),
                            }
                        }
                    })?;
                    if on_host { wait(stream) } else { Ok(()) }
                })
            })
            .inspect_err(|error| {
                if on_host {
                    host::spoil(tokens, error);
                }
            })
    }

    fn shape(&self, batch: usize, seq_len: usize) -> Shape {
        let BlockOptions { causal, precision, .. } = self.options;
        Shape { batch, seq_len, causal, prepared: true, precision }
    }

    /// The options that it was created with.
    #[must_use]
    pub fn options(&self) -> &BlockOptions {
        &self.options
    }

    fn is_on_host(&self, spans: &[Span]) -> Result<bool, Error> {
        match common_place(spans)?.place {
            Place::Host => Ok(true),
            Place::Managed(_) => Ok(false),
            Place::Device(ordinal) if ordinal == self.device.ordinal => Ok(false),
            place => {
                let argument = spans.first().map_or("x", |span| span.argument);
                let block = format!("on device {}", self.device.ordinal);
                Err(Error::Elsewhere { argument, place: place.to_string(), block })
            }
        }
    }

    /// Runs `enqueue` behind the block's latest call. Into a capturing stream it goes as it is, without graphs of ours: a graph's launches are
    /// ordered by its owner.
    fn in_order(
        &self,
        stream: Stream,
        waits: bool,
        enqueue: impl FnOnce(Stream, Option<&mut Graphs>) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let mut order = self.order.lock().unwrap_or_else(PoisonError::into_inner);
        if is_capturing(stream)? {
            if waits {
                return Err(Error::Unsupported("host memory cannot be captured into a graph".into()));
            }
            return enqueue(stream, None);
        }
        let mut number = 0;
        // SAFETY: writes one number.
        check("cuStreamGetId", unsafe { sys::cuStreamGetId(raw(stream), &mut number) })?;
        if order.stream.is_some_and(|latest| latest != number) {
            // SAFETY: the event lives as long as the block.
            check("cuStreamWaitEvent", unsafe { sys::cuStreamWaitEvent(raw(stream), order.done.0, 0) })?;
        }
        let outcome = enqueue(stream, Some(&mut order.graphs));
        // SAFETY: as above. Recorded after a failure too: part of the work may be running.
        let recorded = check("cuEventRecord", unsafe { sys::cuEventRecord(order.done.0, raw(stream)) });
        order.stream = Some(number);
        outcome.and(recorded)
    }
}

impl Drop for Prepared {
    fn drop(&mut self) {
        let order = self.order.get_mut().unwrap_or_else(PoisonError::into_inner);
        // On a lost device there is nothing to wait for.
        let _ = self.device.run(|| {
            // SAFETY: created with the block and used by nobody after this.
            unsafe {
                check("cuEventSynchronize", sys::cuEventSynchronize(order.done.0))?;
                check("cuEventDestroy", sys::cuEventDestroy_v2(order.done.0))
            }
        });
    }
}

fn is_capturing(stream: Stream) -> Result<bool, Error> {
    let mut status = sys::CUstreamCaptureStatus_enum::CU_STREAM_CAPTURE_STATUS_NONE;
    // SAFETY: writes one status.
    check("cuStreamIsCapturing", unsafe { sys::cuStreamIsCapturing(raw(stream), &mut status) })?;
    Ok(status != sys::CUstreamCaptureStatus_enum::CU_STREAM_CAPTURE_STATUS_NONE)
}
