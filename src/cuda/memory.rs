//! Memory that this library owns, and the copies between it and the caller's.

use std::array;
use std::ffi::c_void;
use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering};

use cudarc::driver::sys;

use super::device::Device;
use super::driver::check;
use super::launch::raw;
use crate::error::Error;
use crate::options::Stream;
use crate::span::{Span, Tokens};

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

/// Allocations of device memory made so far in this process: a warm call makes none.
#[must_use]
pub fn allocations() -> u64 {
    ALLOCATIONS.load(Ordering::Relaxed)
}

/// One allocation on one device, 256-byte aligned.
pub struct Buffer {
    device: &'static Device,
    address: u64,
    bytes: usize,
}

impl Buffer {
    /// Allocates; the device's context is current.
    pub fn new(device: &'static Device, what: &str, bytes: usize) -> Result<Self, Error> {
        let mut address = 0;
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: writes one address.
        match unsafe { sys::cuMemAlloc_v2(&mut address, bytes) } {
            sys::CUresult::CUDA_ERROR_OUT_OF_MEMORY => Err(Error::OutOfMemory { what: what.to_owned(), bytes }),
            result => check("cuMemAlloc", result).map(|()| Self { device, address, bytes }),
        }
    }

    /// The address of a kept buffer, made larger first if it is too small: by whole steps where there is so much memory. Nothing may be using the smaller one
    /// but the legacy stream.
    pub fn at_least(
        slot: &mut Option<Self>,
        device: &'static Device,
        what: &str,
        bytes: usize,
        step: usize,
    ) -> Result<u64, Error> {
        if let Some(buffer) = slot
            && buffer.bytes >= bytes
        {
            return Ok(buffer.address);
        }
        wait(Stream::LEGACY)?;
        *slot = None;
        let room = bytes.next_multiple_of(step);
        let larger = match Self::new(device, what, room) {
            Err(Error::OutOfMemory { .. }) if room > bytes => Self::new(device, what, bytes),
            other => other,
        }?;
        Ok(slot.insert(larger).address)
    }

    /// Where it begins.
    #[must_use]
    pub fn address(&self) -> u64 {
        self.address
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        // A lost device has nothing left to free.
        let _ = self.device.run(|| {
            // SAFETY: allocated above and not freed since.
            check("cuMemFree", unsafe { sys::cuMemFree_v2(self.address) })
        });
    }
}

/// Memory of the host that the device copies to while nobody waits.
pub struct Pinned {
    device: &'static Device,
    address: *mut c_void,
    bytes: usize,
}

// SAFETY: plain memory, which any thread may read.
unsafe impl Send for Pinned {}

impl Pinned {
    /// Allocates; the device's context is current.
    pub fn new(device: &'static Device, what: &str, bytes: usize) -> Result<Self, Error> {
        let mut address = ptr::null_mut();
        // SAFETY: writes one address.
        match unsafe { sys::cuMemHostAlloc(&mut address, bytes, 0) } {
            sys::CUresult::CUDA_ERROR_OUT_OF_MEMORY => Err(Error::OutOfMemory { what: what.to_owned(), bytes }),
            result => check("cuMemHostAlloc", result).map(|()| Self { device, address, bytes }),
        }
    }

    /// Enqueues a copy of as many bytes from device memory.
    pub fn copy(&self, from: u64, stream: Stream) -> Result<(), Error> {
        // SAFETY: both are that long, and this is freed after the block's work.
        let result = unsafe { sys::cuMemcpyDtoHAsync_v2(self.address, from, self.bytes, raw(stream)) };
        check("cuMemcpyDtoHAsync", result)
    }

    /// The first words that the latest copy has brought.
    #[must_use]
    pub fn words<const WORDS: usize>(&self) -> [u32; WORDS] {
        assert!(WORDS * size_of::<u32>() <= self.bytes);
        let words = self.address.cast::<u32>();
        // SAFETY: inside the allocation, which is aligned to a page.
        array::from_fn(|index| unsafe { words.add(index).read_volatile() })
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        // As above.
        let _ = self.device.run(|| {
            // SAFETY: allocated above and not freed since.
            check("cuMemFreeHost", unsafe { sys::cuMemFreeHost(self.address) })
        });
    }
}

/// Fills memory of this library with one byte.
pub fn fill(at: u64, byte: u8, bytes: usize, stream: Stream) -> Result<(), Error> {
    // SAFETY: the memory is that long.
    check("cuMemsetD8Async", unsafe { sys::cuMemsetD8Async(at, byte, bytes, raw(stream)) })
}

/// Copies a span of the caller, wherever it is, to device memory.
pub fn copy_in(to: u64, from: &Span, stream: Stream) -> Result<(), Error> {
    // SAFETY: the span was found accessible and `to` has room for it.
    check("cuMemcpyAsync", unsafe { sys::cuMemcpyAsync(to, from.address as u64, from.bytes, raw(stream)) })
}

/// Copies device memory to a span of the caller, wherever it is.
pub fn copy_out(to: &Span, from: u64, stream: Stream) -> Result<(), Error> {
    // SAFETY: the span was found writable and `from` holds as much.
    check("cuMemcpyAsync", unsafe { sys::cuMemcpyAsync(to.address as u64, from, to.bytes, raw(stream)) })
}

/// Runs the block on x and output as they are, or through `scratch` (as long as x) where they are not aligned for the kernels, or on the host: then whoever
/// calls this copies, as the driver makes a thread wait for that. Both may be in `scratch` at once: output is written last.
pub fn staged(
    tokens: &Tokens,
    on_host: bool,
    scratch: u64,
    stream: Stream,
    run: impl FnOnce(u64, u64) -> Result<(), Error>,
) -> Result<(), Error> {
    let (mut x, mut output) = (tokens.x.address as u64, tokens.output.address as u64);
    if on_host {
        return run(scratch, scratch);
    }
    if tokens.x.is_misaligned() {
        copy_in(scratch, &tokens.x, stream)?;
        x = scratch;
    }
    if tokens.output.is_misaligned() {
        output = scratch;
    }
    run(x, output)?;
    if output == scratch { copy_out(&tokens.output, scratch, stream) } else { Ok(()) }
}

/// Waits for everything enqueued on the stream.
pub fn wait(stream: Stream) -> Result<(), Error> {
    // SAFETY: the stream is the caller's live one or the legacy default stream.
    check("cuStreamSynchronize", unsafe { sys::cuStreamSynchronize(raw(stream)) })
}
