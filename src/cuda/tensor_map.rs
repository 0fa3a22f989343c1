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

/// How much L2 fetches from device memory at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Promotion {
    B128,
    B256,
}

impl TensorMap {
    /// A view of memory at `base`: `dims` elements with the innermost first, `strides` in bytes of every dimension but the innermost,
    /// of which one copy moves a box.
    pub fn new<const RANK: usize>(
        element: Element,
        base: u64,
        dims: [u64; RANK],
        strides: &[u64],
        boxed: [u32; RANK],
        swizzle: Swizzle,
        promotion: Promotion,
    ) -> Result<Self, Error> {
        // SAFETY: a map is plain numbers.
        let mut map = Self(unsafe { std::mem::zeroed() });
        let element = match element {
            Element::F16 => Type::CU_TENSOR_MAP_DATA_TYPE_FLOAT16,
            Element::F32 => Type::CU_TENSOR_MAP_DATA_TYPE_FLOAT32,
        };
        let swizzle = match swizzle {
            Swizzle::None => DriverSwizzle::CU_TENSOR_MAP_SWIZZLE_NONE,
            Swizzle::B64 => DriverSwizzle::CU_TENSOR_MAP_SWIZZLE_64B,
            Swizzle::B128 => DriverSwizzle::CU_TENSOR_MAP_SWIZZLE_128B,
        };
        let promotion = match promotion {
            Promotion::B128 => DriverPromotion::CU_TENSOR_MAP_L2_PROMOTION_L2_128B,
            Promotion::B256 => DriverPromotion::CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
        };
        let ones = [1u32; RANK];
        // SAFETY: the arrays have RANK elements, the strides one less; the address is only recorded.
        let result = unsafe {
            sys::cuTensorMapEncodeTiled(
                &mut map.0,
                element,
                RANK as u32,
                ptr::with_exposed_provenance_mut(base as usize),
                dims.as_ptr(),
                strides.as_ptr(),
                boxed.as_ptr(),
                ones.as_ptr(),
                sys::CUtensorMapInterleave_enum::CU_TENSOR_MAP_INTERLEAVE_NONE,
                swizzle,
                promotion,
                sys::CUtensorMapFloatOOBfill_enum::CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE,
            )
        };
        check("cuTensorMapEncodeTiled", result).map(|()| map)
    }

    /// The map as the kernel gets it.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        // SAFETY: 128 bytes of plain numbers without padding.
        unsafe { std::slice::from_raw_parts(ptr::from_ref(self).cast(), size_of::<Self>()) }
    }
}
