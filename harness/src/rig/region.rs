//! Who owns the region, and how it crosses to the candidate's process.

use std::os::fd::RawFd;

use super::Setup;
use crate::gpu;
use crate::memory::{Memory, cuda::Cuda, host::Host};
use crate::protocol::{Crossing, Device};
use crate::reason::Failure;

/// Memory, the descriptor to pass on, and how it crosses.
type Region = (Box<dyn Memory>, Option<RawFd>, Crossing);

/// The region for this device, the descriptor to pass on, and how it crosses.
pub fn region(setup: &Setup, floats: usize) -> Result<Region, Failure> {
    if setup.device == Device::Cuda && !setup.copies {
        gpu::open()?;
        if let Ok(memory) = Cuda::create(floats) {
            let fd = memory.fd();
            return Ok((Box::new(memory), Some(fd), Crossing::DeviceMemory));
        }
    }
    let memory = Host::create(floats)?;
    let fd = memory.fd();
    let crossing = if setup.device == Device::Cuda { Crossing::Copies } else { Crossing::Shared };
    Ok((Box::new(memory), fd, crossing))
}
