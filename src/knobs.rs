//! The environment: the knobs of the table in lib.rs, and what tools leave there; read once.

use std::env;
use std::sync::OnceLock;

use crate::cuda::arch::Arch;
use crate::error::Error;
use crate::precision::SolvePrecision;

/// `RAYON_NUM_THREADS` at most. Starting a hundred thousand threads takes minutes, in which a call looks as if it hung.
const MOST_THREADS: usize = 1024;

/// Which device `SOLVE_DEVICE` asks for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Device {
    /// A GPU if there is one.
    #[default]
    Any,
    /// Never a GPU.
    Cpu,
    /// A GPU or an error.
    Cuda,
}

/// The knobs of this process.
#[derive(Clone, Debug, Default)]
pub struct Knobs {
    /// `SOLVE_DEVICE`
    pub device: Device,
    /// `SOLVE_ARCH`
    pub arch: Option<Arch>,
    /// `SOLVE_PRECISION`
    pub precision: SolvePrecision,
    /// `RAYON_NUM_THREADS`; 0 is one for each CPU that the thread which starts them may use.
    pub threads: usize,
    /// Whether this process runs under compute-sanitizer or Nsight Compute, by a variable that both set.
    pub instrumented: bool,
}

impl Knobs {
    /// The knobs as they were at the first call; a value that means nothing is an error at every call.
    pub fn get() -> Result<&'static Self, Error> {
        static KNOBS: OnceLock<Result<Knobs, Error>> = OnceLock::new();
        KNOBS.get_or_init(Self::from_environment).as_ref().map_err(Clone::clone)
    }

    fn from_environment() -> Result<Self, Error> {
        // What is not UTF-8 means nothing either.
        let value = |name| {
            env::var_os(name).map(|value| value.to_string_lossy().into_owned()).filter(|value| !value.is_empty())
        };
        let device = match value("SOLVE_DEVICE").as_deref() {
            None => Device::Any,
            Some("cpu") => Device::Cpu,
            Some("cuda") => Device::Cuda,
            Some(other) => return Err(unknown("SOLVE_DEVICE", other, "cpu or cuda")),
        };
        let precision = match value("SOLVE_PRECISION") {
            None => SolvePrecision::default(),
            Some(name) => SolvePrecision::from_name(&name)
                .ok_or_else(|| unknown("SOLVE_PRECISION", &name, "fast, exact or auto"))?,
        };
        let arch = match value("SOLVE_ARCH") {
            None => None,
            Some(name) => {
                Some(Arch::from_name(&name).ok_or_else(|| unknown("SOLVE_ARCH", &name, "sm75, sm80 or sm90a"))?)
            }
        };
        let threads = match value("RAYON_NUM_THREADS") {
            None => 0,
            Some(count) => threads_in(&count)?,
        };
        let instrumented = env::var_os("NVIDIA_PROCESS_INJECTION_CRASH_REPORTING").is_some();
        Ok(Self { device, arch, precision, threads, instrumented })
    }
}

fn threads_in(count: &str) -> Result<usize, Error> {
    let threads = count.parse().ok().filter(|&threads| threads <= MOST_THREADS);
    threads.ok_or_else(|| unknown("RAYON_NUM_THREADS", count, &format!("a number up to {MOST_THREADS}")))
}

fn unknown(name: &str, value: &str, expected: &str) -> Error {
    Error::Unsupported(format!("{name} is {value:?}, expected {expected}"))
}
