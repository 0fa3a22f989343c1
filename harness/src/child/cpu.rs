//! Calls on host pointers into the shared region.

use std::os::fd::RawFd;
use std::time::{Duration, Instant};

use super::fence::Fence;
use super::library::Candidate;
use super::{Worker, not_ready};
use crate::memory::host::Host;
use crate::protocol::{Call, Called};
use crate::reason::{Failure, Reason};

/// Beyond many last-level caches, but not all: a larger one keeps a part of what it held. The candidate shares this process, too, and could lay one page
/// under all of the buffer. So cold times may be too short, though no shorter than hot ones.
const FLUSH_BYTES: usize = 128 << 20;

/// The region, and a buffer to push it out of the caches with.
pub struct Cpu {
    region: Host,
    flush: Vec<u8>,
}

impl Cpu {
    /// Maps the region.
    pub fn new(fd: RawFd, floats: usize) -> Result<Self, Failure> {
        Ok(Self { region: Host::map(fd, floats)?, flush: Vec::new() })
    }

    fn flush(&mut self) {
        self.flush.resize(FLUSH_BYTES, 0);
        for (i, byte) in self.flush.iter_mut().enumerate().step_by(64) {
            *byte = byte.wrapping_add(i as u8 | 1);
        }
        std::hint::black_box(&self.flush);
    }
}

impl Worker for Cpu {
    fn call(&mut self, mut candidate: Option<&mut Candidate>, call: &Call) -> Result<Called, Failure> {
        let at = |offset| self.region.address(offset);
        let (x, output, weights) = (at(call.x), at(call.output), at(call.weights));
        let fence = call.fenced.then(|| Fence::around(&self.region, call));
        if let Some(candidate) = &mut candidate {
            candidate.prepare(weights, call.weights_changed)?;
        }
        if call.flush {
            self.flush();
        }
        let at = |offset| self.region.address(offset);
        let seq = call.seq as i32;
        let start = Instant::now();
        while start.elapsed() < Duration::from_micros(call.spin_us.into()) {
            std::hint::spin_loop();
        }
        let mut accepted = Ok(());
        let patch = |before| {
            for p in call.patches.iter().filter(|p| p.before == before) {
                // A row may trade places with itself.
                // SAFETY: places inside the region.
                unsafe { std::ptr::copy(at(p.from), at(p.to), p.len) };
            }
        };
        for i in 0..call.repeat {
            patch(i);
            let candidate = candidate.as_ref().ok_or_else(not_ready)?;
            // SAFETY: the grader placed three buffers of the right sizes there.
            accepted = accepted.and(unsafe { candidate.call(x, output, weights, seq) });
        }
        patch(call.repeat);
        let wall_us = start.elapsed().as_secs_f64() * 1e6;
        drop(fence);
        if let Some(snapshot) = call.snapshot {
            // SAFETY: the snapshot's place is as long as the largest output, and apart from it.
            unsafe { std::ptr::copy_nonoverlapping(output, at(snapshot), call.seq * crate::dims::D) };
        }
        accepted.map_err(|why| Failure::new(Reason::WrongAnswer, why))?;
        Ok(Called { wall_us, host_us: wall_us, ..Called::default() })
    }
}
