//! A candidate's process as the grader sees it: started, asked, timed, and ended. Whatever happens in there
//! (a signal, `_exit`, silence, garbage on the socket) comes back as a [`Failure`] with its reason.

use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::guard;
use crate::plain;
use crate::processes;
use crate::protocol::{CHILD, Envelope, LINK_FD, REGION_FD, Reply, Request};
use crate::reason::{Failure, Reason};
use crate::rng;
use crate::scope;

/// So much of a candidate's output is kept.
const KEEP: usize = 16 * 1024;
/// So long the process is waited for before somebody looks whether it still runs.
const LOOK: Duration = Duration::from_millis(200);
/// What a candidate printed gets so long to arrive after its end.
const LAST_WORDS: Duration = Duration::from_millis(500);
/// A reply is never longer than this.
const LONGEST_REPLY: usize = 1 << 20;

/// A running candidate's process.
pub struct Session {
    child: Child,
    link: BufReader<UnixStream>,
    said: Arc<Mutex<Vec<u8>>>,
    drains: Vec<JoinHandle<()>>,
    nonce: u64,
    /// What the last request was for, in words.
    doing: &'static str,
    ended: bool,
}

fn broken(what: &str, error: impl std::fmt::Display) -> Failure {
    Failure::new(Reason::Environment, format!("{what}: {error}"))
}

fn forged() -> Failure {
    Failure::new(Reason::Crash, "a forged reply was written to the reply channel")
}

impl Session {
    /// Starts the process, with more environment variables and the region's descriptor where there is one.
    pub fn start(env: &[(String, String)], region: Option<RawFd>) -> Result<Self, Failure> {
        let (ours, theirs) = UnixStream::pair().map_err(|e| broken("no socket pair", e))?;
        let exe = std::env::current_exe().map_err(|e| broken("cannot find this executable", e))?;
        // Not by its path, where something else may lie by now.
        let mut command = Command::new("/proc/self/exe");
        command.arg0(&exe).arg(CHILD);
        ask_for(&mut command, env);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let link = theirs.as_raw_fd();
        // SAFETY: only async-signal-safe calls between fork and exec.
        unsafe { command.pre_exec(move || hand_over(link, region)) };
        let mut child = command.spawn().map_err(|e| broken("cannot start the candidate's process", e))?;
        drop(theirs);
        guard::started(child.id());

        let said = Arc::new(Mutex::new(Vec::new()));
        let mut drains = Vec::new();
        if let Some(pipe) = child.stdout.take() {
            drains.push(drain(pipe, said.clone()));
        }
        if let Some(pipe) = child.stderr.take() {
            drains.push(drain(pipe, said.clone()));
        }
        Ok(Self {
            child,
            link: BufReader::new(ours),
            said,
            drains,
            nonce: rng::secret(),
            doing: SETTING_UP,
            ended: false,
        })
    }

    /// Sends a request and waits for its reply. The duration is the grader's own wall clock.
    pub fn ask(&mut self, request: &Request, timeout: Duration) -> Result<(Reply, Duration), Failure> {
        // Not even the number of the next request can be known.
        self.nonce = rng::secret();
        let mut line = serde_json::to_vec(&Envelope { nonce: self.nonce, body: request })
            .map_err(|e| broken("cannot write a request", e))?;
        line.push(b'\n');
        self.doing = doing(request);
        let start = Instant::now();
        if self.link.get_mut().write_all(&line).is_err() {
            return Err(self.died());
        }
        let answer = self.receive(timeout)?;
        let wall = start.elapsed();
        let garbage = || {
            let start = String::from_utf8_lossy(&answer).chars().take(60).collect::<String>();
            Failure::new(
                Reason::Crash,
                format!("something that is no reply was written to the reply channel: {start:?}"),
            )
        };
        let envelope: Envelope<Reply> = serde_json::from_slice(&answer).map_err(|_| garbage())?;
        if envelope.nonce != self.nonce {
            return Err(forged());
        }
        match envelope.body.plain() {
            Reply::Failed(failure) if request.fails_for(failure.reason) => Err(failure),
            Reply::Failed(_) => Err(forged()),
            reply => Ok((reply, wall)),
        }
    }

    fn receive(&mut self, timeout: Duration) -> Result<Vec<u8>, Failure> {
        let deadline = Instant::now() + timeout;
        let mut line = Vec::new();
        loop {
            let left = deadline.saturating_duration_since(Instant::now()).clamp(Duration::from_millis(1), LOOK);
            let _ = self.link.get_ref().set_read_timeout(Some(left));
            match piece(&mut self.link, &mut line) {
                // One that is too long is no reply either.
                Ok(_) if line.last() == Some(&b'\n') || line.len() >= LONGEST_REPLY => return Ok(line),
                Ok(0) => return Err(self.died()),
                Ok(_) => {}
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                // Something that it started may hold the channel open after its end.
                Err(e) if e.kind() == ErrorKind::WouldBlock && self.gone() => return Err(self.died()),
                Err(e) if e.kind() == ErrorKind::WouldBlock => {}
                Err(_) => return Err(self.died()),
            }
            // After every piece: whoever writes a little now and then is as late as one that is silent.
            if Instant::now() >= deadline {
                let hint = waits_in_vain(!scope::available() && self.has_children());
                self.end();
                return Err(Failure::new(Reason::Timeout, late(timeout, self.doing) + hint));
            }
        }
    }

    fn has_children(&self) -> bool {
        processes::Processes::now().children(self.child.id() as libc::pid_t).next().is_some()
    }

    fn gone(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(Some(_)))
    }

    /// The process is gone, or has closed its end: say how.
    fn died(&mut self) -> Failure {
        let deadline = Instant::now() + Duration::from_secs(2);
        let status = loop {
            match self.child.try_wait() {
                Ok(Some(status)) => break Some(status),
                Ok(None) if Instant::now() < deadline => std::thread::sleep(Duration::from_millis(5)),
                _ => break None,
            }
        };
        self.end();
        let told = |status| told(status, self.doing);
        let mut message = status.map_or_else(|| "it closed the reply channel".to_string(), told);
        if let Some(words) = last_words(&self.said()) {
            message.push_str(&format!("; {words}"));
        }
        Failure::new(Reason::Crash, message)
    }

    /// What the candidate printed so far.
    pub fn said(&self) -> String {
        self.said.lock().map(|said| String::from_utf8_lossy(&said).into_owned()).unwrap_or_default()
    }

    /// Processor time that the process and everything it started have taken.
    pub fn busy(&self) -> Duration {
        guard::busy(self.child.id())
    }

    /// The process and everything it started, by their numbers.
    pub fn processes(&self) -> Vec<libc::pid_t> {
        guard::processes(self.child.id())
    }

    /// Stops the process and everything it started, or lets them go on: what is asked of it meanwhile waits.
    pub fn halt(&self, halted: bool) {
        guard::halt(self.child.id(), halted);
    }

    /// The same as `busy` without its first thread, which serves the grader.
    pub fn busy_beside(&self) -> Option<Duration> {
        let first = processes::first_thread(self.child.id() as libc::pid_t)?;
        Some(self.busy().saturating_sub(first))
    }

    /// How long its threads and this one have been kept waiting for a processor.
    pub fn kept_waiting(&self) -> Duration {
        processes::kept_waiting(self.child.id() as libc::pid_t)
    }

    /// Ends the process and everything it started.
    pub fn end(&mut self) {
        if std::mem::replace(&mut self.ended, true) {
            return;
        }
        guard::end(self.child.id());
        let _ = self.child.wait();
        guard::give_way_to_interrupt();
        guard::bury(self.child.id());
        let until = Instant::now() + LAST_WORDS;
        for drain in self.drains.drain(..) {
            while !drain.is_finished() && Instant::now() < until {
                std::thread::sleep(Duration::from_millis(1));
            }
            // One that somebody else still writes to is left alone.
            if drain.is_finished() {
                let _ = drain.join();
            }
        }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.end();
    }
}

/// What a report says was asked for is what the candidate sees, and not what the caller's shell has.
fn ask_for(command: &mut Command, env: &[(String, String)]) {
    for name in ["SOLVE_DEVICE", "SOLVE_ARCH", "SOLVE_PRECISION"] {
        command.env_remove(name);
    }
    command.envs(env.iter().cloned());
}

/// Between fork and exec: begin a session, from which no way leads into the grader's process group or terminal, put the two descriptors where the process
/// expects them, and die with the grader.
fn hand_over(link: RawFd, region: Option<RawFd>) -> std::io::Result<()> {
    // SAFETY: setsid, dup, dup2 and prctl are async-signal-safe. Both are first moved out of each other's way.
    unsafe {
        libc::setsid();
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
        let link = libc::fcntl(link, libc::F_DUPFD, 10);
        let region = region.map(|fd| libc::fcntl(fd, libc::F_DUPFD, 10));
        if libc::dup2(link, LINK_FD) < 0 || region.is_some_and(|fd| libc::dup2(fd, REGION_FD) < 0) {
            return Err(std::io::Error::last_os_error());
        }
        libc::close(link);
        region.map(|fd| libc::close(fd));
    }
    Ok(())
}

/// Moves what there is of a line to its end, and says how many bytes that were: 0 where no more will come.
fn piece(from: &mut impl BufRead, line: &mut Vec<u8>) -> std::io::Result<usize> {
    let there = from.fill_buf()?;
    let end = there.iter().position(|&byte| byte == b'\n').map_or(there.len(), |at| at + 1);
    line.extend_from_slice(&there[..end]);
    from.consume(end);
    Ok(end)
}

fn drain(mut pipe: impl Read + Send + 'static, said: Arc<Mutex<Vec<u8>>>) -> JoinHandle<()> {
    std::thread::spawn(move || {
        let mut chunk = [0u8; 4096];
        while let Ok(n @ 1..) = pipe.read(&mut chunk) {
            if let Ok(mut said) = said.lock() {
                let room = KEEP.saturating_sub(said.len()).min(n);
                said.extend_from_slice(&chunk[..room]);
            }
        }
    })
}

/// What the runtime below the candidate says, which the candidate knows nothing of.
pub const THROWN: &str = "Rust cannot catch foreign exceptions";

/// What a process that has ended said of it: a panic of Rust in its own words, which many lines of its runtime's follow, or else the last line.
fn last_words(said: &str) -> Option<String> {
    let lines: Vec<&str> = said.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let last = *lines.last()?;
    if last.contains(THROWN) {
        return Some("a C++ exception left it".into());
    }
    let ends_a_panic = last.contains("non-unwinding panic. aborting");
    let panic = lines.iter().position(|line| line.contains(" panicked at ")).filter(|_| ends_a_panic);
    let words =
        panic.map_or_else(|| last.to_string(), |at| lines[at..].iter().take(2).copied().collect::<Vec<_>>().join(" "));
    Some(format!("its last words: {}", plain::line(&words).chars().take(200).collect::<String>()))
}

/// Of a process that waits for one that it tried to end.
fn waits_in_vain(it_may: bool) -> &'static str {
    if it_may {
        "; processes that it started still run: before Linux 6.12 (Landlock's scope for signals) it cannot send them any"
    } else {
        ""
    }
}

const SETTING_UP: &str = "while it was set up";
const LOADING: &str = "while the library was loaded";
const CALLING: &str = "in the middle of a call";

fn doing(request: &Request) -> &'static str {
    match request {
        Request::Attach { .. } => SETTING_UP,
        Request::Load { .. } => LOADING,
        Request::Call(_) => CALLING,
    }
}

/// Of a process that has not replied in time, with what gives a slow one a chance.
fn late(timeout: Duration, doing: &str) -> String {
    let seconds = timeout.as_secs_f64();
    match doing {
        CALLING => format!("no return within {seconds} s (--timeout allows more, --max-case leaves long cases out)"),
        LOADING => format!("not loaded within {seconds} s (--timeout allows more)"),
        _ => format!("no reply within {seconds} s {doing}"),
    }
}

fn told(status: ExitStatus, doing: &str) -> String {
    match (status.signal(), status.code()) {
        (Some(signal), _) if doing == LOADING => format!("killed by {} {doing}", signal_name(signal)),
        (Some(signal), _) => format!("killed by {}", signal_name(signal)),
        (_, Some(code)) => format!("the process left with exit status {code} {doing}"),
        _ => "the process ended".into(),
    }
}

fn signal_name(signal: i32) -> String {
    match signal {
        libc::SIGSEGV => "SIGSEGV (it touched memory that is not there)".into(),
        libc::SIGABRT => "SIGABRT (it gave up)".into(),
        libc::SIGBUS => "SIGBUS".into(),
        libc::SIGFPE => "SIGFPE".into(),
        libc::SIGILL => "SIGILL (an instruction this processor does not have)".into(),
        libc::SIGKILL => "SIGKILL".into(),
        libc::SIGTRAP => "SIGTRAP".into(),
        libc::SIGSYS => "SIGSYS (it reached for another process)".into(),
        other => format!("signal {other}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_told_in_its_own_words() {
        let said = "loaded\n\nthread '<unnamed>' (7) panicked at a.rs:2:5:\nindex out of range\nstack backtrace:\n   0: solve\n\n\
            thread '<unnamed>' (7) panicked at core/panicking.rs:225:5:\npanic in a function that cannot unwind\n\
            thread caused non-unwinding panic. aborting.\n";
        let panic = "its last words: thread '<unnamed>' (7) panicked at a.rs:2:5: index out of range";
        assert_eq!(last_words(said).as_deref(), Some(panic));
        assert_eq!(
            last_words("thread 'a' panicked at b:\nc\nbad size\n\n").as_deref(),
            Some("its last words: bad size")
        );
        assert_eq!(last_words("\n"), None);
    }

    #[test]
    fn no_choice_of_the_callers_shell_reaches_a_candidate() {
        let mut command = Command::new("candidate");
        ask_for(&mut command, &[("SOLVE_ARCH".into(), "sm80".into())]);
        let seen = |name: &str| command.get_envs().find(|(key, _)| *key == name).map(|(_, value)| value);
        assert_eq!([seen("SOLVE_DEVICE"), seen("SOLVE_PRECISION")], [Some(None); 2]);
        assert_eq!(seen("SOLVE_ARCH"), Some(Some("sm80".as_ref())));
    }
}
