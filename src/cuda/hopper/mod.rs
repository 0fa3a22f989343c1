//! The kernels of Hopper: launches that overlap, or for a few tokens one kernel that stays resident.

pub mod block;
pub mod kernels;
mod packed;
pub mod plan;
pub mod views;
