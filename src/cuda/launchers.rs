//! Who launches grids on a device, and on which streams. While that is one stream, grids of this library come one after the other, and a kernel whose blocks
//! wait for others needs no cooperative launch (`Kernel::residency` in `hopper/plan/mod.rs`).

use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard, Weak};

use super::device::Device;
use super::event::Event;
use super::latest::Latest;
use super::launch::number_of;
use super::memory::wait;
use crate::error::Error;
use crate::options::Stream;

/// After so many calls in a row on one stream it is looked whether others still have any.
const ROW: u32 = 64;

/// The workspaces of a device, each of which runs its calls one after the other; and under MPS other processes.
pub struct Launchers(RwLock<State>);

struct State {
    /// Processes that are not seen from here.
    others: bool,
    /// Calls were captured, whose graphs may be launched on any stream at any time.
    captured: bool,
    count: usize,
    streams: Streams,
    /// Behind what was enqueued before there were many streams.
    settled: Option<Event>,
    settling: AtomicBool,
    row: Row,
    /// There were many streams, and is one again. Only once: who then comes on another waits for what that one has enqueued.
    came_back: bool,
    /// Events behind the latest calls.
    ends: Vec<Weak<Event>>,
    latest: Latest,
}

/// What else there is when a call is enqueued.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Company {
    /// Nothing of this library runs beside it, which stays true until it has run.
    pub alone: bool,
    /// A call was enqueued so shortly before that it is still running; on the same stream, if there are several launchers. A hint: it may have failed.
    pub follows: bool,
}

/// Where calls have been enqueued since the latest launcher joined. Of no interest while there is one launcher.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Streams {
    None,
    /// By the driver's number, which it never gives again.
    One(u64),
    Many,
}

/// The latest calls on one stream. Of calls that are enqueued at once it may count some wrongly, so it is a hint.
struct Row {
    stream: AtomicU64,
    calls: AtomicU32,
}

/// The mark behind a launcher's latest call.
#[derive(Clone, Copy)]
pub struct End<'a> {
    /// Known by `note_end`.
    pub event: &'a Event,
    /// Whether it is recorded also while there is no other launcher.
    pub always: bool,
}

impl Launchers {
    /// Nobody yet, or only processes that are not seen from here.
    pub fn new(others: bool) -> Self {
        Self(RwLock::new(State {
            others,
            captured: false,
            count: 0,
            streams: Streams::None,
            settled: None,
            settling: AtomicBool::new(false),
            row: Row { stream: AtomicU64::new(u64::MAX), calls: AtomicU32::new(0) },
            came_back: false,
            ends: Vec::new(),
            latest: Latest::none(),
        }))
    }

    /// One more. Returns when calls that were enqueued without expecting it have run, but for those whose end was not recorded: their stream is for the caller
    /// to wait for.
    pub fn join(&self, device: &'static Device) -> Result<(), Error> {
        let mut state = self.write();
        if state.settled.is_none() {
            state.settled = Some(Event::new(device)?);
        }
        state.wait();
        state.join();
        Ok(())
    }

    /// One less: it has nothing running.
    pub fn leave(&self) {
        self.write().count -= 1;
    }

    /// The event behind each of its calls.
    pub fn note_end(&self, end: &Arc<Event>) {
        let mut state = self.write();
        state.ends.retain(|end| end.strong_count() > 0);
        state.ends.push(Arc::downgrade(end));
    }

    /// Enqueues a call, and records its end. The call is told what else there is.
    pub fn enqueue(
        &self,
        stream: Stream,
        end: End<'_>,
        call: impl FnOnce(Company) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let state = self.read();
        // One launcher may come on any stream.
        let number = if state.count == 1 { 0 } else { number_of(stream)? };
        if state.expects(number) && !state.ends_row(number) {
            return state.enqueue(number, stream, end, call);
        }
        drop(state);
        let mut state = self.write();
        state.come_back_to(number, ptr::from_ref(end.event));
        let before = state.streams;
        if state.meet(number) {
            if let Err(error) = state.settle(stream) {
                // Else later calls would believe that somebody has waited.
                state.streams = before;
                return Err(error);
            }
            *state.settling.get_mut() = true;
        }
        state.enqueue(number, stream, end, call)
    }

    /// A call is being captured: everything enqueued from now on may run beside it.
    pub fn capture(&self) {
        if self.read().captured {
            return;
        }
        let mut state = self.write();
        state.captured = true;
        if state.count > 1 {
            state.wait();
            state.streams = Streams::Many;
        }
    }

    /// Forgets that its caller enqueued on the legacy stream, which has run.
    pub fn leave_legacy(&self) -> Result<(), Error> {
        let legacy = number_of(Stream::LEGACY)?;
        let mut state = self.write();
        if state.streams == Streams::One(legacy) {
            // Others may have come after.
            wait(Stream::LEGACY)?;
            state.streams = Streams::None;
        }
        Ok(())
    }

    fn read(&self) -> RwLockReadGuard<'_, State> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, State> {
        self.0.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn wait(&self) {
        for end in self.ends.iter().filter_map(Weak::upgrade) {
            // What failed does not run any more either.
            let _ = end.wait();
        }
    }

    /// One more, when nothing is running.
    fn join(&mut self) {
        self.count += 1;
        self.streams = if self.captured { Streams::Many } else { Streams::None };
        *self.settling.get_mut() = false;
        self.came_back = false;
    }

    /// Whether a call on this stream changes nothing.
    fn expects(&self, number: u64) -> bool {
        self.count == 1 || self.streams == Streams::Many || self.streams == Streams::One(number)
    }

    /// Whether there are many streams, of which all but one could be let go.
    fn may_come_back(&self) -> bool {
        let useful = self.count > 1 && !self.others && !self.captured;
        useful && self.streams == Streams::Many && !self.came_back
    }

    /// A call on this stream follows. Returns whether it is to be looked if the others can be let go.
    fn ends_row(&self, number: u64) -> bool {
        self.may_come_back() && self.row.add(number).is_multiple_of(ROW)
    }

    /// Lets them go if no launcher but the one of this event, whose calls come one after the other, has a call that is still running.
    fn come_back_to(&mut self, number: u64, own: *const Event) {
        let has_ended = |end: &Weak<Event>| end.as_ptr() == own || end.upgrade().is_none_or(|end| end.is_done());
        if self.may_come_back() && self.row.has_lasted(number) && self.ends.iter().all(has_ended) {
            self.streams = Streams::One(number);
            self.came_back = true;
        }
    }

    /// A call on this stream follows. Returns whether it must wait for those that expected no other stream.
    fn meet(&mut self, number: u64) -> bool {
        let before = self.streams;
        self.streams = match before {
            _ if self.expects(number) => before,
            Streams::None => Streams::One(number),
            _ => Streams::Many,
        };
        self.streams == Streams::Many && before != Streams::Many
    }

    /// The first call on a second stream waits for what expected no other.
    fn settle(&self, stream: Stream) -> Result<(), Error> {
        self.ends.iter().filter_map(Weak::upgrade).try_for_each(|end| end.precede(stream))?;
        self.settled.as_ref().map_or(Ok(()), |settled| settled.record(stream))
    }

    fn is_alone(&self, number: u64) -> bool {
        !self.others && (self.count == 1 || self.streams == Streams::One(number))
    }

    fn enqueue(
        &self,
        number: u64,
        stream: Stream,
        end: End<'_>,
        call: impl FnOnce(Company) -> Result<(), Error>,
    ) -> Result<(), Error> {
        if self.settling.load(Ordering::Relaxed)
            && let Some(settled) = &self.settled
        {
            if settled.is_done() {
                self.settling.store(false, Ordering::Relaxed);
            } else {
                settled.precede(stream)?;
            }
        }
        let outcome = call(Company { alone: self.is_alone(number), follows: self.latest.runs_on(number) });
        // After a failure too: part of the work may be running.
        let recorded = if end.always || self.count > 1 { end.event.record(stream) } else { Ok(()) };
        if recorded.is_err() {
            // Nobody could wait for it later: the event is still where it was.
            let _ = wait(stream);
        }
        self.latest.note(number);
        outcome.and(recorded)
    }
}

impl Row {
    /// One more call on a stream. Returns how many they are now.
    fn add(&self, number: u64) -> u32 {
        if self.stream.swap(number, Ordering::Relaxed) == number {
            return self.calls.fetch_add(1, Ordering::Relaxed) + 1;
        }
        self.calls.store(1, Ordering::Relaxed);
        1
    }

    fn has_lasted(&self, number: u64) -> bool {
        self.stream.load(Ordering::Relaxed) == number && self.calls.load(Ordering::Relaxed) >= ROW
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A call on this stream: whether it is alone.
    fn call(launchers: &Launchers, number: u64) -> bool {
        let mut state = launchers.write();
        if state.ends_row(number) {
            state.come_back_to(number, ptr::null());
        }
        state.meet(number);
        state.is_alone(number)
    }

    fn of(count: usize) -> Launchers {
        let launchers = Launchers::new(false);
        (0..count).for_each(|_| launchers.write().join());
        launchers
    }

    #[test]
    fn one_launcher_is_alone_on_any_stream() {
        let launchers = of(1);
        assert!(call(&launchers, 1));
        assert!(call(&launchers, 2));
    }

    #[test]
    fn two_are_alone_while_they_share_a_stream() {
        let launchers = of(2);
        assert!(call(&launchers, 7));
        assert!(call(&launchers, 7));
        assert!(!call(&launchers, 8), "beside 7");
        assert!(!call(&launchers, 7), "from then on beside 8");
        launchers.leave();
        assert!(call(&launchers, 7), "one is left");
    }

    #[test]
    fn the_first_call_on_a_second_stream_waits_for_the_others() {
        let launchers = of(2);
        assert!(!launchers.write().meet(7));
        assert!(!launchers.write().meet(7));
        assert!(launchers.write().meet(8));
        assert!(!launchers.write().meet(9), "8 has waited");
    }

    #[test]
    fn a_row_of_calls_on_one_stream_lets_go_of_the_others_once() {
        let launchers = of(2);
        (6..8).for_each(|number| assert_eq!(call(&launchers, number), number == 6));
        let row = |number| (0..ROW).map(|_| call(&launchers, number)).collect::<Vec<_>>();
        assert!(row(8).iter().rev().skip(1).all(|alone| !alone), "before the row is full");
        assert!(row(8).iter().all(|alone| *alone), "behind a full row");
        assert!(!call(&launchers, 9), "beside 8");
        row(8);
        assert!(!call(&launchers, 8), "it was let go of once");
        launchers.write().join();
        row(7);
        call(&launchers, 8);
        (0..ROW).for_each(|_| (7..9).for_each(|number| assert!(!call(&launchers, number), "in turn")));
        row(8);
        assert!(call(&launchers, 8), "who joined begins anew");
    }

    #[test]
    fn where_others_may_run_no_row_is_alone() {
        let launchers = of(2);
        launchers.capture();
        (0..2 * ROW).for_each(|_| assert!(!call(&launchers, 7)));
    }

    #[test]
    fn who_joins_begins_anew() {
        let launchers = of(2);
        call(&launchers, 7);
        call(&launchers, 8);
        launchers.write().join();
        assert!(call(&launchers, 8));
        assert!(call(&launchers, 8));
    }

    #[test]
    fn a_captured_call_may_run_beside_any_but_its_own_launchers() {
        let launchers = of(1);
        launchers.capture();
        assert!(call(&launchers, 7));
        launchers.write().join();
        assert!(!call(&launchers, 7));
        launchers.write().join();
        assert!(!call(&launchers, 7));
    }

    #[test]
    fn nobody_is_alone_beside_other_processes() {
        let launchers = Launchers::new(true);
        launchers.write().join();
        assert!(!call(&launchers, 7));
        launchers.write().join();
        assert!(!call(&launchers, 7));
    }
}
