//! Everything that can go wrong, as a status for programs and a sentence for people.
//!
//! A sentence names the argument, what it was and what was wanted. Status numbers are part of the C ABI: append, never reuse.

/// Outcome of a call.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SolveStatus {
    /// The call did what it says.
    Ok = 0,
    /// A pointer argument is null.
    NullPointer = 1,
    /// A number is outside its range, an options struct has the wrong size, or a buffer is too short for its shape.
    InvalidArgument = 2,
    /// A pointer is not a multiple of 4 bytes.
    Misaligned = 3,
    /// `output` overlaps an input other than by being `x` itself.
    Overlap = 4,
    /// The pointers are not all on one device or all on the host, or not where the handle is.
    MixedMemory = 5,
    /// A pointer is not memory that this process may use: freed, foreign, or read-only output.
    BadPointer = 6,
    /// The device or the host has too little memory, or the process no thread or file descriptor left.
    OutOfMemory = 7,
    /// No usable GPU where one is required.
    NoDevice = 8,
    /// The CUDA driver reported an error. After a fault on the device every later call on that device reports it again.
    Driver = 9,
    /// This build, driver or GPU cannot do what was asked.
    Unsupported = 10,
    /// The handle was never created or is already destroyed.
    BadHandle = 11,
    /// A defect in the library, caught before it could reach the caller.
    Panic = 12,
}

/// Why a call failed.
#[derive(Clone, Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the message of each variant names its fields")]
pub enum Error {
    #[error("{argument} is null")]
    Null { argument: &'static str },
    #[error("{argument} is {value}, expected {expected}")]
    Invalid { argument: &'static str, value: i64, expected: &'static str },
    #[error("options->size is {size}, expected {expected}, sizeof(solve_options) of this library's header")]
    OptionsSize { size: usize, expected: usize },
    #[error("stream is {stream:#x}, expected null for a block on the CPU")]
    StreamOnCpu { stream: usize },
    #[error("batch * seq_len is {tokens}, the block was created for max_tokens = {most}")]
    TooMany { tokens: usize, most: usize },
    #[error("{argument} holds {have} bytes from {address:#x} on, its shape needs {need}")]
    Short { argument: &'static str, address: usize, have: usize, need: usize },
    #[error("{argument} is at {address:#x}, not a multiple of 4 bytes")]
    Misaligned { argument: &'static str, address: usize },
    #[error("output at {output:#x} overlaps {input} at {address:#x}; only output == x may share memory")]
    Overlap { input: &'static str, output: usize, address: usize },
    #[error("{first} is {first_place} and {second} is {second_place}; all must be on one device or all on the host")]
    Mixed { first: &'static str, first_place: String, second: &'static str, second_place: String },
    #[error("{argument} is {place}, but the block is on {block}")]
    Elsewhere { argument: &'static str, place: String, block: String },
    #[error("{argument} at {address:#x} is not {access} memory of this process for {bytes} bytes")]
    BadPointer { argument: &'static str, address: usize, access: &'static str, bytes: usize },
    #[error("out of memory: {bytes} bytes for {what}")]
    OutOfMemory { what: String, bytes: usize },
    #[error("out of resources: {what}: {why}")]
    Exhausted { what: &'static str, why: String },
    #[error("no usable GPU: {0}")]
    NoDevice(String),
    #[error("CUDA driver: {what} failed with error {code} ({name})")]
    Driver { what: &'static str, code: u32, name: String },
    #[error("device {device} is lost to this process since an earlier fault: {cause}")]
    Lost { device: usize, cause: Box<Error> },
    #[error("device {device} was reset (cudaDeviceReset) after this block was created")]
    Reset { device: usize },
    #[error("the block's weights are incomplete since an update failed half-way; update it again")]
    Incomplete,
    #[error("{0}")]
    Unsupported(String),
    #[error("block {handle:#x} does not exist: never created, or already destroyed")]
    BadHandle { handle: usize },
}

impl Error {
    /// The number a C caller sees.
    #[must_use]
    pub fn status(&self) -> SolveStatus {
        match self {
            Self::Null { .. } => SolveStatus::NullPointer,
            Self::Invalid { .. }
            | Self::OptionsSize { .. }
            | Self::StreamOnCpu { .. }
            | Self::TooMany { .. }
            | Self::Short { .. } => SolveStatus::InvalidArgument,
            Self::Misaligned { .. } => SolveStatus::Misaligned,
            Self::Overlap { .. } => SolveStatus::Overlap,
            Self::Mixed { .. } | Self::Elsewhere { .. } => SolveStatus::MixedMemory,
            Self::BadPointer { .. } => SolveStatus::BadPointer,
            Self::OutOfMemory { .. } | Self::Exhausted { .. } => SolveStatus::OutOfMemory,
            Self::NoDevice(_) => SolveStatus::NoDevice,
            Self::Driver { .. } | Self::Lost { .. } | Self::Reset { .. } | Self::Incomplete => SolveStatus::Driver,
            Self::Unsupported(_) => SolveStatus::Unsupported,
            Self::BadHandle { .. } => SolveStatus::BadHandle,
        }
    }

    /// Whether a fault has killed the device's context, so that every later call on the device must fail too.
    #[must_use]
    pub fn is_fault(&self) -> bool {
        match self {
            Self::Lost { .. } => true,
            // Uncorrectable ECC and NVLink errors, the faults of kernels from illegal address to launch failure, and of other clients of MPS or devices. Not
            // 709, a destroyed context: that is what the driver says of a stream that is gone, too, and of a reset `Device::is_reset` knows.
            Self::Driver { code, .. } => {
                matches!(code, 214 | 220 | 226 | 700 | 702 | 710 | 714..=719 | 721 | 810 | 911)
            }
            _ => false,
        }
    }
}
