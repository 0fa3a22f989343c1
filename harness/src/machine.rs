//! The machine that a grade was made on, and the time of day.

use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

use crate::gpu::{self, Gpu};
use crate::protocol::Device;
use crate::reason::{Failure, Reason};

/// What a reader of a report needs to know.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Machine {
    pub cpu: String,
    pub cores: usize,
    pub kernel: String,
    /// And what follows: of the GPU, where it is used.
    pub gpu: Option<String>,
    pub sms: Option<usize>,
    pub l2_mib: Option<usize>,
    pub max_clock_mhz: Option<f64>,
    pub compute_capability: Option<String>,
    /// The driver's CUDA version and its own.
    pub driver: Option<String>,
}

fn first_after(path: &str, key: &str) -> Option<String> {
    let text = std::fs::read_to_string(path).ok()?;
    let line = text.lines().find(|line| line.starts_with(key))?;
    Some(line.split(':').nth(1)?.trim().to_string())
}

impl Machine {
    /// This machine, with this GPU.
    pub fn here(gpu: Option<&Gpu>) -> Self {
        let read = |path| std::fs::read_to_string(path).map(|s| s.trim().to_string()).unwrap_or_default();
        Self {
            cpu: first_after("/proc/cpuinfo", "model name").unwrap_or_else(|| "unknown".into()),
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            kernel: read("/proc/sys/kernel/osrelease"),
            gpu: gpu.map(|g| g.name.clone()),
            sms: gpu.map(|g| g.sms),
            l2_mib: gpu.map(|g| g.l2_bytes >> 20),
            max_clock_mhz: gpu.map(|g| g.max_clock_mhz),
            compute_capability: gpu.map(|g| format!("{}.{}", g.capability.0, g.capability.1)),
            driver: gpu.map(|g| format!("{} (CUDA {}.{})", kernel_driver(), g.driver / 1000, g.driver % 1000 / 10)),
        }
    }

    /// The GPU if there is one, for this choice of device. One that cannot be used is a failure unless it is not wanted:
    /// otherwise the CPU would be graded in silence.
    pub fn gpu(device: Option<Device>) -> Result<Option<Gpu>, Failure> {
        match gpu::open() {
            Ok(gpu) => Ok(Some(gpu)),
            Err(failure) if device == Some(Device::Cpu) || !gpu::present() => {
                // Whoever asks for a GPU by name learns why there is none.
                if device == Some(Device::Cuda) { Err(failure) } else { Ok(None) }
            }
            Err(failure) => Err(Failure::new(Reason::Environment, failure.message).during("the GPU cannot be used")),
        }
    }
}

/// Processors that a call may have for a moment: all of them, also where a quota of their time allows fewer for long.
pub fn processors() -> usize {
    // SAFETY: no arguments to get wrong.
    usize::try_from(unsafe { libc::sysconf(libc::_SC_NPROCESSORS_ONLN) }).unwrap_or(1).max(1)
}

/// Whether they multiply matrices (AMX).
pub fn has_matrix_units() -> bool {
    first_after("/proc/cpuinfo", "flags").is_some_and(|flags| flags.split(' ').any(|flag| flag.starts_with("amx_")))
}

/// The kernel module's version, such as 580.159.04.
fn kernel_driver() -> String {
    let text = std::fs::read_to_string("/proc/driver/nvidia/version").unwrap_or_default();
    let version =
        text.split_whitespace().find(|word| word.split('.').count() >= 2 && word.starts_with(char::is_numeric));
    version.unwrap_or("unknown").to_string()
}

/// Now, in UTC, as 2026-01-31T12:00:00Z.
pub fn now() -> String {
    let seconds = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs());
    iso(seconds)
}

/// Seconds since 1970 as a date, by Hinnant's algorithm for days in a calendar whose years start in March.
fn iso(seconds: u64) -> String {
    let (days, rest) = ((seconds / 86_400) as i64 + 719_468, seconds % 86_400);
    let era = days / 146_097;
    let day_of_era = days % 146_097;
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let march_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * march_month + 2) / 5 + 1;
    let month = if march_month < 10 { march_month + 3 } else { march_month - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}Z", rest / 3600, rest / 60 % 60, rest % 60)
}

#[cfg(test)]
mod tests {
    use super::{Machine, iso};
    use crate::gpu::Gpu;

    #[test]
    fn dates_are_right() {
        assert_eq!(iso(0), "1970-01-01T00:00:00Z");
        assert_eq!(iso(951_782_400), "2000-02-29T00:00:00Z");
        assert_eq!(iso(1_767_225_599), "2025-12-31T23:59:59Z");
    }

    #[test]
    fn versions_are_told_as_their_makers_write_them() {
        let told = |capability, driver| {
            let machine = Machine::here(Some(&Gpu { capability, driver, ..Gpu::sample() }));
            (machine.compute_capability.unwrap_or_default(), machine.driver.unwrap_or_default())
        };
        let (capability, driver) = told((8, 9), 12_080);
        assert!(capability == "8.9" && driver.ends_with(" (CUDA 12.8)"), "{capability}, {driver}");
        assert!(told((9, 0), 13_000).1.ends_with(" (CUDA 13.0)"));
    }
}
