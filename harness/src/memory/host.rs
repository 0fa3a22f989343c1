//! A memfd mapped into both processes.

use std::ffi::c_void;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

use super::Memory;
use crate::arena::{PAGE, Place};
use crate::reason::{Failure, Reason};

/// A shared mapping of `len` floats.
pub struct Host {
    fd: Option<OwnedFd>,
    base: *mut f32,
    len: usize,
}

// SAFETY: the mapping belongs to this value alone in this process; the other process is outside Rust's model.
unsafe impl Send for Host {}

fn failed(what: &str) -> Failure {
    Failure::new(Reason::Environment, format!("{what}: {}", std::io::Error::last_os_error()))
}

impl Host {
    /// New shared memory.
    pub fn create(len: usize) -> Result<Self, Failure> {
        // SAFETY: a plain system call with a constant name.
        let fd = unsafe { libc::memfd_create(c"region".as_ptr(), libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING) };
        if fd < 0 {
            return Err(failed("no shared memory"));
        }
        // SAFETY: the descriptor is new and ours.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        // SAFETY: as above.
        if unsafe { libc::ftruncate(fd.as_raw_fd(), (len * 4) as libc::off_t) } != 0 {
            return Err(failed("no room for the shared memory"));
        }
        // Whoever could shorten it could end the other process, which would touch what is gone.
        // SAFETY: as above.
        unsafe {
            libc::fcntl(fd.as_raw_fd(), libc::F_ADD_SEALS, libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL)
        };
        let mut host = Self::map(fd.as_raw_fd(), len)?;
        host.fd = Some(fd);
        Ok(host)
    }

    /// Maps shared memory that exists.
    pub fn map(fd: RawFd, len: usize) -> Result<Self, Failure> {
        let (read_write, shared) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED);
        // SAFETY: a new mapping at an address of the kernel's choice.
        let base = unsafe { libc::mmap(std::ptr::null_mut(), len * 4, read_write, shared, fd, 0) };
        if base == libc::MAP_FAILED {
            return Err(failed("the shared memory cannot be mapped"));
        }
        Ok(Self { fd: None, base: base.cast(), len })
    }

    /// The descriptor to pass on.
    pub fn fd(&self) -> Option<RawFd> {
        self.fd.as_ref().map(AsRawFd::as_raw_fd)
    }

    /// The address of float `at`.
    pub fn address(&self, at: usize) -> *mut f32 {
        assert!(at < self.len);
        // SAFETY: inside the mapping.
        unsafe { self.base.add(at) }
    }

    /// Its length in floats.
    pub fn floats(&self) -> usize {
        self.len
    }

    /// The first of the pages that hold nothing but this, and their bytes.
    pub fn pages(&self, place: Place) -> (*mut c_void, usize) {
        self.check(place.at, place.len);
        let first = place.at.next_multiple_of(PAGE);
        let end = (place.at + place.len) / PAGE * PAGE;
        (self.base.wrapping_add(first).cast(), 4 * end.saturating_sub(first))
    }

    fn check(&self, at: usize, len: usize) {
        assert!(at + len <= self.len, "{at} + {len} is outside the region of {}", self.len);
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        // SAFETY: unmaps exactly what was mapped; no reference into it is ever handed out.
        unsafe { libc::munmap(self.base.cast::<c_void>(), self.len * 4) };
    }
}

impl Memory for Host {
    fn write(&mut self, at: usize, values: &[f32]) -> Result<(), Failure> {
        self.check(at, values.len());
        // SAFETY: checked above; source and mapping are different allocations.
        unsafe { std::ptr::copy_nonoverlapping(values.as_ptr(), self.address(at), values.len()) };
        Ok(())
    }

    fn read(&mut self, at: usize, values: &mut [f32]) -> Result<(), Failure> {
        self.check(at, values.len());
        // SAFETY: as in write.
        unsafe { std::ptr::copy_nonoverlapping(self.address(at), values.as_mut_ptr(), values.len()) };
        Ok(())
    }

    fn fill(&mut self, at: usize, len: usize, pattern: u32) -> Result<(), Failure> {
        self.check(at, len);
        for i in 0..len {
            // SAFETY: checked above.
            unsafe { self.address(at).add(i).cast::<u32>().write(pattern) };
        }
        Ok(())
    }
}
