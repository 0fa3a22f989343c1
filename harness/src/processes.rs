//! The processes of this machine as /proc tells of them: who is below whom, and the processor time that they have taken.

use std::collections::HashMap;
use std::path::Path;
use std::time::Duration;

use libc::pid_t;

/// The kernel's unit of what it tells of children.
const TICKS_A_SECOND: u32 = 100;
/// What rounding can add to the time that a process's children took between two looks: a tick each of user and of system time.
pub const ROUNDING: Duration = Duration::from_millis(2000 / TICKS_A_SECOND as u64);

/// What is told of a process.
struct Stat {
    parent: pid_t,
    session: pid_t,
    /// Time of the children that it has waited for, in ticks: of user and of system time, each rounded down.
    waited: u64,
}

/// All processes at one moment.
pub struct Processes(HashMap<pid_t, Stat>);

impl Processes {
    /// Those of now.
    pub fn now() -> Self {
        let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
        let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<pid_t>().ok());
        Self(pids.filter_map(|pid| Some((pid, stat(pid)?))).collect())
    }

    /// The children of a process.
    pub fn children(&self, of: pid_t) -> impl Iterator<Item = pid_t> {
        self.0.iter().filter(move |(_, stat)| stat.parent == of).map(|(&pid, _)| pid)
    }

    /// The session that a process is in.
    pub fn session(&self, of: pid_t) -> Option<pid_t> {
        self.0.get(&of).map(|stat| stat.session)
    }

    /// Everything below a process, at any depth.
    pub fn descendants(&self, pid: pid_t) -> Vec<pid_t> {
        let mut all = vec![pid];
        let mut next = 0;
        while next < all.len() {
            all.extend(self.children(all[next]).collect::<Vec<_>>());
            next += 1;
        }
        all.split_off(1)
    }

    /// Processor time that these processes and all below them have taken so far, with what has ended in them: threads, and children that were waited for.
    pub fn busy(&self, roots: impl IntoIterator<Item = pid_t>) -> Duration {
        let all = roots.into_iter().flat_map(|pid| [vec![pid], self.descendants(pid)].concat());
        let waited = |pid| self.0.get(&pid).map_or(0, |stat| stat.waited);
        all.map(|pid| own(pid) + Duration::from_secs(waited(pid)) / TICKS_A_SECOND).sum()
    }
}

fn stat(pid: pid_t) -> Option<Stat> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name, in parentheses, may hold anything; the state follows it.
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let number = |at: usize| fields.get(at)?.parse::<u64>().ok();
    let id = |at: usize| fields.get(at)?.parse::<pid_t>().ok();
    Some(Stat { parent: id(1)?, session: id(3)?, waited: number(13)? + number(14)? })
}

/// By the process's own clock, to the ns; no time where it is gone.
fn own(pid: pid_t) -> Duration {
    let mut clock: libc::clockid_t = 0;
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: two locals.
    let known = unsafe {
        libc::clock_getcpuclockid(pid, &raw mut clock) == 0 && libc::clock_gettime(clock, &raw mut time) == 0
    };
    if known { Duration::new(time.tv_sec as u64, time.tv_nsec as u32) } else { Duration::ZERO }
}

/// How long threads of this process, and the calling one, were ready to run while others had the processors, by the kernel's count; no time where it keeps
/// none. Threads that have ended are not in it.
pub fn kept_waiting(pid: pid_t) -> Duration {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let paths = tasks.map(|task| task.path()).chain(["/proc/thread-self".into()]);
    paths.filter_map(|path| run_delay(&path.join("schedstat"))).sum()
}

/// Processor time of the first thread of a process, where the kernel counts it.
pub fn first_thread(pid: pid_t) -> Option<Duration> {
    scheduled(Path::new(&format!("/proc/{pid}/task/{pid}/schedstat")), 0)
}

/// How long a thread was ready to run while others had the processors.
fn run_delay(file: &Path) -> Option<Duration> {
    scheduled(file, 1)
}

/// One of three numbers, in ns.
fn scheduled(file: &Path, number: usize) -> Option<Duration> {
    let text = std::fs::read_to_string(file).ok()?;
    Some(Duration::from_nanos(text.split_whitespace().nth(number)?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader, Write};
    use std::process::{Command, Stdio};
    use std::time::Instant;

    use super::*;

    fn this() -> pid_t {
        std::process::id() as pid_t
    }

    #[test]
    fn descendants_are_found_at_any_depth() {
        let stat = |parent| Stat { parent, session: 1, waited: 0 };
        let parents = [(2, 1), (3, 2), (4, 3), (5, 1), (6, 4)];
        let all = Processes(parents.map(|(pid, parent)| (pid, stat(parent))).into());
        let mut below = all.descendants(2);
        below.sort_unstable();
        assert_eq!(below, [3, 4, 6]);
        assert!(all.descendants(6).is_empty());
    }

    #[test]
    fn this_process_has_a_parent() {
        assert_eq!(stat(this()).map(|s| s.parent), Some(std::os::unix::process::parent_id() as pid_t));
        // SAFETY: a number.
        assert_eq!(stat(this()).map(|s| s.session), Some(unsafe { libc::getsid(0) }));
    }

    #[test]
    fn ticks_are_as_long_as_the_system_says() {
        // SAFETY: a number.
        assert_eq!(unsafe { libc::sysconf(libc::_SC_CLK_TCK) }, i64::from(TICKS_A_SECOND));
    }

    #[test]
    fn what_a_thread_did_counts_after_its_end() {
        let before = own(this());
        let spin = move || {
            let start = Instant::now();
            while own(this()) - before < Duration::from_millis(50) && start.elapsed().as_secs() < 60 {}
        };
        std::thread::spawn(spin).join().unwrap();
        assert!(Processes::now().busy([this()]) - before >= Duration::from_millis(50));
    }

    #[test]
    fn threads_that_share_a_processor_wait_for_each_other() {
        if run_delay(Path::new("/proc/thread-self/schedstat")).is_none() {
            let _ = writeln!(std::io::stderr(), "\nskipped: how long threads wait, which this kernel does not count");
            return;
        }
        // SAFETY: plain numbers: a set without any processor.
        let mut one: libc::cpu_set_t = unsafe { std::mem::zeroed() };
        // SAFETY: the number of a processor, which the set has a place for.
        unsafe { libc::CPU_SET(libc::sched_getcpu().max(0) as usize, &mut one) };
        let spin = move || {
            // SAFETY: of the calling thread; a set and its size.
            assert_eq!(unsafe { libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const one) }, 0);
            let start = Instant::now();
            while start.elapsed() < Duration::from_millis(200) {}
            let own = run_delay(Path::new("/proc/thread-self/schedstat")).expect("a count");
            (own, kept_waiting(this()))
        };
        let waited = [(); 2].map(|()| std::thread::spawn(spin)).map(|thread| thread.join().unwrap());
        assert!(waited.iter().any(|(own, _)| *own > Duration::from_millis(50)), "{waited:?}");
        assert!(waited.iter().all(|(own, all)| all >= own), "{waited:?}");
    }

    #[test]
    fn what_a_child_did_counts_after_its_end() {
        let work = "i=0; while [ $i -lt 200000 ]; do i=$((i + 1)); done";
        let mut shell = Command::new("sh");
        shell.args(["-c", &format!("sh -c '{work}'; echo done; read line")]);
        let mut shell = shell.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("a shell");
        let mut line = String::new();
        BufReader::new(shell.stdout.as_mut().expect("a pipe")).read_line(&mut line).unwrap();
        let (all, pid) = (Processes::now(), shell.id() as pid_t);
        let (busy, alone) = (all.busy([pid]), own(pid));
        drop(shell.stdin.take());
        shell.wait().unwrap();
        assert!(all.descendants(pid).is_empty() && busy >= alone + Duration::from_millis(30), "{busy:?}, {alone:?}");
    }
}
