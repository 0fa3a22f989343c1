//! The block on NVIDIA GPUs: hand-written kernels behind the driver API.

pub mod arch;
pub mod block;
pub mod device;
pub mod driver;
pub mod images;
pub mod kernels;
pub mod launch;
pub mod memory;
pub mod plan;
pub mod pointer;
pub mod prepared;
pub mod solve;
pub mod workspace;
