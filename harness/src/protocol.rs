//! What the grader and the candidate's process say to each other: one JSON line each way, over a socket.
//! A reply carries the request's nonce, so that nothing a candidate writes passes for one.

use serde::{Deserialize, Serialize};

use crate::gpu::Kernel;
use crate::plain;
use crate::reason::{Failure, Reason};

/// Where the candidate computes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Device {
    /// Host pointers.
    Cpu,
    /// Device pointers of an NVIDIA GPU.
    Cuda,
}

/// Which entry point is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Api {
    /// `solve`, which remembers nothing.
    Solve,
    /// `solve_block_forward` on a handle that holds the weights.
    Prepared,
}

impl Api {
    /// The name used in reports.
    pub fn name(self) -> &'static str {
        match self {
            Api::Solve => "solve",
            Api::Prepared => "prepared",
        }
    }
}

/// How the buffers cross from one process to the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Crossing {
    /// Shared host memory, passed as a file descriptor.
    Shared,
    /// The grader's device memory, passed as a file descriptor that CUDA opens.
    DeviceMemory,
    /// Shared host memory, copied to and from device memory of the candidate's process around each call.
    Copies,
}

impl Crossing {
    /// The name used in reports.
    pub fn name(&self) -> &'static str {
        match self {
            Crossing::Shared => "shared memory",
            Crossing::DeviceMemory => "shared device memory",
            Crossing::Copies => "copies (no shared device memory here: reduced trust)",
        }
    }
}

/// A copy inside the region, in floats.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Patch {
    /// Made before this call of a chain; as many as there are calls: after the last.
    pub before: usize,
    /// To here.
    pub to: usize,
    /// From here.
    pub from: usize,
    /// So many floats.
    pub len: usize,
}

/// One call of the candidate; places are offsets into the region, in floats.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Call {
    pub seq: usize,
    pub x: usize,
    pub output: usize,
    pub weights: usize,
    /// The weights changed since the last call: what a prepared handle must be told, and nobody else is.
    pub weights_changed: bool,
    /// Copy the output here as soon as the call is over on its own stream.
    pub snapshot: Option<usize>,
    /// Flush the caches first.
    pub flush: bool,
    /// Keep the GPU busy this long first, so that the cost of launching is hidden. 0: no spin, time the wall. On a CPU the process itself is busy for so long.
    pub spin_us: u32,
    /// How many calls, back to back. Above 1 there is no snapshot.
    pub repeat: usize,
    /// Wait after each call until everything has finished.
    pub wait_each: bool,
    /// On a GPU every other call but the last has x where the output lies, and its output here: so x and output lie elsewhere than in the call before.
    pub elsewhere: Option<usize>,
    /// Changes made between the calls of a chain, in this order.
    pub patches: Vec<Patch>,
    /// On a CPU x and the weights are for reading only meanwhile, and pages around the buffers are not there.
    pub fenced: bool,
    /// What the patches work with beside the buffers, written or read by the grader: the place and its length.
    pub beside: (usize, usize),
}

impl Call {
    /// Where x and output of a run's call lie.
    pub fn places(&self, call: usize) -> [usize; 2] {
        match self.elsewhere {
            Some(place) if (self.repeat - 1 - call) % 2 == 1 => [self.output, place],
            _ => [self.x, self.output],
        }
    }
}

/// What the candidate's process saw of a call. Only claims: the grader checks them against its own clock.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Called {
    /// Between two events around the call, in us. Absent on the CPU and without a spin.
    pub device_us: Option<f64>,
    /// From before the first call until everything has finished, in us.
    pub wall_us: f64,
    /// Until the last call returned, in us.
    pub host_us: f64,
    /// Between the two readings of the GPU's timer around the events, in us.
    #[serde(default)]
    pub stamps_us: Option<f64>,
    /// SM clock over the call, in MHz.
    pub clock_mhz: Option<f64>,
    /// The candidate's own words, where it reports an error.
    pub complaint: Option<String>,
    /// Work of the candidate's that still ran on the GPU when it was called took so long, in us.
    #[serde(default)]
    pub pending_us: f64,
    /// Bytes of L2 set aside for persisting lines after the call.
    pub persisting_l2: usize,
    /// The kernels of the call, where they are traced.
    #[serde(default)]
    pub kernels: Vec<Kernel>,
}

/// What was found in a library.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Loaded {
    pub version: Option<String>,
    pub build_id: Option<String>,
    /// It exports the handle.
    pub prepared: bool,
    /// Functions of the handle that it does not export.
    #[serde(default)]
    pub lacks: Vec<String>,
    /// Loading took so long, in ms.
    pub load_ms: f64,
}

/// Grader to candidate's process.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Request {
    /// Set up the device and the region.
    Attach { device: Device, crossing: Crossing, floats: usize },
    /// Load the library, for calls of up to so many tokens. Its path in bytes: a name need not be text.
    Load { lib: Vec<u8>, api: Api, max_tokens: i32 },
    /// Call it.
    Call(Call),
}

impl Request {
    /// The reasons for which a candidate's process itself can fail this. Once the library is loaded it may find the request's number and reply in its place.
    pub fn fails_for(&self, reason: Reason) -> bool {
        match self {
            // No code of the candidate's has run yet. Whoever reads that the machine is at fault goes on with less.
            Request::Attach { .. } => matches!(reason, Reason::Environment | Reason::Load | Reason::CudaError),
            Request::Load { .. } => reason == Reason::Load,
            // The driver's memory may be taken, and kernels may not be traced: the machine's fault, on which nobody goes on with less.
            Request::Call(_) => {
                matches!(reason, Reason::WrongAnswer | Reason::CudaError | Reason::Load | Reason::Environment)
            }
        }
    }
}

/// Candidate's process to grader.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Reply {
    Attached,
    Loaded(Loaded),
    Called(Called),
    Failed(Failure),
}

impl Reply {
    /// With every word of the candidate's in one line, and nothing in it that a terminal obeys.
    pub fn plain(mut self) -> Self {
        let words = match &mut self {
            Reply::Attached => [None, None],
            Reply::Loaded(loaded) => [loaded.version.as_mut(), loaded.build_id.as_mut()],
            Reply::Called(called) => [called.complaint.as_mut(), None],
            Reply::Failed(failure) => [Some(&mut failure.message), None],
        };
        words.into_iter().flatten().for_each(|text| *text = plain::line(text));
        if let Reply::Called(called) = &mut self {
            called.kernels.iter_mut().for_each(|kernel| kernel.name = plain::line(&kernel.name));
        }
        self
    }
}

/// A message with its nonce.
#[derive(Serialize, Deserialize)]
pub struct Envelope<T> {
    pub nonce: u64,
    pub body: T,
}

/// The file descriptor of the socket in the candidate's process.
pub const LINK_FD: i32 = 3;
/// The file descriptor of the shared host memory in the candidate's process.
pub const REGION_FD: i32 = 4;
/// The hidden subcommand that makes this executable a candidate's process.
pub const CHILD: &str = "__candidate";
/// Set in the environment of a candidate's process whose kernels are to be traced.
pub const TRACE: &str = "SOLVE_HARNESS_TRACE";

#[cfg(test)]
mod tests {
    use super::*;

    fn call() -> Call {
        Call {
            seq: 1,
            x: 1,
            output: 2,
            weights: 3,
            weights_changed: false,
            snapshot: None,
            flush: false,
            spin_us: 0,
            repeat: 1,
            wait_each: false,
            elsewhere: None,
            patches: Vec::new(),
            fenced: false,
            beside: (0, 0),
        }
    }

    #[test]
    fn words_of_a_candidate_are_no_lines_of_a_report() {
        let loud = || Some("1\u{1b}[2J\n  PASS  pass (exit code 0)".to_string());
        let said = [
            Reply::Loaded(Loaded { version: loud(), build_id: loud(), ..Loaded::default() }),
            Reply::Called(Called { complaint: loud(), ..Called::default() }),
            Reply::Failed(Failure::new(Reason::Crash, loud().expect("words"))),
        ];
        for reply in said {
            let told = serde_json::to_string(&reply.plain()).expect("JSON");
            assert!(told.contains("1�[2J   PASS") && !told.contains("\\n") && !told.contains("\\u001b"), "{told}");
        }
    }

    #[test]
    fn a_run_ends_on_x_and_output_themselves_and_no_two_calls_of_it_have_the_same() {
        let run = |repeat, elsewhere| {
            let call = Call { repeat, elsewhere, ..call() };
            (0..repeat).map(|i| call.places(i)).collect::<Vec<_>>()
        };
        assert_eq!(run(3, None), [[1, 2]; 3]);
        assert_eq!(run(4, Some(9)), [[2, 9], [1, 2], [2, 9], [1, 2]]);
        assert_eq!(run(3, Some(9)), [[1, 2], [2, 9], [1, 2]]);
    }

    #[test]
    fn nothing_but_setting_up_and_calling_fails_for_the_machine_and_nothing_at_all_for_passing() {
        let attach = Request::Attach { device: Device::Cpu, crossing: Crossing::Shared, floats: 1 };
        let load = Request::Load { lib: Vec::new(), api: Api::Solve, max_tokens: 1 };
        let call = Request::Call(call());
        let of = |reason| [&attach, &load, &call].map(|request| request.fails_for(reason));
        assert_eq!(of(Reason::Pass), [false; 3]);
        assert_eq!(of(Reason::Environment), [true, false, true]);
        assert_eq!(of(Reason::Load), [true; 3]);
        for told_by_the_grader_alone in
            [Reason::Usage, Reason::Timeout, Reason::Caching, Reason::TooNoisy, Reason::Selftest]
        {
            assert_eq!(of(told_by_the_grader_alone), [false; 3]);
        }
    }
}
