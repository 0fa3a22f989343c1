//! The candidate's process: loads the library and calls it when asked. It knows no expected value and no
//! seed, and nothing it says is believed without a check on the other side.

mod cpu;
mod cuda;
mod fence;
mod library;

use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Write};
use std::os::fd::FromRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::path::Path;

use crate::protocol::{Call, Called, Crossing, Device, Envelope, LINK_FD, REGION_FD, Reply, Request};
use crate::reason::{Failure, Reason};
use library::Candidate;
pub use library::HANDLE;

/// Where calls run.
trait Worker {
    /// Without a library there is no call to make: the grader asks for none, to see what an exchange takes.
    fn call(&mut self, candidate: Option<&mut Candidate>, call: &Call) -> Result<Called, Failure>;
}

/// Serves requests until the grader closes the socket.
pub fn main() -> ! {
    // SAFETY: the descriptor was put there for us by the grader, and nobody else owns it.
    let mut link = unsafe { UnixStream::from_raw_fd(LINK_FD) };
    crate::guard::confine();
    let Ok(read_half) = link.try_clone() else { std::process::exit(1) };
    let mut state = State { worker: None, candidate: None };
    for line in BufReader::new(read_half).lines() {
        let Ok(line) = line else { break };
        let Ok(Envelope { nonce, body }) = serde_json::from_str::<Envelope<Request>>(&line) else { break };
        let body = state.serve(body).unwrap_or_else(Reply::Failed);
        let Ok(mut reply) = serde_json::to_vec(&Envelope { nonce, body }) else { break };
        reply.push(b'\n');
        if link.write_all(&reply).is_err() {
            break;
        }
    }
    // No exit handlers: a candidate's could run for ever.
    // SAFETY: ends the process at once.
    unsafe { libc::_exit(0) }
}

struct State {
    worker: Option<Box<dyn Worker>>,
    candidate: Option<Candidate>,
}

impl State {
    fn serve(&mut self, request: Request) -> Result<Reply, Failure> {
        match request {
            Request::Attach { device, crossing, floats } => {
                self.worker = Some(worker(device, &crossing, floats)?);
                Ok(Reply::Attached)
            }
            Request::Load { lib, api, max_tokens } => {
                let (candidate, loaded) = Candidate::load(Path::new(OsStr::from_bytes(&lib)), api, max_tokens)?;
                self.candidate = Some(candidate);
                Ok(Reply::Loaded(loaded))
            }
            Request::Call(call) => {
                let worker = self.worker.as_mut().ok_or_else(not_ready)?;
                let mut called = worker.call(self.candidate.as_mut(), &call)?;
                called.complaint = self.candidate.as_ref().and_then(Candidate::complaint);
                Ok(Reply::Called(called))
            }
        }
    }
}

fn not_ready() -> Failure {
    Failure::new(Reason::Environment, "a call came before the library was loaded")
}

fn worker(device: Device, crossing: &Crossing, floats: usize) -> Result<Box<dyn Worker>, Failure> {
    Ok(match device {
        Device::Cpu => Box::new(cpu::Cpu::new(REGION_FD, floats)?),
        Device::Cuda => Box::new(cuda::Cuda::new(crossing, REGION_FD, floats)?),
    })
}
