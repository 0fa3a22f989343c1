//! Device memory of two processes, passed on as a file descriptor. What `cuIpcOpenMemHandle` maps instead is slower to
//! reach: the exact kernel took 20.6 us for a row there, 19.8 here and in memory of its own process (H200, driver 580).

use std::os::fd::{FromRawFd, OwnedFd, RawFd};

use cudarc::driver::sys::{
    self, CUdeviceptr, CUmemAccess_flags, CUmemAccessDesc, CUmemAllocationGranularity_flags, CUmemAllocationHandleType,
    CUmemAllocationProp, CUmemAllocationType, CUmemGenericAllocationHandle, CUmemLocation, CUmemLocationType,
};

use super::{check, no_memory};
use crate::reason::{Failure, Reason};

const DESCRIPTOR: CUmemAllocationHandleType = CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
const DEVICE: CUmemLocation = CUmemLocation { type_: CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE, id: 0 };

/// A mapping of such memory.
pub struct Shared {
    base: CUdeviceptr,
    bytes: usize,
}

impl Shared {
    /// New memory, and the descriptor that opens it elsewhere.
    pub fn create(bytes: usize) -> Result<(Self, OwnedFd), Failure> {
        let (mut memory, mut fd) = (0, -1);
        let (size, properties) = (whole_pages(bytes)?, properties());
        // SAFETY: the properties live through the call; the result goes to a local.
        let created = unsafe { sys::cuMemCreate(&raw mut memory, size, &raw const properties, 0) };
        check(created, "cuMemCreate").map_err(|f| no_memory(f, bytes))?;
        // SAFETY: for this type of handle the result is an int.
        let exported = unsafe { sys::cuMemExportToShareableHandle((&raw mut fd).cast(), memory, DESCRIPTOR, 0) };
        let mapped = map(memory, size);
        check(exported, "cuMemExportToShareableHandle").map_err(environment)?;
        // SAFETY: the descriptor is new and ours. Only the process that it is handed to shall have it.
        let fd = unsafe {
            libc::fcntl(fd, libc::F_SETFD, libc::FD_CLOEXEC);
            OwnedFd::from_raw_fd(fd)
        };
        mapped.map(|mapped| (mapped, fd))
    }

    /// The memory behind a descriptor, which was created with so many bytes.
    pub fn open(fd: RawFd, bytes: usize) -> Result<Self, Failure> {
        let mut memory = 0;
        // SAFETY: the driver takes the descriptor's number for a pointer; the result goes to a local.
        let result = unsafe { sys::cuMemImportFromShareableHandle(&raw mut memory, fd as usize as *mut _, DESCRIPTOR) };
        check(result, "cuMemImportFromShareableHandle").map_err(environment)?;
        map(memory, whole_pages(bytes)?)
    }

    /// Where it begins.
    pub fn base(&self) -> CUdeviceptr {
        self.base
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // SAFETY: exactly what was mapped. With its last mapping and its last descriptor the memory is freed.
        unsafe {
            sys::cuMemUnmap(self.base, self.bytes);
            sys::cuMemAddressFree(self.base, self.bytes);
        }
    }
}

/// Maps all of the memory and gives up its handle: the mapping keeps it.
fn map(memory: CUmemGenericAllocationHandle, bytes: usize) -> Result<Shared, Failure> {
    let mut base = 0;
    let access = CUmemAccessDesc { location: DEVICE, flags: CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READWRITE };
    // SAFETY: addresses that were reserved, of the size of the memory; results go to locals.
    unsafe {
        let reserved = check(sys::cuMemAddressReserve(&raw mut base, bytes, 0, 0, 0), "cuMemAddressReserve");
        let mapped = reserved.and_then(|()| check(sys::cuMemMap(base, bytes, 0, memory, 0), "cuMemMap"));
        sys::cuMemRelease(memory);
        if base != 0 && mapped.is_err() {
            sys::cuMemAddressFree(base, bytes);
        }
        mapped.map_err(environment)?;
        let shared = Shared { base, bytes };
        check(sys::cuMemSetAccess(base, bytes, &raw const access, 1), "cuMemSetAccess").map_err(environment)?;
        Ok(shared)
    }
}

fn properties() -> CUmemAllocationProp {
    // SAFETY: a plain structure, in which zero stands for whatever is not asked for.
    let mut properties: CUmemAllocationProp = unsafe { std::mem::zeroed() };
    properties.type_ = CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.requestedHandleTypes = DESCRIPTOR;
    properties.location = DEVICE;
    properties
}

/// Memory comes in pages.
fn whole_pages(bytes: usize) -> Result<usize, Failure> {
    let (mut page, properties) = (0, properties());
    let least = CUmemAllocationGranularity_flags::CU_MEM_ALLOC_GRANULARITY_MINIMUM;
    // SAFETY: the properties live through the call; the result goes to a local.
    let result = unsafe { sys::cuMemGetAllocationGranularity(&raw mut page, &raw const properties, least) };
    check(result, "cuMemGetAllocationGranularity").map_err(environment)?;
    Ok(bytes.next_multiple_of(page))
}

/// The machine's fault, not the candidate's.
fn environment(failure: Failure) -> Failure {
    Failure::new(Reason::Environment, failure.message)
}
