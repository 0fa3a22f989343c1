//! The kernels of Hopper: six launches that overlap, or for a few tokens one that stays resident.

pub mod block;
pub mod kernels;
mod packed;
pub mod plan;
pub mod views;
