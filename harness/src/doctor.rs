//! Is this machine fit to measure on? Looks at everything that has spoilt a measurement before, changes nothing.

use std::process::Command;
use std::time::Duration;

use crate::compiler;
use crate::gpu::{self, Gpu};
use crate::machine::Machine;
use crate::memory::cuda::Cuda;
use crate::protocol::{Crossing, Device, Request};
use crate::reason::{Failure, Reason};
use crate::session::Session;
use crate::ui::say;

/// Free memory below this is too little for a long sequence.
const NEEDED: usize = 2 << 30;

/// Prints what it finds. An unfit machine is no failure of the command.
pub fn run() -> Result<Reason, Failure> {
    let machine = Machine::here(None);
    say("processor", true, &format!("{}, {} cores", machine.cpu, machine.cores));
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let busy: f64 = load.split(' ').next().and_then(|v| v.parse().ok()).unwrap_or(0.0);
    say("load", busy < machine.cores as f64 / 2.0, &format!("{busy:.2}"));
    match compiler::find() {
        Ok(path) => say("compiler", true, &path.display().to_string()),
        Err(none) => say("compiler", false, &format!("{none}: .cu candidates cannot be graded")),
    }
    match gpu::open() {
        Ok(gpu) => on_gpu(&gpu),
        Err(failure) => say("GPU", false, &format!("{}: candidates are graded on the CPU", failure.message)),
    }
    Ok(Reason::Pass)
}

fn say(what: &str, good: bool, found: &str) {
    say!("{} {what:<12} {found}", if good { "ok  " } else { "LOOK" });
}

fn on_gpu(gpu: &Gpu) {
    let machine = Machine::here(Some(gpu));
    let text = |v: &Option<String>| v.clone().unwrap_or_default();
    say("GPU", true, &format!("{}, compute {}", gpu.name, text(&machine.compute_capability)));
    say("driver", true, &text(&machine.driver));
    let (free, total) = gpu.memory;
    say("memory", free > NEEDED, &format!("{} of {} MiB free", free >> 20, total >> 20));
    match shares_device_memory() {
        Ok(()) => say("sharing", true, "device memory is shared: the grader keeps the buffers"),
        Err(failure) => say("sharing", false, &format!("{}: buffers will be copied", failure.message)),
    }
    for (what, field, good) in QUERIES {
        if let Some(value) = nvidia_smi(&[&format!("--query-gpu={field}"), "--format=csv,noheader"]) {
            say(what, good(&value), &value);
        }
    }
    let others = nvidia_smi(&["--query-compute-apps=pid,used_memory", "--format=csv,noheader"]).unwrap_or_default();
    let others = other_processes(&others, std::process::id());
    say("others", others.is_empty(), &if others.is_empty() { "no other process".into() } else { others.join("; ") });
}

/// The lines of nvidia-smi, each a process's id and its memory, but for this process's own.
fn other_processes(lines: &str, own: u32) -> Vec<&str> {
    let is_own = |line: &str| line.split(',').next().is_some_and(|id| id.trim().parse() == Ok(own));
    lines.lines().filter(|line| !line.trim().is_empty() && !is_own(line)).collect()
}

/// What nvidia-smi is asked, and what answer is fine.
type Query = (&'static str, &'static str, fn(&str) -> bool);

const QUERIES: [Query; 5] = [
    ("clocks", "clocks.sm,clocks.max.sm", |_| true),
    ("throttling", "clocks_event_reasons.active", |v| {
        u64::from_str_radix(v.trim_start_matches("0x"), 16).is_ok_and(|r| r & !1 == 0)
    }),
    ("temperature", "temperature.gpu", |v| v.parse::<u32>().is_ok_and(|t| t < 80)),
    ("persistence", "persistence_mode", |v| v.contains("Enabled")),
    ("MIG", "mig.mode.current", |v| !v.contains("Enabled")),
];

fn nvidia_smi(arguments: &[&str]) -> Option<String> {
    let output = Command::new("nvidia-smi").args(arguments).output().ok().filter(|o| o.status.success())?;
    Some(String::from_utf8_lossy(&output.stdout).trim().to_string())
}

/// Shares a little memory with another process.
fn shares_device_memory() -> Result<(), Failure> {
    const FLOATS: usize = 1 << 20;
    let memory = Cuda::create(FLOATS)?;
    let mut session = Session::start(&[], Some(memory.fd()))?;
    let attach = Request::Attach { device: Device::Cuda, crossing: Crossing::DeviceMemory, floats: FLOATS };
    session.ask(&attach, Duration::from_secs(30)).map(|_| ())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_whose_id_begins_like_ours_is_another_one() {
        let lines = "1234, 500 MiB\n\n123, 7 MiB\n12, 8 MiB\n";
        assert_eq!(other_processes(lines, 123), ["1234, 500 MiB", "12, 8 MiB"]);
        assert!(other_processes("", 123).is_empty());
    }
}
