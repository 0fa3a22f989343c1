//! What the host knows about the alarms of a block's weights (cuda/common/alarm.cuh). Where the fast result stands on such weights, calls go without the
//! exact kernel that would look, 4 to 5 us less a call on an H100; where it does not, without the fast ones.

use super::device::Device;
use super::event::Event;
use super::memory::Pinned;
use super::rescue;
use super::workspace::ALARMS_BYTES;
use crate::error::Error;
use crate::options::Stream;
use crate::precision::SolvePrecision;

/// The host's copy of the alarms, which arrives some time after a preparation was enqueued.
pub struct Alarms {
    words: Pinned,
    /// Recorded behind the latest copy.
    copied: Event,
    precision: SolvePrecision,
    state: State,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    /// Nothing is known: a preparation has not been enqueued to its end.
    Unknown,
    /// The copy is on its way.
    Copying,
    /// Whether the fast result must be computed again.
    Known(bool),
    /// A captured preparation may run at any time.
    Captured,
}

impl Alarms {
    /// Of weights yet to come, for calls in this precision; the device's context is current.
    pub fn new(device: &'static Device, precision: SolvePrecision) -> Result<Self, Error> {
        let words = Pinned::new(device, "the alarms", ALARMS_BYTES)?;
        Ok(Self { words, copied: Event::new(device)?, precision, state: State::Unknown })
    }

    /// Other weights are about to be prepared.
    pub fn forget(&mut self, captured: bool) {
        if captured {
            self.state = State::Captured;
        } else if self.state != State::Captured {
            self.state = State::Unknown;
        }
    }

    /// Has them copied from here, behind their preparation.
    pub fn copy(&mut self, from: u64, stream: Stream) -> Result<(), Error> {
        if self.state != State::Captured {
            self.words.copy(from, stream)?;
            self.copied.record(stream)?;
            self.state = State::Copying;
        }
        Ok(())
    }

    /// Whether the fast result must be computed again, as far as this is known.
    pub fn must_rescue(&mut self) -> Option<bool> {
        if self.state == State::Copying && self.copied.is_done() {
            self.state = State::Known(rescue::must_rescue(&self.words.words(), self.precision));
        }
        if let State::Known(must) = self.state { Some(must) } else { None }
    }
}
