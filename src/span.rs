//! A caller's buffers as numbers: named, sized and checked without touching them. What memory they are is for the backends to find out.

use crate::dims::D;
use crate::error::Error;
use crate::weights::WEIGHTS_LEN;

/// Sequences in one call at most: the third dimension of a grid.
pub const MAX_BATCH: usize = 65_535;

/// One buffer of floats.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// The argument's name in the header.
    pub argument: &'static str,
    /// Where it begins.
    pub address: usize,
    /// How long it is.
    pub bytes: usize,
}

impl Span {
    /// A buffer of `floats` floats that is neither null nor misaligned nor past the end of memory.
    pub fn new(argument: &'static str, address: usize, floats: usize) -> Result<Self, Error> {
        if address == 0 {
            return Err(Error::Null { argument });
        }
        if !address.is_multiple_of(align_of::<f32>()) {
            return Err(Error::Misaligned { argument, address });
        }
        let bytes = floats * size_of::<f32>();
        if address.checked_add(bytes).is_none() {
            return Err(Error::BadPointer { argument, address, access: "accessible", bytes });
        }
        Ok(Self { argument, address, bytes })
    }

    /// The weight buffer.
    pub fn weights(address: usize) -> Result<Self, Error> {
        Self::new("weights", address, WEIGHTS_LEN)
    }

    /// One past the last byte.
    #[must_use]
    pub fn end(&self) -> usize {
        self.address + self.bytes
    }

    /// Not on the 16 bytes that the GPU kernels load at once.
    #[must_use]
    pub fn is_misaligned(&self) -> bool {
        !self.address.is_multiple_of(16)
    }

    /// What it must be: "writable" where the library writes it, else "readable".
    #[must_use]
    pub fn access(&self) -> &'static str {
        if self.argument == "output" { "writable" } else { "readable" }
    }

    fn overlaps(&self, other: &Self) -> bool {
        self.address < other.end() && other.address < self.end()
    }
}

/// x and output of one call with their shape.
#[derive(Clone, Copy, Debug)]
pub struct Tokens {
    /// (batch, seq_len, D), read.
    pub x: Span,
    /// (batch, seq_len, D), written; may be x.
    pub output: Span,
    /// Sequences.
    pub batch: usize,
    /// Tokens in each.
    pub seq_len: usize,
}

impl Tokens {
    /// Checks everything that the numbers alone can tell.
    pub fn new(x: usize, output: usize, batch: i32, seq_len: i32) -> Result<Self, Error> {
        let positive = |argument, value: i32| match usize::try_from(value) {
            Ok(count) if count > 0 => Ok(count),
            _ => Err(Error::Invalid { argument, value: value.into(), expected: "1 or more" }),
        };
        let (batch, seq_len) = (positive("batch", batch)?, positive("seq_len", seq_len)?);
        if batch > MAX_BATCH {
            return Err(Error::Invalid { argument: "batch", value: batch as i64, expected: "at most 65535" });
        }
        let rows = batch * seq_len;
        if i32::try_from(rows).is_err() {
            let expected = "at most 2147483647";
            return Err(Error::Invalid { argument: "batch * seq_len", value: rows as i64, expected });
        }
        let (x, output) = (Span::new("x", x, rows * D)?, Span::new("output", output, rows * D)?);
        Ok(Self { x, output, batch, seq_len })
    }

    /// Rows of x: every token of every sequence.
    #[must_use]
    pub fn rows(&self) -> usize {
        self.batch * self.seq_len
    }

    /// Whether x or output needs scratch memory on a GPU.
    #[must_use]
    pub fn is_misaligned(&self) -> bool {
        self.x.is_misaligned() || self.output.is_misaligned()
    }

    /// Refuses output that shares memory with an input, other than by being x. To be asked last: a shape that is far too large makes any two
    /// buffers overlap, and then the buffers' lengths are the better answer.
    pub fn check_overlap(&self, weights: Option<&Span>) -> Result<(), Error> {
        let x = (self.x.address != self.output.address).then_some(&self.x);
        for input in x.into_iter().chain(weights) {
            if self.output.overlaps(input) {
                let (output, address) = (self.output.address, input.address);
                return Err(Error::Overlap { input: input.argument, output, address });
            }
        }
        Ok(())
    }
}
