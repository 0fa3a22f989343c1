//! The grader's side of the region: host memory or device memory, either shared by file descriptor.

pub mod cuda;
pub mod host;

use crate::reason::Failure;

/// Memory that the grader owns and a candidate works on. Offsets and lengths are in floats.
pub trait Memory {
    /// Copies `values` in.
    fn write(&mut self, at: usize, values: &[f32]) -> Result<(), Failure>;
    /// Copies out.
    fn read(&mut self, at: usize, values: &mut [f32]) -> Result<(), Failure>;
    /// Fills with one 32-bit pattern.
    fn fill(&mut self, at: usize, len: usize, pattern: u32) -> Result<(), Failure>;
}
