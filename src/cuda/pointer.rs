//! What memory a caller's buffer is, as the driver knows it.

use std::ffi::c_void;
use std::fmt;
use std::ptr;

use cudarc::driver::sys;
use sys::CUpointer_attribute_enum as Attribute;

use super::driver::check;
use crate::error::Error;
use crate::host;
use crate::span::Span;

/// Where a buffer is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// Pinned, pageable, or nothing the driver knows.
    Host,
    /// Memory of this device.
    Device(usize),
    /// Managed memory, at home on this device and usable everywhere.
    Managed(usize),
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Host => write!(f, "on the host"),
            Self::Device(ordinal) => write!(f, "on device {ordinal}"),
            Self::Managed(_) => write!(f, "managed memory"),
        }
    }
}

/// Finds a buffer and checks that it is as long as its shape, so that a short one is an error here and not a fault in a kernel. With it, whether it is known
/// that the current context may use all of it as the call would; else its length may be unknown, too.
fn place_of(span: &Span) -> Result<(Place, bool), Error> {
    let first = Attributes::of(span.address)?;
    if !first.on_device {
        return Ok((Place::Host, true));
    }
    let needed = match span.access() {
        "writable" => sys::CUmemAccess_flags_enum::CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
        _ => sys::CUmemAccess_flags_enum::CU_MEM_ACCESS_FLAGS_PROT_READ,
    } as u32;
    let ordinal = usize::try_from(first.ordinal).unwrap_or(0);
    let place = if first.managed { Place::Managed(ordinal) } else { Place::Device(ordinal) };
    let (mut at, mut piece) = (span.address, first);
    loop {
        if piece.access & needed != needed {
            return Ok((place, false));
        }
        let Some(end) = piece.end(at).filter(|&end| end > at) else { return Ok((place, false)) };
        if end >= span.end() {
            return Ok((place, true));
        }
        // Memory mapped piece by piece (an allocator that extends its segments) is a chain of neighbours. Allocations that happen to lie beside each other are
        // not: the next one is not this buffer's.
        let next = Attributes::of(end)?;
        if next.ordinal != piece.ordinal || !is_mapped(at) || !is_mapped(end) {
            let have = end.saturating_sub(span.address);
            return Err(Error::Short { argument: span.argument, address: span.address, have, need: span.bytes });
        }
        (at, piece) = (end, next);
    }
}

/// Refuses memory that the current context may not read, or write: mapped without that right (`cuMemSetAccess`), it would be a fault in a kernel.
pub fn check_access(spans: &[Span]) -> Result<(), Error> {
    for span in spans {
        if !place_of(span)?.1 {
            let Span { argument, address, bytes } = *span;
            return Err(Error::BadPointer { argument, address, access: span.access(), bytes });
        }
    }
    Ok(())
}

/// Whether somebody mapped this address (`cuMemMap`). What was allocated whole has no handle to ask for.
fn is_mapped(address: usize) -> bool {
    let mut handle = 0;
    // SAFETY: the result goes to a local; a handle that was given is given back.
    unsafe {
        let result = sys::cuMemRetainAllocationHandle(&mut handle, ptr::without_provenance_mut(address));
        result == sys::CUresult::CUDA_SUCCESS && sys::cuMemRelease(handle) == result
    }
}

/// The place that several buffers share.
#[derive(Clone, Copy, Debug)]
pub struct Common {
    /// Where they are. Managed memory goes with whatever the others are.
    pub place: Place,
    /// The argument by which that is known.
    pub argument: &'static str,
    /// Some of it is managed, so the host may look at it after the call.
    pub managed: bool,
    /// The context of which it is known that it may use all of it: the current one, or none. Another one still may: [`check_access`] there.
    pub usable_in: Option<sys::CUcontext>,
}

/// Finds the place that all of these share.
pub fn common_place(spans: &[Span]) -> Result<Common, Error> {
    let argument = spans.first().map_or("x", |span| span.argument);
    let mut common = Common { place: Place::Host, argument, managed: false, usable_in: Some(current_context()?) };
    let mut decided: Option<&Span> = None;
    for span in spans {
        let (place, usable) = place_of(span)?;
        common.usable_in = common.usable_in.filter(|_| usable);
        match (place, decided) {
            (Place::Managed(_), _) => {
                common.managed = true;
                if decided.is_none() {
                    (common.place, common.argument) = (place, span.argument);
                }
            }
            (_, Some(first)) if place != common.place => {
                // What is no memory of the device's may be no memory at all.
                for (span, place) in [(first, common.place), (span, place)] {
                    if place == Place::Host {
                        host::check([span])?;
                    }
                }
                return Err(Error::Mixed {
                    first: first.argument,
                    first_place: common.place.to_string(),
                    second: span.argument,
                    second_place: place.to_string(),
                });
            }
            (_, None) => {
                (common.place, common.argument) = (place, span.argument);
                decided = Some(span);
            }
            _ => {}
        }
    }
    Ok(common)
}

/// Null where none is.
fn current_context() -> Result<sys::CUcontext, Error> {
    let mut context = ptr::null_mut();
    // SAFETY: writes one pointer.
    check("cuCtxGetCurrent", unsafe { sys::cuCtxGetCurrent(&mut context) })?;
    Ok(context)
}

/// What one call asks of the driver. Memory that it does not know leaves everything at zero.
struct Attributes {
    on_device: bool,
    ordinal: i32,
    managed: bool,
    range_start: u64,
    range_size: usize,
    access: u32,
    /// The range is one allocation, as `cuMemAlloc` makes them. Of mapped memory it is what was reserved, with holes and pieces that are mapped otherwise.
    whole: bool,
}

impl Attributes {
    fn of(address: usize) -> Result<Self, Error> {
        let (mut memory_type, mut ordinal, mut managed) = (0u32, 0i32, 0u32);
        let (mut range_start, mut range_size, mut access) = (0u64, 0usize, 0u32);
        let mut shareable = 0u32;
        let mut names = [
            Attribute::CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
            Attribute::CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
            Attribute::CU_POINTER_ATTRIBUTE_IS_MANAGED,
            Attribute::CU_POINTER_ATTRIBUTE_RANGE_START_ADDR,
            Attribute::CU_POINTER_ATTRIBUTE_RANGE_SIZE,
            Attribute::CU_POINTER_ATTRIBUTE_ACCESS_FLAGS,
            Attribute::CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE,
        ];
        let mut values: [*mut c_void; 7] = [
            ptr::from_mut(&mut memory_type).cast(),
            ptr::from_mut(&mut ordinal).cast(),
            ptr::from_mut(&mut managed).cast(),
            ptr::from_mut(&mut range_start).cast(),
            ptr::from_mut(&mut range_size).cast(),
            ptr::from_mut(&mut access).cast(),
            ptr::from_mut(&mut shareable).cast(),
        ];
        // SAFETY: seven names, seven places of the types that the driver documents for them.
        let result = unsafe { sys::cuPointerGetAttributes(7, names.as_mut_ptr(), values.as_mut_ptr(), address as u64) };
        check("cuPointerGetAttributes", result)?;
        let on_device = memory_type == sys::CUmemorytype_enum::CU_MEMORYTYPE_DEVICE as u32;
        let (managed, whole) = (managed & 0xff != 0, shareable & 0xff != 0);
        Ok(Self { on_device, ordinal, managed, range_start, range_size, access, whole })
    }

    /// Where the allocation ends that this address is in, if that is to be found out here.
    fn end(&self, address: usize) -> Option<usize> {
        if self.whole {
            return Some(self.range_start as usize + self.range_size);
        }
        let (mut start, mut size) = (0, 0);
        // SAFETY: writes two numbers.
        let result = unsafe { sys::cuMemGetAddressRange_v2(&mut start, &mut size, address as u64) };
        check("cuMemGetAddressRange", result).ok().map(|()| start as usize + size)
    }
}
