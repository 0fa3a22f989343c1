//! Tensor maps: how the copy engine of Hopper sees a matrix in device memory.

use std::ptr;

use cudarc::driver::sys;
use sys::{
    CUtensorMapDataType_enum as Type, CUtensorMapL2promotion_enum as DriverPromotion,
    CUtensorMapSwizzle_enum as DriverSwizzle,
};

use super::driver::check;
use crate::error::Error;

/// A matrix for `cp.async.bulk.tensor`.
#[derive(Clone, Copy)]
pub struct TensorMap(sys::CUtensorMap);

/// Element of the matrix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Element {
    F16,
    F32,
}

/// How rows of a box are permuted in shared memory: the span of bytes within which 16-byte pieces change places.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Swizzle {
    None,
    B64,
    B128,
}

/// Most dimensions of a view.
const MAX_RANK: usize = 4;

/// What a map says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct View {
    base: u64,
    element: Element,
    swizzle: Swizzle,
    rank: usize,
    dims: [u64; MAX_RANK],
    strides: [u64; MAX_RANK],
    boxed: [u32; MAX_RANK],
}

impl View {
    /// Memory at `base` as `dims` elements with the innermost first, `strides` in bytes of every dimension but the innermost, of which one copy moves
    /// a box.
    #[must_use]
    pub fn new<const RANK: usize>(
        element: Element,
        base: u64,
        dims: [u64; RANK],
        strides: &[u64],
        boxed: [u32; RANK],
        swizzle: Swizzle,
    ) -> Self {
        const { assert!(RANK <= MAX_RANK) };
        let mut view = Self {
            base,
            element,
            swizzle,
            rank: RANK,
            dims: [0; MAX_RANK],
            strides: [0; MAX_RANK],
            boxed: [0; MAX_RANK],
        };
        view.dims[..RANK].copy_from_slice(&dims);
        view.boxed[..RANK].copy_from_slice(&boxed);
        view.strides.iter_mut().zip(strides).for_each(|(own, stride)| *own = *stride);
        view
    }

    /// The map.
    pub fn encode(&self) -> Result<TensorMap, Error> {
        // SAFETY: a map is plain numbers.
        let mut map = TensorMap(unsafe { std::mem::zeroed() });
        let element = match self.element {
            Element::F16 => Type::CU_TENSOR_MAP_DATA_TYPE_FLOAT16,
            Element::F32 => Type::CU_TENSOR_MAP_DATA_TYPE_FLOAT32,
        };
        let swizzle = match self.swizzle {
            Swizzle::None => DriverSwizzle::CU_TENSOR_MAP_SWIZZLE_NONE,
            Swizzle::B64 => DriverSwizzle::CU_TENSOR_MAP_SWIZZLE_64B,
            Swizzle::B128 => DriverSwizzle::CU_TENSOR_MAP_SWIZZLE_128B,
        };
        let ones = [1u32; MAX_RANK];
        // SAFETY: the arrays have at least `rank` elements; the address is only recorded.
        let result = unsafe {
            sys::cuTensorMapEncodeTiled(
                &mut map.0,
                element,
                self.rank as u32,
                ptr::with_exposed_provenance_mut(self.base as usize),
                self.dims.as_ptr(),
                self.strides.as_ptr(),
                self.boxed.as_ptr(),
                ones.as_ptr(),
                sys::CUtensorMapInterleave_enum::CU_TENSOR_MAP_INTERLEAVE_NONE,
                swizzle,
                // What L2 fetches at a time. With 256 bytes solve() took 0.3 us more at 512 rows and 0.4 at 1500 (H200)
                DriverPromotion::CU_TENSOR_MAP_L2_PROMOTION_L2_128B,
                sys::CUtensorMapFloatOOBfill_enum::CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE,
            )
        };
        check("cuTensorMapEncodeTiled", result).map(|()| map)
    }
}

impl TensorMap {
    /// The map as the kernel gets it.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        // SAFETY: 128 bytes of plain numbers without padding.
        unsafe { std::slice::from_raw_parts(ptr::from_ref(self).cast(), size_of::<Self>()) }
    }
}
