//! What the host knows about the alarms of a block's weights. While none is raised the fast result stands, and calls go without the exact kernel that
//! would look: up to 2 us less a call on an H200.

use super::device::Device;
use super::event::Event;
use super::memory::Pinned;
use super::workspace::ALARMS_BYTES;
use crate::error::Error;
use crate::options::Stream;

/// The host's copy of the alarms, which arrives some time after a preparation was enqueued.
pub struct Alarms {
    words: Pinned,
    /// Recorded behind the latest copy.
    copied: Event,
    state: State,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    /// An alarm was raised, or a preparation failed halfway.
    Loud,
    /// The copy is on its way.
    Copying,
    Quiet,
    /// A captured preparation may run at any time.
    Captured,
}

impl Alarms {
    /// Of weights yet to come; the device's context is current.
    pub fn new(device: &'static Device) -> Result<Self, Error> {
        let words = Pinned::new(device, "the alarms", ALARMS_BYTES)?;
        Ok(Self { words, copied: Event::new(device)?, state: State::Loud })
    }

    /// Other weights are about to be prepared.
    pub fn forget(&mut self, captured: bool) {
        if captured {
            self.state = State::Captured;
        } else if self.state != State::Captured {
            self.state = State::Loud;
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

    /// Whether it is known that none is raised.
    pub fn are_quiet(&mut self) -> bool {
        if self.state == State::Copying && self.copied.is_done() {
            self.state = if self.words.is_zero() { State::Quiet } else { State::Loud };
        }
        self.state == State::Quiet
    }
}
