//! The block on NVIDIA GPUs: hand-written kernels behind the driver API. README.md in this folder follows one call through it and says what each file is for.

pub mod addresses;
pub mod alarms;
pub mod arch;
pub mod block;
pub mod capture;
pub mod context;
pub mod device;
pub mod driver;
pub mod event;
pub mod exact;
pub mod graph;
pub mod hopper;
pub mod images;
pub mod latest;
pub mod launch;
pub mod launchers;
pub mod lone;
pub mod memory;
pub mod modules;
mod nodes;
pub mod pointer;
pub mod portable;
pub mod prepared;
pub mod rescue;
pub mod solve;
pub mod tensor_map;
pub mod workspace;
