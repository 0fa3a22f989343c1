//! The exact kernel: the whole block at nearly fp32's accuracy in one resident launch, with the same arguments on every architecture.

use super::arch::Arch;

/// Memory of an architecture's exact kernel, as its file in cuda/exact/ cuts it: bytes, and bytes a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Memory {
    /// What does not depend on the rows: counters, scales, split weights.
    pub fixed: usize,
    /// Values on their way from one phase to the next. Nothing of them outlives a launch.
    pub per_row: usize,
}

/// The memory that this architecture's kernel needs; nothing where it has none.
#[must_use]
pub fn memory(arch: Arch) -> Memory {
    match arch {
        Arch::Sm75 | Arch::Sm80 | Arch::Sm90a => Memory { fixed: 0, per_row: 0 },
    }
}
