//! One GPT-2-small transformer block behind one C function.

pub mod dims;
pub mod weights;
