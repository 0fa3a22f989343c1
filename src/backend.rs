//! Which backend serves a call, and the two kinds of prepared block.

use std::sync::{PoisonError, RwLock};

use crate::cuda::arch::Arch;
use crate::cuda::driver::{Driver, toolkit_version};
use crate::cuda::prepared::Prepared;
use crate::error::Error;
use crate::knobs::{Device, Knobs};
use crate::options::{BlockOptions, Stream};
use crate::span::{Span, Tokens};
use crate::weights::{WEIGHTS_LEN, Weights};
use crate::{cpu, cuda, host};

/// The GPUs that serve this process, or none: the CPU does. `SOLVE_DEVICE` has the last word.
fn driver() -> Result<Option<&'static Driver>, Error> {
    match Knobs::get()?.device {
        Device::Cpu => Ok(None),
        Device::Cuda => Driver::get().map(Some),
        Device::Any => match Driver::get() {
            Err(Error::NoDevice(_)) => Ok(None),
            other => other.map(Some),
        },
    }
}

/// `solve()`: one sequence, nothing remembered.
pub fn solve(x: usize, output: usize, weights: usize, seq_len: i32) -> Result<(), Error> {
    let tokens = Tokens::new(x, output, 1, seq_len)?;
    let weights = Span::weights(weights)?;
    match driver()? {
        None => {
            host::check([&tokens.x, &tokens.output, &weights])?;
            tokens.check_overlap(Some(&weights))?;
            // SAFETY: just checked.
            unsafe { cpu_forward(&tokens, host::weights(&weights), false) }
        }
        Some(driver) => cuda::solve::solve(driver, &tokens, &weights, Knobs::get()?.precision),
    }
}

/// A prepared block.
pub enum Block {
    /// On the host.
    Cpu(CpuBlock),
    /// On a GPU.
    Cuda(Box<Prepared>),
}

impl Block {
    /// Prepares the block where the options or the weights say.
    pub fn create(weights: usize, options: BlockOptions) -> Result<Self, Error> {
        let weights = Span::weights(weights)?;
        match driver()? {
            Some(driver) => Prepared::create(driver, &weights, options).map(|block| Self::Cuda(Box::new(block))),
            None => match (options.device, Knobs::get()?.device) {
                (Some(ordinal), Device::Any) => {
                    Err(Error::NoDevice(format!("options->device is {ordinal}, this process sees none")))
                }
                _ => Ok(Self::Cpu(CpuBlock { weights: RwLock::new(copy(&weights)?), options })),
            },
        }
    }

    /// Runs it.
    pub fn forward(&self, x: usize, output: usize, batch: i32, seq_len: i32, stream: Stream) -> Result<(), Error> {
        let tokens = Tokens::new(x, output, batch, seq_len)?;
        let options = match self {
            Self::Cpu(block) => &block.options,
            Self::Cuda(block) => block.options(),
        };
        if tokens.rows() > options.max_tokens {
            return Err(Error::TooMany { tokens: tokens.rows(), most: options.max_tokens });
        }
        match self {
            Self::Cpu(block) => {
                check_no_stream(stream)?;
                host::check([&tokens.x, &tokens.output])?;
                tokens.check_overlap(None)?;
                let weights = block.weights.read().unwrap_or_else(PoisonError::into_inner);
                // SAFETY: just checked.
                unsafe { cpu_forward(&tokens, &weights, options.causal) }
            }
            Self::Cuda(block) => block.forward(&tokens, stream),
        }
    }

    /// Replaces the weights.
    pub fn update(&self, weights: usize, stream: Stream) -> Result<(), Error> {
        let weights = Span::weights(weights)?;
        match self {
            Self::Cpu(block) => {
                check_no_stream(stream)?;
                let fresh = copy(&weights)?;
                *block.weights.write().unwrap_or_else(PoisonError::into_inner) = fresh;
                Ok(())
            }
            Self::Cuda(block) => block.update(&weights, stream),
        }
    }
}

/// A block on the host.
pub struct CpuBlock {
    weights: RwLock<Box<[f32; WEIGHTS_LEN]>>,
    options: BlockOptions,
}

/// "0.1.0 cuda 13.0 sm75 sm80 sm90a"
#[must_use]
pub fn version() -> String {
    let mut text = String::from(env!("CARGO_PKG_VERSION"));
    match toolkit_version() {
        0 => text += " without cuda",
        version => text += &format!(" cuda {}.{}", version / 1000, version % 1000 / 10),
    }
    for arch in Arch::built_in() {
        text = text + " " + arch.name();
    }
    text
}

/// # Safety
/// `host::check` has found x readable and output writable.
unsafe fn cpu_forward(tokens: &Tokens, weights: &[f32; WEIGHTS_LEN], causal: bool) -> Result<(), Error> {
    // SAFETY: as the caller says.
    let x = unsafe { host::floats(&tokens.x) };
    let result = cpu::forward(x, Weights::new(weights), tokens.batch, tokens.seq_len, causal)?;
    // SAFETY: as the caller says, and x, which may be there too, is done with.
    unsafe { host::floats_mut(&tokens.output) }.copy_from_slice(&result);
    Ok(())
}

/// The caller's weights, to be kept.
fn copy(weights: &Span) -> Result<Box<[f32; WEIGHTS_LEN]>, Error> {
    host::check([weights])?;
    let mut copy = Vec::new();
    let reserved = copy.try_reserve_exact(WEIGHTS_LEN);
    reserved.map_err(|_| Error::OutOfMemory { what: "a copy of the weights".to_owned(), bytes: weights.bytes })?;
    // SAFETY: just checked.
    copy.extend_from_slice(unsafe { host::weights(weights) });
    let copy = Box::into_raw(copy.into_boxed_slice());
    // SAFETY: it has that many floats: it is a copy of an array of them.
    Ok(unsafe { Box::from_raw(copy.cast()) })
}

fn check_no_stream(stream: Stream) -> Result<(), Error> {
    match stream {
        Stream::LEGACY => Ok(()),
        Stream(stream) => Err(Error::StreamOnCpu { stream }),
    }
}
