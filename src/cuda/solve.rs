//! `solve()` on a GPU: everything from the caller's weights, on the legacy default stream, in memory that is kept and only grows.

use std::sync::Arc;

use super::block::{self, Buffers, Shape};
use super::device::Device;
use super::driver::Driver;
use super::event::Event;
use super::graph::Graphs;
use super::launchers::End;
use super::memory::{Buffer, copy_in, copy_out, fill, staged, wait};
use super::pointer::{Place, check_access, common_place};
use super::rescue::ALARMS;
use super::workspace::{Parts, Purpose, Workspace};
use crate::dims::D;
use crate::error::Error;
use crate::host;
use crate::options::Stream;
use crate::precision::SolvePrecision;
use crate::span::{Span, Tokens};

/// The workspace and the scratch for x and output grow in steps of so many rows, so that slowly growing calls do not allocate each time.
const ROWS_STEP: usize = 512;

/// What one device keeps between calls. Nothing of it is about the caller's data.
#[derive(Default)]
pub struct Solver {
    workspace: Option<Workspace>,
    graphs: Graphs,
    /// Behind the latest call beside other launchers.
    done: Option<Arc<Event>>,
    scratch: Option<Buffer>,
    weights: Option<Buffer>,
    /// A call has failed: alarms may be raised that say nothing of the next one's weights.
    stale_alarms: bool,
}

/// Runs the block once on the device that holds the buffers, or for buffers on the host on the current one.
pub fn solve(driver: &'static Driver, tokens: &Tokens, weights: &Span, precision: SolvePrecision) -> Result<(), Error> {
    let spans = [tokens.x, *weights, tokens.output];
    let common = common_place(&spans)?;
    match common.place {
        Place::Device(ordinal) | Place::Managed(ordinal) => {
            tokens.check_overlap(Some(weights))?;
            let device = driver.device(ordinal)?;
            if !device.is_of(common.usable_in) {
                device.run(|| check_access(&spans))?;
            }
            let enqueued = solve_in_place(device, tokens, weights, precision);
            // After a failure too: kernels may be using the caller's memory.
            let finished = if common.managed { device.run(|| wait(Stream::LEGACY)) } else { Ok(()) };
            enqueued.and(finished)
        }
        Place::Host => {
            host::check([&tokens.x, weights, &tokens.output])?;
            tokens.check_overlap(Some(weights))?;
            let device = driver.current_device();
            device
                .and_then(|device| solve_from_host(device, tokens, weights, precision))
                .inspect_err(|error| host::spoil(tokens, error))
        }
    }
}

/// Enqueues the block on memory that the device can use.
pub fn solve_in_place(
    device: &'static Device,
    tokens: &Tokens,
    weights: &Span,
    precision: SolvePrecision,
) -> Result<(), Error> {
    device.run(|| device.lock_solver().enqueue(device, tokens, weights, precision, false))
}

/// Copies, runs, copies back and waits.
pub fn solve_from_host(
    device: &'static Device,
    tokens: &Tokens,
    weights: &Span,
    precision: SolvePrecision,
) -> Result<(), Error> {
    device.run(|| {
        // The scratch memory is in use to the end, so the lock is held.
        let mut solver = device.lock_solver();
        let enqueued = solver.enqueue(device, tokens, weights, precision, true);
        // After a failure too: a copy may be reading the caller's memory.
        let finished = wait(Stream::LEGACY);
        enqueued.and(finished)
    })
}

impl Solver {
    fn enqueue(
        &mut self,
        device: &'static Device,
        tokens: &Tokens,
        weights: &Span,
        precision: SolvePrecision,
        on_host: bool,
    ) -> Result<(), Error> {
        let stream = Stream::LEGACY;
        let (batch, seq_len, guarded) = (tokens.batch, tokens.seq_len, precision != SolvePrecision::Exact);
        let shape = Shape { batch, seq_len, causal: false, prepared: false, precision, guarded, rescued: false };
        let shape = Shape { guarded: guarded && !block::in_fp32(device, &shape), ..shape };
        let parts = self.parts_for(device, shape.rows())?;
        let done = self.end_of_calls(device)?;
        let scratch = if on_host || tokens.is_misaligned() {
            Buffer::at_least(
                &mut self.scratch,
                device,
                "scratch for x and output",
                tokens.x.bytes,
                ROWS_STEP * D * size_of::<f32>(),
            )?
        } else {
            0
        };
        let mut weights_at = weights.address as u64;
        if on_host {
            weights_at = Buffer::at_least(&mut self.weights, device, "scratch for the weights", weights.bytes, 1)?;
            copy_in(weights_at, weights, stream)?;
            copy_in(scratch, &tokens.x, stream)?;
        }
        // Nobody waits for the legacy stream by an event while there is nobody else: a workspace that joins waits for all of the stream.
        let end = End { event: &done, always: false };
        device.launchers.enqueue(stream, end, |company| {
            staged(tokens, on_host, scratch, stream, |x, output| {
                let buffers = Buffers::new(x, output, weights_at, &shape, parts);
                if self.stale_alarms {
                    fill(parts.alarms, 0, ALARMS * size_of::<u32>(), stream)?;
                }
                self.stale_alarms = true;
                // SAFETY: the caller's spans were checked for their length, the workspace has room for the rows.
                unsafe { self.graphs.run(device, shape, &buffers, (stream, 0), company) }?;
                self.stale_alarms = false;
                Ok(())
            })
        })?;
        if on_host { copy_out(&tokens.output, scratch, stream) } else { Ok(()) }
    }

    fn end_of_calls(&mut self, device: &'static Device) -> Result<Arc<Event>, Error> {
        if let Some(done) = &self.done {
            return Ok(Arc::clone(done));
        }
        let done = Arc::new(Event::new(device)?);
        device.launchers.note_end(&done);
        self.done = Some(Arc::clone(&done));
        Ok(done)
    }

    /// Those of a workspace that has room for so many rows.
    fn parts_for(&mut self, device: &'static Device, rows: usize) -> Result<Parts, Error> {
        if let Some(workspace) = &self.workspace
            && workspace.rows() >= rows
        {
            return Ok(workspace.parts());
        }
        // Earlier calls may still be running in the old one.
        wait(Stream::LEGACY)?;
        self.graphs.clear();
        let larger = match Workspace::new(device, rows.next_multiple_of(ROWS_STEP), Purpose::Stateless) {
            Err(Error::OutOfMemory { .. }) => {
                self.workspace = None;
                Workspace::new(device, rows, Purpose::Stateless)
            }
            other => other,
        }?;
        Ok(self.workspace.insert(larger).parts())
    }
}
