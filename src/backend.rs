//! Which backend serves a call, and the two kinds of prepared block.

use std::sync::{PoisonError, RwLock};

use crate::error::Error;
use crate::precision::SolvePrecision;
use crate::span::{Span, Tokens};
use crate::weights::{WEIGHTS_LEN, Weights};
use crate::{cpu, host};

/// A `CUstream` of the caller, as a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stream(pub usize);

/// `solve()`: one sequence, nothing remembered.
pub fn solve(x: usize, output: usize, weights: usize, seq_len: i32) -> Result<(), Error> {
    let tokens = Tokens::new(x, output, 1, seq_len)?;
    let weights = Span::weights(weights)?;
    tokens.check_apart(&weights)?;
    cpu_forward(&tokens, host::read(&weights)?, false)
}

/// What a handle is to be, checked.
#[derive(Clone, Copy, Debug)]
pub struct BlockOptions {
    /// Ordinal of the GPU, or where the weights are.
    pub device: Option<usize>,
    /// Precision of the matrix products.
    pub precision: SolvePrecision,
    /// Token i attends to tokens 0..=i only.
    pub causal: bool,
    /// Rows that one forward may have.
    pub max_tokens: usize,
}

impl Default for BlockOptions {
    fn default() -> Self {
        Self { device: None, precision: SolvePrecision::Fast, causal: false, max_tokens: 4096 }
    }
}

impl BlockOptions {
    /// The caller's numbers, in the order of the struct in the header.
    pub fn from_numbers(device: i32, precision: i32, causal: i32, max_tokens: i32) -> Result<Self, Error> {
        let invalid = |argument, value: i32, expected| Error::Invalid { argument, value: value.into(), expected };
        let default = Self::default();
        Ok(Self {
            device: match device {
                -1 => None,
                _ => Some(usize::try_from(device).map_err(|_| invalid("options->device", device, "-1 or more"))?),
            },
            precision: SolvePrecision::from_number(precision)
                .ok_or_else(|| invalid("options->precision", precision, "a solve_precision"))?,
            causal: causal != 0,
            max_tokens: match usize::try_from(max_tokens) {
                Ok(0) => default.max_tokens,
                Ok(tokens) => tokens,
                Err(_) => return Err(invalid("options->max_tokens", max_tokens, "0 or more")),
            },
        })
    }
}

/// A prepared block.
pub enum Block {
    /// On the host: the weights and whether attention is causal.
    Cpu(CpuBlock),
}

impl Block {
    /// Prepares the block where the options or the weights say.
    pub fn create(weights: usize, options: BlockOptions) -> Result<Self, Error> {
        let weights = Span::weights(weights)?;
        Ok(Self::Cpu(CpuBlock { weights: RwLock::new(copy(host::read(&weights)?)?), options }))
    }

    /// Runs it.
    pub fn forward(&self, x: usize, output: usize, batch: i32, seq_len: i32, stream: Stream) -> Result<(), Error> {
        let tokens = Tokens::new(x, output, batch, seq_len)?;
        let options = match self {
            Self::Cpu(block) => &block.options,
        };
        if tokens.rows() > options.max_tokens {
            let expected = "at most the max_tokens that the block was created with";
            return Err(Error::Invalid { argument: "batch * seq_len", value: tokens.rows() as i64, expected });
        }
        match self {
            Self::Cpu(block) => {
                check_no_stream(stream)?;
                let weights = block.weights.read().unwrap_or_else(PoisonError::into_inner);
                cpu_forward(&tokens, &weights, options.causal)
            }
        }
    }

    /// Replaces the weights.
    pub fn update(&self, weights: usize, stream: Stream) -> Result<(), Error> {
        let weights = Span::weights(weights)?;
        match self {
            Self::Cpu(block) => {
                check_no_stream(stream)?;
                let fresh = copy(host::read(&weights)?)?;
                *block.weights.write().unwrap_or_else(PoisonError::into_inner) = fresh;
                Ok(())
            }
        }
    }
}

/// A block on the host.
pub struct CpuBlock {
    weights: RwLock<Vec<f32>>,
    options: BlockOptions,
}

/// "0.1.0 cuda 13.0 sm75 sm80 sm90a"
#[must_use]
pub fn version() -> String {
    String::from(env!("CARGO_PKG_VERSION"))
}

fn cpu_forward(tokens: &Tokens, weights: &[f32], causal: bool) -> Result<(), Error> {
    let weights: &[f32; WEIGHTS_LEN] = weights.try_into().map_err(|_| Error::Null { argument: "weights" })?;
    host::check(&tokens.output, "writable")?;
    let x = host::read(&tokens.x)?;
    let result = cpu::forward(x, Weights::new(weights), tokens.batch, tokens.seq_len, causal)?;
    host::write(&tokens.output)?.copy_from_slice(&result);
    Ok(())
}

fn copy(weights: &[f32]) -> Result<Vec<f32>, Error> {
    let mut copy = Vec::new();
    let bytes = size_of_val(weights);
    copy.try_reserve_exact(weights.len()).map_err(|_| Error::OutOfMemory { what: "a copy of the weights", bytes })?;
    copy.extend_from_slice(weights);
    Ok(copy)
}

fn check_no_stream(stream: Stream) -> Result<(), Error> {
    match stream {
        Stream(0) => Ok(()),
        Stream(other) => {
            Err(Error::Invalid { argument: "stream", value: other as i64, expected: "null for a block on the CPU" })
        }
    }
}
