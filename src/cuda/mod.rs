//! The block on NVIDIA GPUs: hand-written kernels behind the driver API.

pub mod addresses;
pub mod alarms;
pub mod arch;
pub mod block;
pub mod device;
pub mod driver;
pub mod event;
pub mod exact;
pub mod exact_chain;
pub mod exact_long;
pub mod exact_work;
pub mod graph;
pub mod hopper;
pub mod images;
pub mod launch;
pub mod launchers;
pub mod lone;
pub mod memory;
pub mod modules;
pub mod pointer;
pub mod portable;
pub mod prepared;
pub mod rescue;
pub mod solve;
pub mod tensor_map;
pub mod workspace;
