//! Calls on device pointers, timed by events on the legacy default stream.

use std::os::fd::RawFd;
use std::time::Instant;

use cudarc::driver::sys::{self, CUlimit};

use super::library::Candidate;
use super::{Worker, not_ready};
use crate::arena::RED;
use crate::dims::{D, WEIGHTS};
use crate::gpu::{self, Clock, Flush, Shared, Trace, check};
use crate::memory::host::Host;
use crate::protocol::{Call, Called, Crossing, TRACE};
use crate::reason::{Failure, Reason};

/// Spins that wake the GPU up, in us.
const AWAKE_US: u32 = 20;

/// The region in device memory, and what is needed to time calls on it.
pub struct Cuda {
    base: sys::CUdeviceptr,
    /// What keeps the grader's memory mapped.
    _shared: Option<Shared>,
    /// Where the region is copied from and to, if it is not shared.
    mirror: Option<Host>,
    flush: Flush,
    clock: Clock,
    /// What the driver sets aside for persisting lines when it is asked for nothing.
    persisting: usize,
    trace: Option<Trace>,
}

impl Cuda {
    /// Opens or allocates the region.
    pub fn new(crossing: &Crossing, fd: RawFd, floats: usize) -> Result<Self, Failure> {
        let trace = std::env::var_os(TRACE).map(|_| Trace::begin()).transpose()?;
        let gpu = gpu::open()?;
        let (base, shared, mirror) = match crossing {
            Crossing::DeviceMemory => {
                let shared = Shared::open(fd, floats * 4)?;
                (shared.base(), Some(shared), None)
            }
            _ => (gpu::alloc(floats * 4)?, None, Some(Host::map(fd, floats)?)),
        };
        let (flush, clock) = (Flush::new(&gpu)?, Clock::new(&gpu)?);
        flush.run()?;
        Ok(Self { base, _shared: shared, mirror, flush, clock, persisting: persisting_l2(), trace })
    }

    fn at(&self, float: usize) -> sys::CUdeviceptr {
        self.base + 4 * float as u64
    }

    /// Copies the call's buffers with their red zones, where the region is not shared.
    fn cross(&self, call: &Call, inwards: bool) -> Result<(), Failure> {
        let Some(mirror) = &self.mirror else { return Ok(()) };
        let tokens = call.seq * D;
        let buffers = [(call.x, tokens), (call.output, tokens), (call.weights, WEIGHTS)];
        let guarded = buffers.map(|(at, len)| (at - RED, len + 2 * RED));
        let snapshot = call.snapshot.filter(|_| !inwards).map(|at| (at, tokens));
        for (at, len) in guarded.into_iter().chain([call.beside]).chain(snapshot).filter(|(_, len)| *len > 0) {
            let (host, device, bytes) = (mirror.address(at), self.at(at), len * 4);
            // SAFETY: the grader placed all of them inside the region.
            let result = unsafe {
                if inwards {
                    sys::cuMemcpyHtoD_v2(device, host.cast(), bytes)
                } else {
                    sys::cuMemcpyDtoH_v2(host.cast(), device, bytes)
                }
            };
            check(result, "copying a buffer")?;
        }
        Ok(())
    }

    /// Has the GPU on this process and at work: it has just served the grader, or nobody.
    fn awake(&self) -> Result<(), Failure> {
        for _ in 0..3 {
            self.clock.spin(AWAKE_US)?;
            gpu::synchronize()?;
        }
        Ok(())
    }

    fn copy(&self, to: usize, from: usize, floats: usize) -> Result<(), Failure> {
        let (to, from, stream) = (self.at(to), self.at(from), std::ptr::null_mut());
        // SAFETY: places inside the region.
        check(unsafe { sys::cuMemcpyDtoDAsync_v2(to, from, floats * 4, stream) }, "cuMemcpyDtoDAsync")
    }

    /// The calls themselves; returns when the last one has returned, with what the candidate said to the first that it refused.
    fn run(&self, candidate: &Candidate, call: &Call) -> Result<Result<(), String>, Failure> {
        let weights = self.at(call.weights);
        let mut accepted = Ok(());
        let mut patches = call.patches.iter().peekable();
        for i in 0..call.repeat {
            while let Some(p) = patches.next_if(|p| p.before <= i) {
                self.copy(p.to, p.from, p.len)?;
            }
            let [x, output] = call.places(i).map(|place| self.at(place));
            // SAFETY: the grader placed three buffers of the right sizes there.
            let called =
                unsafe { candidate.call(x as *const f32, output as *mut f32, weights as *const f32, call.seq as i32) };
            accepted = accepted.and(called);
            if call.wait_each {
                gpu::synchronize()?;
            }
        }
        for p in patches {
            self.copy(p.to, p.from, p.len)?;
        }
        Ok(accepted)
    }
}

impl Worker for Cuda {
    fn call(&mut self, candidate: Option<&mut Candidate>, call: &Call) -> Result<Called, Failure> {
        let candidate = candidate.ok_or_else(not_ready)?;
        let asked = Instant::now();
        gpu::synchronize()?;
        let pending_us = asked.elapsed().as_secs_f64() * 1e6;
        self.cross(call, true)?;
        candidate.prepare(self.at(call.weights) as *const f32, call.weights_changed)?;
        gpu::synchronize()?;
        if call.flush {
            self.flush.run()?;
        }
        self.awake()?;
        if let Some(trace) = &self.trace {
            trace.clear()?;
        }
        let mut called = Called { pending_us, ..Called::default() };
        let spin = call.spin_us > 0;
        if spin {
            self.clock.spin(call.spin_us)?;
            self.clock.stamp(0)?;
            self.clock.start()?;
        }
        let start = Instant::now();
        let accepted = self.run(candidate, call)?;
        called.host_us = start.elapsed().as_secs_f64() * 1e6;
        if spin {
            self.clock.end()?;
            self.clock.stamp(1)?;
        }
        if let Some(snapshot) = call.snapshot {
            self.copy(snapshot, call.output, call.seq * D)?;
        }
        gpu::synchronize().map_err(|f| f.during("after the call"))?;
        called.wall_us = start.elapsed().as_secs_f64() * 1e6;
        if let Some(trace) = &self.trace {
            called.kernels = trace.kernels()?;
        }
        accepted.map_err(|why| Failure::new(Reason::CudaError, why))?;
        if spin {
            called.device_us = Some(self.clock.elapsed_us()?);
            let [first, last] = self.clock.stamps()?;
            called.clock_mhz = first.clock_mhz(last);
            called.stamps_us = Some(first.us_until(last));
        }
        called.persisting_l2 = persisting_l2().saturating_sub(self.persisting);
        self.cross(call, false)?;
        Ok(called)
    }
}

/// Bytes of L2 set aside for persisting lines.
fn persisting_l2() -> usize {
    let mut bytes = 0;
    // SAFETY: the result goes to a local.
    unsafe { sys::cuCtxGetLimit(&raw mut bytes, CUlimit::CU_LIMIT_PERSISTING_L2_CACHE_SIZE) };
    bytes
}
