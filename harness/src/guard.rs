//! What keeps a candidate's process away from the grader: nobody reads the grader's memory, the candidate's process
//! gives up the rights by which root could, and whatever it started ends with it.

use std::io::Read;
use std::os::fd::IntoRawFd;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::sync::{Mutex, OnceLock};
use std::time::Duration;

use libc::{c_int, pid_t};

use crate::filter;
use crate::mounts;
use crate::processes::Processes;
use crate::run::Scratch;
use crate::scope;

/// Candidates' processes that are running.
static RUNNING: Mutex<Vec<pid_t>> = Mutex::new(Vec::new());

/// Children that this process was given with its number: a shell's, where that became the grader by `exec`. Nobody here waits for them, so that their
/// numbers remain theirs.
static GIVEN: OnceLock<Vec<pid_t>> = OnceLock::new();

/// In the grader, before it knows anything: no other process may look into this one, and orphans come here.
pub fn shield() {
    GIVEN.get_or_init(|| Processes::now().children(own()).collect());
    // SAFETY: plain numbers; a kernel that refuses leaves things as they were.
    unsafe {
        libc::prctl(libc::PR_SET_DUMPABLE, 0);
        libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1);
        // A file that may not grow (`ulimit -f`) is an error to tell of.
        libc::signal(libc::SIGXFSZ, libc::SIG_IGN);
    }
}

/// Where the handler leaves the code to exit with.
static NOTED: AtomicI32 = AtomicI32::new(-1);

/// Whether a signal has come.
static INTERRUPTED: AtomicBool = AtomicBool::new(false);

extern "C" fn note(signal: c_int) {
    INTERRUPTED.store(true, Ordering::SeqCst);
    noted(ended_by(signal));
}

/// The exit code by which a shell tells of this signal.
pub fn ended_by(signal: c_int) -> u8 {
    128 + signal as u8
}

fn noted(code: u8) -> bool {
    // SAFETY: write is async-signal-safe; a local.
    unsafe { libc::write(NOTED.load(Ordering::Relaxed), (&raw const code).cast(), 1) == 1 }
}

/// Ends the grader from anywhere, as an interrupt does.
pub fn leave(code: u8) -> ! {
    if !noted(code) {
        Scratch::remove();
        std::process::exit(code.into());
    }
    loop {
        std::thread::park();
    }
}

/// Whoever interrupts the grader ends the candidate, too, and whatever that started: those have left the terminal's
/// group, so that the terminal does not reach them. The folder for compiled candidates goes, too.
pub fn heed_interrupts() -> std::io::Result<()> {
    let (mut codes, writer) = std::io::pipe()?;
    NOTED.store(writer.into_raw_fd(), Ordering::Relaxed);
    for signal in [libc::SIGINT, libc::SIGQUIT, libc::SIGTERM, libc::SIGHUP] {
        // SAFETY: a handler that only writes a byte; who ignores a signal goes on ignoring it.
        unsafe {
            if libc::signal(signal, note as *const () as libc::sighandler_t) == libc::SIG_IGN {
                libc::signal(signal, libc::SIG_IGN);
            }
        }
    }
    std::thread::spawn(move || {
        let mut code = [0u8];
        if codes.read_exact(&mut code).is_err() {
            return;
        }
        // What a process starts between two looks is found by the next.
        for _ in 0..100 {
            let all = Processes::now();
            let children: Vec<pid_t> = children(&all).collect();
            if children.is_empty() {
                break;
            }
            for child in children {
                all.descendants(child).into_iter().chain([child]).for_each(kill);
                // SAFETY: no status is asked for.
                unsafe { libc::waitpid(child, std::ptr::null_mut(), libc::WNOHANG) };
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        Scratch::remove();
        std::process::exit(code[0].into());
    });
    Ok(())
}

/// Does not return once the grader has been interrupted: a candidate that the interrupt ended has not crashed, and the thread above ends this process.
pub fn give_way_to_interrupt() {
    while INTERRUPTED.load(Ordering::SeqCst) {
        std::thread::park();
    }
}

/// Capabilities that a candidate's process keeps where it has them: reading files (its libraries may be another user's) and locking memory.
const KEPT: [u32; 2] = [2, 14];

/// In a candidate's process, before the library is loaded: no way to other processes from here.
pub fn confine() {
    // SAFETY: closing on exec changes nothing in this process.
    unsafe {
        libc::fcntl(crate::protocol::LINK_FD, libc::F_SETFD, libc::FD_CLOEXEC);
        libc::fcntl(crate::protocol::REGION_FD, libc::F_SETFD, libc::FD_CLOEXEC);
    }
    mounts::narrow();
    drop_capabilities();
    // What it starts stays below it, to be counted and stopped with it, though what was between ends. SAFETY: plain numbers.
    unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1) };
    // SAFETY: numbers. What follows takes a process that cannot gain privileges.
    unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) };
    filter::confine(scope::begin());
}

fn drop_capabilities() {
    const VERSION_3: u32 = 0x2008_0522;
    for capability in (0..64).filter(|c| !KEPT.contains(c)) {
        // SAFETY: a number; capabilities that do not exist are refused.
        unsafe { libc::prctl(libc::PR_CAPBSET_DROP, libc::c_ulong::from(capability), 0, 0, 0) };
    }
    let mut header = [VERSION_3, 0];
    // Effective, permitted, inheritable, twice: the low and the high half.
    let mut sets = [[0u32; 3]; 2];
    // SAFETY: buffers of the sizes that version 3 has.
    unsafe {
        if libc::syscall(libc::SYS_capget, header.as_mut_ptr(), sets.as_mut_ptr()) != 0 {
            return;
        }
        let kept = KEPT.iter().fold(0, |mask, c| mask | 1u32 << c);
        sets[0] = [sets[0][0] & kept, sets[0][1] & kept, 0];
        sets[1] = [0; 3];
        libc::syscall(libc::SYS_capset, header.as_mut_ptr(), sets.as_ptr());
    }
}

/// Notes a candidate's process that was started.
pub fn started(pid: u32) {
    if let Ok(mut running) = RUNNING.lock() {
        running.push(pid as pid_t);
    }
}

/// Ends a process, its group, and everything that it started, wherever that has gone.
pub fn end(pid: u32) {
    let pid = pid as pid_t;
    let below = Processes::now().descendants(pid);
    // SAFETY: signals to processes below this one; one that is gone is no error.
    unsafe { libc::kill(-pid, libc::SIGKILL) };
    below.into_iter().chain([pid]).for_each(kill);
}

/// After a candidate's process has been waited for: what it left behind has become this process's child.
pub fn bury(pid: u32) {
    let Ok(mut running) = RUNNING.lock() else { return };
    running.retain(|&p| p != pid as pid_t);
    // What an orphan starts between two looks is found by the next.
    for _ in 0..100 {
        let all = Processes::now();
        let strays = strays(&all, &running);
        if strays.is_empty() {
            return;
        }
        for stray in strays {
            all.descendants(stray).into_iter().chain([stray]).for_each(kill);
            let mut status: c_int = 0;
            // SAFETY: a child of this process, and a local for its status.
            unsafe { libc::waitpid(stray, &raw mut status, 0) };
        }
    }
}

/// Stops a candidate's process and everything below it, or lets them go on.
pub fn halt(pid: u32, halted: bool) {
    let (pid, signal) = (pid as pid_t, if halted { libc::SIGSTOP } else { libc::SIGCONT });
    for pid in [vec![pid], Processes::now().descendants(pid)].concat() {
        // SAFETY: no memory. A process that is gone meanwhile was waited for by its parent, and its number does not come again so soon.
        unsafe { libc::kill(pid, signal) };
    }
}

/// Processor time that a candidate's process has taken so far, and everything that it started.
pub fn busy(pid: u32) -> Duration {
    let all = Processes::now();
    all.busy(roots(&all, pid as pid_t))
}

/// A candidate's process and everything that it started.
pub fn processes(pid: u32) -> Vec<pid_t> {
    let all = Processes::now();
    roots(&all, pid as pid_t).into_iter().flat_map(|pid| [vec![pid], all.descendants(pid)].concat()).collect()
}

/// A candidate's process, and what is no longer below it. That can be told from what others started only where no other runs.
fn roots(all: &Processes, pid: pid_t) -> Vec<pid_t> {
    let running = RUNNING.lock();
    let strays = running.ok().filter(|running| **running == [pid]).map(|running| strays(all, &running));
    [strays.unwrap_or_default(), vec![pid]].concat()
}

/// Children of this process that nobody started here: what a candidate's process left behind, or put aside by ending what was between. A candidate's process
/// begins a session, so that what is in the grader's own comes of those who were there before.
fn strays(all: &Processes, running: &[pid_t]) -> Vec<pid_t> {
    let session = all.session(own());
    children(all).filter(|&pid| !running.contains(&pid) && all.session(pid) != session).collect()
}

/// Children of this process, without those that were there before it.
fn children(all: &Processes) -> impl Iterator<Item = pid_t> {
    let given = GIVEN.get().map_or(&[][..], Vec::as_slice);
    all.children(own()).filter(|pid| !given.contains(pid))
}

fn own() -> pid_t {
    // SAFETY: no arguments.
    unsafe { libc::getpid() }
}

fn kill(pid: pid_t) {
    // SAFETY: a signal to a process that this one is responsible for.
    unsafe { libc::kill(pid, libc::SIGKILL) };
}
