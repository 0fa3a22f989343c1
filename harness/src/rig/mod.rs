//! The one path by which a candidate is called, for correctness and for time alike: buffers at random places,
//! red zones around them, poison in the output; afterwards red zones, inputs and the output are looked at.

mod changes;
mod exchange;
mod fence;
mod inspect;
mod region;

use std::os::unix::ffi::OsStringExt;
use std::sync::Arc;
use std::time::Duration;

use crate::arena::{Arena, Lay, Place};
use crate::binary::Library;
use crate::check::Accuracy;
use crate::content::Content;
use crate::memory::Memory;
use crate::protocol::{Api, Call, Called, Crossing, Device, Loaded, Reply, Request};
use crate::reason::{Failure, Reason};
use crate::rng::Stream;
use crate::session::Session;
use crate::timing::Shape;
pub use changes::Changes;
pub use exchange::now_us;
use exchange::{Handed, Idle, exchange};

/// Setting up a process may take so long.
const ATTACH_TIMEOUT: Duration = Duration::from_secs(60);

/// How a call is to be made.
#[derive(Clone, Debug)]
pub struct Manner {
    /// Flush the caches first.
    pub flush: bool,
    /// Hide the cost of launching behind a spin of so many microseconds.
    pub spin_us: u32,
    /// Calls, back to back. None at all shows what the exchange costs.
    pub repeat: usize,
    /// Copy the output the moment the call is over.
    pub snapshot: bool,
    /// Idle for a while and look at the output again.
    pub settle: bool,
    /// Compare all of the weights with what they were, not only their red zones.
    pub check_weights: bool,
    /// Wait after each of them until everything has finished.
    pub wait_each: bool,
    /// On a GPU, x and output of each lie elsewhere than those of the one before.
    pub elsewhere: bool,
    /// Put x and the output where they were in the last call, if they fit.
    pub same_place: bool,
    /// How the buffers lie on a CPU. Any but a device's are fenced: x and the weights for reading only, and nothing around them.
    pub lay: Lay,
}

impl Manner {
    /// One careful call.
    pub const CAREFUL: Manner = Manner {
        flush: false,
        spin_us: 0,
        repeat: 1,
        snapshot: true,
        settle: false,
        check_weights: true,
        wait_each: false,
        elsewhere: false,
        same_place: false,
        lay: Lay::Device,
    };
}

/// What came of a call.
pub struct Done {
    /// The output.
    pub output: Vec<f32>,
    /// How it compares with what is expected.
    pub accuracy: Accuracy,
    /// The candidate's process's claims.
    pub called: Called,
    /// The grader's own wall clock around the call.
    pub wall: Duration,
    /// What of that an exchange takes that asks for no call, in us, where it is known.
    pub idle_us: Option<f64>,
    /// Meanwhile threads of the candidate and the grader's own were kept from running for so long, all together. Not looked at where a GPU does the work.
    pub waited: Duration,
    /// Rows of the outputs of single calls of a chain, as [`Changes::looks`] asked for them.
    pub kept: Vec<f32>,
}

impl Done {
    /// What the calls took, in us: by the grader's clock wherever that can tell. The candidate shares its process with the other one.
    pub fn us(&self) -> f64 {
        let ours = |idle: f64| (self.wall.as_secs_f64() * 1e6 - idle).max(0.0);
        self.idle_us.map_or(self.called.wall_us, ours)
    }
}

/// What to start.
#[derive(Clone, Debug)]
pub struct Setup {
    pub device: Device,
    pub api: Api,
    /// Environment of the candidate's process, beyond the grader's own.
    pub env: Vec<(String, String)>,
    /// The longest sequence that will be asked for.
    pub max_seq: usize,
    /// A call may take so long.
    pub timeout: Duration,
    /// Never map the grader's device memory into the candidate's process: copy.
    pub copies: bool,
}

/// A candidate's process with its region.
pub struct Rig {
    session: Session,
    device: Device,
    api: Api,
    memory: Box<dyn Memory>,
    arena: Arena,
    stream: Stream,
    calls: u64,
    red: u32,
    poison: u32,
    weights: Option<(Place, Arc<Vec<f32>>)>,
    last: Option<(Place, Place)>,
    scratch: Vec<f32>,
    /// Where the candidate computes on a CPU.
    idle: Option<Idle>,
    /// How long this candidate's runs of calls are at the length that was asked for last.
    pub shape: Option<(usize, Shape)>,
    timeout: Duration,
    /// How buffers cross between the processes.
    pub crossing: &'static str,
    /// What the library says of itself.
    pub loaded: Loaded,
    /// The library's path, to be told by where there are several.
    pub path: String,
}

/// A process that has the region.
struct Attached {
    session: Session,
    memory: Box<dyn Memory>,
    arena: Arena,
    crossing: Crossing,
    idle: Option<Idle>,
}

impl Attached {
    /// Where the candidate's process cannot map our memory, by copies.
    fn new(setup: &Setup) -> Result<Self, Failure> {
        let arena = Arena::new(setup.max_seq);
        let (mut memory, fd, crossing) = region::region(setup, arena.len)?;
        let mut session = Session::start(&setup.env, fd)?;
        match session.ask(&Request::Attach { device: setup.device, crossing, floats: arena.len }, ATTACH_TIMEOUT) {
            Ok(_) => {
                let on_cpu = setup.device == Device::Cpu;
                let mut measured = || Idle::measure(&mut session, &mut *memory, &arena, setup.max_seq);
                let idle = on_cpu.then(&mut measured).transpose()?;
                Ok(Self { session, memory, arena, crossing, idle })
            }
            Err(f) if crossing == Crossing::DeviceMemory && f.reason == Reason::Environment => {
                drop((session, memory));
                Self::new(&Setup { copies: true, ..setup.clone() }).map_err(|_| f)
            }
            Err(f) => Err(f),
        }
    }
}

impl Rig {
    /// Starts a process and loads the library into it.
    pub fn start(lib: &Library, setup: &Setup, stream: Stream) -> Result<Self, Failure> {
        let Attached { mut session, memory, arena, crossing, idle } = Attached::new(setup)?;
        // Not what it is a link to: a library finds others beside the name by which it is loaded ($ORIGIN).
        let path = std::path::absolute(&lib.path).unwrap_or_else(|_| lib.path.clone());
        let load =
            Request::Load { lib: path.into_os_string().into_vec(), api: setup.api, max_tokens: setup.max_seq as i32 };
        lib.unchanged()?;
        let (reply, _) = session.ask(&load, setup.timeout)?;
        lib.unchanged()?;
        let Reply::Loaded(loaded) = reply else { return Err(out_of_step()) };
        // Two quiet NaNs with secret payloads: reading them spoils a result, and nobody writes them by chance.
        let nan = |i| 0x7fc0_0000 | (stream.word(i) as u32 & 0x001f_ffff);
        Ok(Self {
            session,
            device: setup.device,
            api: setup.api,
            memory,
            arena,
            stream: stream.child(1),
            calls: 0,
            red: nan(0),
            poison: nan(1) ^ 0x0020_0000,
            weights: None,
            last: None,
            scratch: Vec::new(),
            idle,
            shape: None,
            timeout: setup.timeout,
            crossing: crossing.name(),
            loaded,
            path: lib.path.display().to_string(),
        })
    }

    /// Makes a call on this content. Weights are rewritten only if they are not the ones there already.
    pub fn call(&mut self, content: &Content, manner: &Manner) -> Result<Done, Failure> {
        self.call_changing(content, manner, &Changes::default())
    }

    /// As [`Rig::call`], with changes between the calls of a chain.
    pub fn call_changing(&mut self, content: &Content, manner: &Manner, changes: &Changes) -> Result<Done, Failure> {
        self.calls += 1;
        let stream = self.stream.child(self.calls);
        let lay = if self.device == Device::Cpu { manner.lay } else { Lay::Device };
        let (x, output) = match self.last {
            Some((x, output)) if manner.same_place && x.len == content.x.len() && lay.has(x) => (x, output),
            _ => self.arena.tokens_lying(lay, content.seq, stream),
        };
        let before = self.last.replace((x, output)).map(|(_, output)| output);
        let (weights, weights_changed) = self.place_weights(content, lay, stream.child(1))?;

        for (at, row) in changes.first_weights(content) {
            self.memory.write(weights.at + at, row)?;
        }
        self.guard(x)?;
        self.guard(output)?;
        let [kept, spare, beside] =
            [Changes::kept, Changes::spare, Changes::beside].map(|of| of(changes, self.arena.snapshot));
        let mut call = Call {
            seq: content.seq,
            x: x.at,
            output: output.at,
            weights: weights.at,
            // Told to a handle alone, and in front of the call (`beforehand`): a candidate finds the request in its process's memory.
            weights_changed: weights_changed && self.api == Api::Prepared,
            snapshot: manner.snapshot.then_some(self.arena.snapshot.at),
            flush: manner.flush,
            spin_us: manner.spin_us,
            repeat: manner.repeat,
            wait_each: manner.wait_each,
            elsewhere: manner.elsewhere.then_some(self.arena.snapshot.at),
            patches: changes.patches(x, output, weights, self.arena.snapshot),
            fenced: lay != Lay::Device,
            beside: (beside.at, beside.len),
        };
        self.clear_note(lay)?;
        let told = call.weights_changed;
        let pending_us = self.beforehand(&mut call).map_err(|f| self.explained(f, lay, [x, output, weights]))?;
        if told {
            // A handle has its copy by now: the caller's may be freed.
            self.memory.fill(weights.at, weights.len, self.red)?;
        }
        let (rows, spare_rows) = changes.first_rows(content);
        let handed = Handed { x, rows: &rows, spare, spare_rows: &spare_rows, output, poison: self.poison };
        let done = self.timed(call, &handed);
        let mut done = done.map_err(|f| self.explained(f, lay, [x, output, weights]))?;
        done.called.pending_us += pending_us;
        done.kept.resize(kept.len, 0.0);
        self.memory.read(kept.at, &mut done.kept)?;
        self.inspect(content, manner, [x, output, weights], before, &mut done)?;
        Ok(done)
    }

    /// The exchange itself. On a CPU the grader's clock runs from before x is there until the output was read: how long the grader takes to get from one to the
    /// other is in the candidate's hands, by threads that are in its way or that are looked at one by one.
    fn timed(&mut self, call: Call, handed: &Handed<'_>) -> Result<Done, Failure> {
        let idle_us = self.idle_us(call.seq);
        let waited = self.waited();
        let mut back = exchange(&mut self.session, &mut *self.memory, call, handed, self.timeout)?;
        let waited = self.waited().saturating_sub(waited);
        if self.device == Device::Cpu {
            // Nothing here can tell.
            (back.called.device_us, back.called.stamps_us) = (None, None);
        }
        Ok(Done {
            output: back.output,
            accuracy: Accuracy::default(),
            called: back.called,
            wall: if self.device == Device::Cpu { back.all } else { back.asked },
            idle_us,
            waited,
            kept: Vec::new(),
        })
    }

    /// What is no part of the time that a call is held to, in an exchange of its own, in which x is not there yet to work ahead on: a handle's update with new
    /// weights, and on a CPU, where the grader's clock cannot tell them from the call, flushing the caches. Returns what was pending, in us.
    fn beforehand(&mut self, call: &mut Call) -> Result<f64, Failure> {
        let weights_changed = std::mem::take(&mut call.weights_changed);
        let flush = self.device == Device::Cpu && std::mem::take(&mut call.flush);
        if !weights_changed && !flush {
            return Ok(0.0);
        }
        let (patches, beside) = (Vec::new(), (0, 0));
        let nothing =
            Call { weights_changed, snapshot: None, flush, spin_us: 0, repeat: 0, patches, beside, ..call.clone() };
        let (reply, _) = self.session.ask(&Request::Call(nothing), self.timeout)?;
        Ok(called(reply)?.pending_us)
    }

    /// What is done before a call on a CPU with new weights, or with those that are there, and behind a flush; but no call follows.
    pub fn announce(&mut self, weights: Option<&Content>) -> Result<(), Failure> {
        self.calls += 1;
        let stream = self.stream.child(self.calls);
        // In place: whoever waits for new weights looks where the old ones are.
        let place = self.weights.as_ref().map_or_else(|| self.arena.weights(stream), |(place, _)| *place);
        if let Some(content) = weights {
            self.write_weights(place, content)?;
        }
        let (x, output) = self.arena.tokens(1, stream);
        let mut call = Call {
            seq: 1,
            x: x.at,
            output: output.at,
            weights: place.at,
            weights_changed: false,
            snapshot: None,
            flush: true,
            spin_us: 0,
            repeat: 0,
            wait_each: false,
            elsewhere: None,
            patches: Vec::new(),
            fenced: false,
            beside: (0, 0),
        };
        self.beforehand(&mut call).map(|_| ())
    }

    fn waited(&self) -> Duration {
        if self.device == Device::Cpu { self.session.kept_waiting() } else { Duration::ZERO }
    }

    fn place_weights(&mut self, content: &Content, lay: Lay, stream: Stream) -> Result<(Place, bool), Failure> {
        let here = self.weights.as_ref().filter(|(place, _)| lay.has(*place));
        if let Some((place, there)) = here
            && Arc::ptr_eq(there, &content.weights)
        {
            return Ok((*place, false));
        }
        // Mostly in place, so that whoever remembers weights by their address is wrong.
        let place = match here {
            Some((place, _)) if stream.below(9, 4) > 0 => *place,
            _ => self.arena.weights_lying(lay, stream),
        };
        self.write_weights(place, content)?;
        Ok((place, true))
    }

    fn write_weights(&mut self, place: Place, content: &Content) -> Result<(), Failure> {
        self.memory.write(place.at, &content.weights)?;
        self.guard(place)?;
        self.weights = Some((place, content.weights.clone()));
        Ok(())
    }

    /// The next call finds its weights elsewhere.
    pub fn move_weights(&mut self) {
        self.weights = None;
    }

    fn guard(&mut self, place: Place) -> Result<(), Failure> {
        for zone in place.red_zones() {
            self.memory.fill(zone.at, zone.len, self.red)?;
        }
        Ok(())
    }

    /// Stops the candidate's process, or lets it go on, so that it takes nothing from others that are timed meanwhile.
    pub fn halt(&self, halted: bool) {
        self.session.halt(halted);
    }

    /// The candidate's process and everything that it started, by their numbers.
    pub fn processes(&self) -> Vec<libc::pid_t> {
        self.session.processes()
    }

    /// Processor time that the candidate's process has taken so far.
    pub fn busy(&self) -> Duration {
        self.session.busy()
    }

    /// The same without the thread that serves the grader; nothing where the kernel does not tell.
    pub fn busy_beside(&self) -> Option<Duration> {
        self.session.busy_beside()
    }

    /// What the candidate printed.
    pub fn said(&self) -> String {
        self.session.said()
    }
}

fn called(reply: Reply) -> Result<Called, Failure> {
    if let Reply::Called(called) = reply { Ok(called) } else { Err(out_of_step()) }
}

fn out_of_step() -> Failure {
    Failure::new(Reason::Crash, "the reply answers another request")
}
