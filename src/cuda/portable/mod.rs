//! The kernels of Turing and Ampere, which every GPU from 7.5 on can run: one launch a stage.

pub mod block;
pub mod kernels;
pub mod plan;
