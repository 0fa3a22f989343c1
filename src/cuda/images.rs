//! The compiled kernels, embedded by build.rs. Empty in a build without GPU code.

use super::arch::Arch;

/// One file of `cuda/` compiled to one form.
pub struct Image {
    /// File name without its ending, such as `gemm_qkv_sm80`.
    pub name: &'static str,
    /// The architecture in that name.
    pub arch: Arch,
    /// PTX text; otherwise a cubin.
    pub ptx: bool,
    /// The file as the driver reads it: a cubin by aligned words, PTX up to a zero byte, which is the last one.
    pub bytes: &'static [u8],
}

#[repr(C, align(16))]
#[allow(dead_code, reason = "a build without GPU code has no cubins")]
struct Aligned<T>(T);

include!(concat!(env!("OUT_DIR"), "/images.rs"));
