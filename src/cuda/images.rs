//! The compiled kernels, embedded by build.rs. Empty in a build without GPU code.

use super::arch::Arch;

/// One file of `cuda/` compiled to one form.
pub struct Image {
    /// File name without its ending, such as `gemm_sm80`.
    pub name: &'static str,
    /// The architecture in that name.
    pub arch: Arch,
    /// PTX text; otherwise a cubin.
    pub ptx: bool,
    /// The file.
    pub bytes: &'static [u8],
}

include!(concat!(env!("OUT_DIR"), "/images.rs"));
