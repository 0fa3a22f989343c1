//! One GPU: its loaded kernels, who uses it, and whether it is still alive.

use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use cudarc::driver::sys;
use sys::CUdevice_attribute_enum as Attribute;

use super::arch::Arch;
use super::block::Kernels;
use super::context::Context;
use super::driver::check;
use super::launchers::Launchers;
use super::solve::Solver;
use crate::error::Error;
use crate::knobs::Knobs;

/// A GPU, opened. Lives as long as the process, even where the device is reset: blocks know it.
pub struct Device {
    /// The driver's number of it.
    pub ordinal: usize,
    /// The kernels that it runs.
    pub arch: Arch,
    /// Streaming multiprocessors, as the driver counts them.
    pub sms: usize,
    /// Whether a kernel may enable a node of its graph.
    pub nodes_wake: bool,
    /// The priority in front of all others, where kernels know griddepcontrol.
    pub foremost: Option<i32>,
    /// The kernels of `arch`, loaded.
    pub kernels: Kernels,
    /// Who launches grids on it.
    pub launchers: Launchers,
    solver: Mutex<Solver>,
    context: Context,
    lost: OnceLock<Error>,
}

impl Device {
    /// Opens the GPU on the best path that it can run, or on this one.
    pub fn open(ordinal: usize, arch: Option<Arch>) -> Result<Self, Error> {
        let number = i32::try_from(ordinal).unwrap_or(i32::MAX);
        let capability = Self::capability_of(number)?;
        let sms = attribute(number, Attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)? as usize;
        let arch = chosen(ordinal, capability, sms, arch)?;

        let context = Context::retain(number)?;
        let loaded = context.enter().and_then(|_entered| {
            let foremost = if arch == Arch::Sm90a { highest_priority()? } else { None };
            Ok((Kernels::load(arch, capability, sms)?, foremost))
        });
        if loaded.is_err() {
            Context::release(number);
        }
        let ((kernels, foremost), instrumented) = (loaded?, Knobs::get()?.instrumented);
        let mps = attribute(number, Attribute::CU_DEVICE_ATTRIBUTE_MPS_ENABLED).is_ok_and(|enabled| enabled != 0);
        let (launchers, solver) = (Launchers::new(mps), Mutex::default());
        // Not known of MPS. Under Nsight Compute such a node stays disabled, and under compute-sanitizer (both of CUDA 13.0) the launch fails.
        let nodes_wake = !mps && !instrumented;
        Ok(Self {
            ordinal,
            arch,
            sms,
            nodes_wake,
            foremost,
            kernels,
            launchers,
            solver,
            context,
            lost: OnceLock::new(),
        })
    }

    /// What `solve()` keeps between calls; the lock makes one call's work contiguous in the stream.
    pub fn lock_solver(&self) -> MutexGuard<'_, Solver> {
        self.solver.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Compute capability of a device that need not be open.
    pub fn capability_of(number: i32) -> Result<(u32, u32), Error> {
        Ok((
            attribute(number, Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?,
            attribute(number, Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?,
        ))
    }

    /// Whether a reset has taken its kernels and memory: it is of no use any more, but the GPU may be opened again.
    #[must_use]
    pub fn is_reset(&self) -> bool {
        self.context.is_reset()
    }

    /// Whether this is the context that `run` makes current.
    #[must_use]
    pub fn is_of(&self, context: Option<sys::CUcontext>) -> bool {
        context == Some(self.context.handle())
    }

    /// Runs `work` with this device's context current, restores the caller's, and remembers a fault that killed the context.
    pub fn run<T>(&self, work: impl FnOnce() -> Result<T, Error>) -> Result<T, Error> {
        if self.is_reset() {
            return Err(Error::Reset { device: self.ordinal });
        }
        if let Some(cause) = self.lost.get() {
            return Err(Error::Lost { device: self.ordinal, cause: Box::new(cause.clone()) });
        }
        let entered = self.context.enter()?;
        let outcome = work();
        drop(entered);
        if let Err(error) = &outcome
            && error.is_fault()
        {
            self.lost.get_or_init(|| error.clone());
        }
        outcome
    }
}

/// The best path for such a device, or this one if it runs there.
fn chosen(ordinal: usize, capability: (u32, u32), sms: usize, asked: Option<Arch>) -> Result<Arch, Error> {
    let able: Vec<_> = Arch::ALL.into_iter().filter(|arch| arch.runs_on(capability)).collect();
    let device = format!("device {ordinal} of compute capability {}.{}", capability.0, capability.1);
    let Some(&oldest) = able.first() else {
        let built_in = names(Arch::built_in());
        return Err(Error::Unsupported(format!("{device} runs none of this build's kernels ({built_in})")));
    };
    if let Some(arch) = asked
        && !able.contains(&arch)
    {
        let (name, runs) = (arch.name(), names(able.into_iter()));
        return Err(Error::Unsupported(format!("SOLVE_ARCH is {name}, of this build's kernels {device} runs {runs}")));
    }
    let best = match asked {
        Some(arch) => Some(arch).filter(|arch| sms >= arch.fewest_sms()),
        None => Arch::best_for(capability, sms),
    };
    best.ok_or_else(|| {
        let least = asked.unwrap_or(oldest);
        let (name, fewest) = (least.name(), least.fewest_sms());
        let text = format!("device {ordinal} has {sms} multiprocessors for this process, {name} needs {fewest}");
        Error::Unsupported(text)
    })
}

/// For error messages.
fn names(archs: impl Iterator<Item = Arch>) -> String {
    archs.map(Arch::name).collect::<Vec<_>>().join(", ")
}

/// Of launches in the current context. None: they have all the same.
fn highest_priority() -> Result<Option<i32>, Error> {
    let (mut least, mut greatest) = (0, 0);
    // SAFETY: writes two ints.
    let result = unsafe { sys::cuCtxGetStreamPriorityRange(&mut least, &mut greatest) };
    check("cuCtxGetStreamPriorityRange", result)?;
    Ok((greatest < least).then_some(greatest))
}

fn attribute(number: i32, attribute: Attribute) -> Result<u32, Error> {
    let mut value = 0;
    // SAFETY: writes one int; an unknown device is an error.
    check("cuDeviceGetAttribute", unsafe { sys::cuDeviceGetAttribute(&mut value, attribute, number) })?;
    Ok(value.unsigned_abs())
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn a_path_is_chosen_or_refused_with_its_reason() {
        if Arch::built_in().count() < Arch::ALL.len() {
            let _ = writeln!(std::io::stderr(), "\nskipped: this build leaves architectures out");
            return;
        }
        let chosen = |capability, sms, asked| chosen(0, capability, sms, asked).map_err(|error| error.to_string());
        assert_eq!(chosen((9, 0), 132, None), Ok(Arch::Sm90a));
        assert_eq!(chosen((9, 0), 132, Some(Arch::Sm75)), Ok(Arch::Sm75));
        assert_eq!(chosen((9, 0), 7, None), Ok(Arch::Sm80));
        let refused = [
            (
                (6, 1),
                80,
                None,
                "device 0 of compute capability 6.1 runs none of this build's kernels (sm75, sm80, sm90a)",
            ),
            (
                (8, 6),
                80,
                Some(Arch::Sm90a),
                "SOLVE_ARCH is sm90a, of this build's kernels device 0 of compute capability 8.6 runs sm75, sm80",
            ),
            ((9, 0), 7, Some(Arch::Sm90a), "device 0 has 7 multiprocessors for this process, sm90a needs 8"),
            ((9, 0), 1, None, "device 0 has 1 multiprocessors for this process, sm75 needs 2"),
        ];
        for (capability, sms, asked, reason) in refused {
            assert_eq!(chosen(capability, sms, asked), Err(reason.to_owned()));
        }
    }
}
