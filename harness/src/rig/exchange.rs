//! What an exchange takes that asks for no call, on a CPU. It is part of what the grader's clock shows of a call, and is measured before the library is
//! loaded: nothing of the candidate's has a part in it.

use std::time::{Duration, Instant};

use super::{ATTACH_TIMEOUT, Attached, Rig, Setup, called};
use crate::arena::{Arena, Place};
use crate::memory::Memory;
use crate::protocol::{Call, Called, Request};
use crate::reason::Failure;
use crate::rng::Stream;
use crate::session::Session;
use crate::stats::{median, quantile, sorted};

/// Exchanges of each length, in turns, so that a machine that is busy for a moment makes few of any length long.
const TURNS: u64 = 15;
/// Of those the time that a quarter are below: what is taken off the time of a call is rather too little than too much.
const TAKEN: f64 = 0.25;
/// Nothing happens for so long in front of an exchange as it is now: between calls the grader looks at outputs.
const GAP: Duration = Duration::from_millis(5);

/// What is written before a call and read after it, all by the grader's clock.
pub struct Handed<'a> {
    pub x: Place,
    pub rows: &'a [f32],
    pub spare: Place,
    pub spare_rows: &'a [f32],
    pub output: Place,
    pub poison: u32,
}

/// What came back of an exchange.
pub struct Returned {
    pub called: Called,
    pub output: Vec<f32>,
    /// From before x is there, which a candidate could find in the shared memory and work ahead on, until the output was read, up to when it could still
    /// be worked on.
    pub all: Duration,
    /// From the request to the reply.
    pub asked: Duration,
}

/// Hands over what a call works on, asks for the call, and reads the output.
pub fn exchange(
    session: &mut Session,
    memory: &mut dyn Memory,
    call: Call,
    handed: &Handed<'_>,
    timeout: Duration,
) -> Result<Returned, Failure> {
    let (mut output, request) = (vec![0.0; handed.output.len], Request::Call(call));
    let start = Instant::now();
    memory.write(handed.x.at, handed.rows)?;
    memory.write(handed.spare.at, handed.spare_rows)?;
    memory.fill(handed.output.at, handed.output.len, handed.poison)?;
    let (reply, asked) = session.ask(&request, timeout)?;
    memory.read(handed.output.at, &mut output)?;
    Ok(Returned { all: start.elapsed(), called: called(reply)?, output, asked })
}

/// Times of exchanges without a call, in us, by their lengths.
pub struct Idle(Vec<(usize, f64)>);

impl Idle {
    /// Measures them, at lengths up to this one.
    pub fn measure(
        session: &mut Session,
        memory: &mut dyn Memory,
        arena: &Arena,
        longest: usize,
    ) -> Result<Self, Failure> {
        let lengths: Vec<usize> = (0..).map(|k| 4usize.pow(k)).take_while(|&l| l < longest).chain([longest]).collect();
        let mut times = vec![Vec::new(); lengths.len()];
        for turn in 0..TURNS {
            for (&length, times) in lengths.iter().zip(&mut times) {
                let back = idle(session, memory, arena, (length, 0, false), Stream::new(turn, 12))?;
                times.push(back.all.as_secs_f64() * 1e6);
            }
        }
        let taken = times.iter().map(|times| quantile(&sorted(times), TAKEN));
        Ok(Self(lengths.into_iter().zip(taken).collect()))
    }

    /// At this length, between those that were measured.
    pub fn us(&self, seq: usize) -> f64 {
        let above = self.0.iter().position(|(length, _)| *length >= seq).unwrap_or(self.0.len() - 1);
        let (length, us) = self.0[above];
        let Some(&(shorter, less)) = above.checked_sub(1).map(|below| &self.0[below]) else { return us };
        let share = (seq.min(length) - shorter) as f64 / (length - shorter) as f64;
        less + share * (us - less)
    }
}

/// One such exchange: of everything but the call as much as there is in one, and in its place work for so many us, behind a flush of the caches or not.
fn idle(
    session: &mut Session,
    memory: &mut dyn Memory,
    arena: &Arena,
    (seq, spin_us, flush): (usize, u32, bool),
    stream: Stream,
) -> Result<Returned, Failure> {
    let (x, output) = arena.tokens(seq, stream);
    let weights = arena.weights(stream);
    let rows = vec![0.0; x.len];
    let call = Call {
        seq,
        x: x.at,
        output: output.at,
        weights: weights.at,
        weights_changed: false,
        snapshot: Some(arena.snapshot.at),
        flush: false,
        spin_us,
        repeat: 0,
        wait_each: false,
        elsewhere: None,
        patches: Vec::new(),
        fenced: false,
        beside: (0, 0),
    };
    let spare = Place { at: arena.snapshot.at, len: 0 };
    let handed = Handed { x, rows: &rows, spare, spare_rows: &[], output, poison: 0 };
    if flush {
        // As in front of a call: in an exchange of its own.
        session.ask(&Request::Call(Call { flush, spin_us: 0, snapshot: None, ..call.clone() }), ATTACH_TIMEOUT)?;
    }
    exchange(session, memory, call, &handed, ATTACH_TIMEOUT)
}

/// What an exchange takes just now beside a call of so many us on a CPU, in us: of a new process that has no library, and so a clock that nobody has changed.
pub fn now_us(setup: &Setup, seq: usize, call_us: u32, flush: bool) -> Result<f64, Failure> {
    let Attached { mut session, mut memory, arena, .. } = Attached::new(setup)?;
    let once = |turn| {
        std::thread::sleep(GAP);
        let back = idle(&mut session, &mut *memory, &arena, (seq, call_us, flush), Stream::new(turn, 13))?;
        Ok(back.all.as_secs_f64() * 1e6 - back.called.wall_us)
    };
    Ok(median(&(0..TURNS).map(once).collect::<Result<Vec<f64>, Failure>>()?))
}

impl Rig {
    /// What of the grader's time of a call an exchange takes, in us. Nobody knows on a GPU before the library is loaded.
    pub fn idle_us(&self, seq: usize) -> Option<f64> {
        self.idle.as_ref().map(|idle| idle.us(seq))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_lie_between_those_of_the_lengths_that_were_measured() {
        let idle = Idle(vec![(1, 100.0), (4, 103.0), (10, 121.0)]);
        assert_eq!([1, 2, 4, 6, 10, 11].map(|seq| idle.us(seq)), [100.0, 101.0, 103.0, 109.0, 121.0, 121.0]);
        assert_eq!(Idle(vec![(1, 100.0)]).us(1), 100.0);
    }
}
