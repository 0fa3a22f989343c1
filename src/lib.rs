//! One GPT-2-small transformer block behind one C function.
//!
//! ```text
//! ffi ─> backend ─> cpu                 the readable specification, also the no-GPU product
//!                └> cuda ─> block       the sequence of launches
//!                           ├ plan      which kernels, tiles and grids (pure)
//!                           ├ launch    the one place that launches
//!                           └ graph     whole calls kept as CUDA graphs
//! registry keeps the handles; dims, weights, precision, options, span, host, error, panics, cancel and knobs are what all of them use.
//! ```
//!
//! Environment, read once, at the first call:
//!
//! | variable | values | effect |
//! |---|---|---|
//! | `SOLVE_DEVICE` | `cpu`, `cuda` | `cpu` never touches a GPU; `cuda` makes a missing GPU an error; unset: a GPU if there is one |
//! | `SOLVE_ARCH` | `sm75`, `sm80`, `sm90a` | run this path although the GPU could run a later one; unset: the latest |
//! | `SOLVE_PRECISION` | `fast`, `exact`, `auto` | precision of `solve`; a handle has an option for it; unset: `fast` |
//! | `RAYON_NUM_THREADS` | 0 to 1024 | threads of the CPU backend; unset or 0: one for each CPU that the first caller may use |
//!
//! `NVIDIA_PROCESS_INJECTION_CRASH_REPORTING`, which compute-sanitizer and Nsight Compute set, keeps kernels from waking a graph's node, which neither follows.
#![deny(unsafe_op_in_unsafe_fn, missing_docs)]
#![warn(clippy::undocumented_unsafe_blocks, clippy::unwrap_used, clippy::expect_used)]

pub mod backend;
pub mod cancel;
pub mod cpu;
pub mod cuda;
pub mod dims;
pub mod error;
pub mod ffi;
pub mod host;
pub mod knobs;
pub mod options;
pub mod panics;
pub mod precision;
pub mod registry;
pub mod span;
pub mod weights;
