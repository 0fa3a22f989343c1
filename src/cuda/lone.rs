//! One forward that is one launch, kept and launched without a graph, so that it may begin while the kernel before it in its stream ends: 0.3 to 1.7 us less
//! from call to call than by a graph (1 to 32 rows, H100 and H200).
//!
//! Its blocks wait for each other and start one by one as multiprocessors come free. A cooperative launch would start all of them at once, but never early. A
//! cooperative grid of somebody else's that waits for its turn would keep out those that have yet to start, for ever (seen): hence the highest priority.

use super::addresses::{Addresses, Words};
use super::launch::{Edge, Residency, Step, launch};
use crate::error::Error;
use crate::options::Stream;

/// A launch of a kernel that waits by griddepcontrol before it touches anything.
pub struct Lone {
    /// The first on a stream, which fails if its blocks are more than may run there together; and those that follow it.
    first: [Step; 1],
    next: [Step; 1],
    /// Where they hold addresses of the caller's, and which.
    words: Words,
    addresses: Addresses,
}

impl Lone {
    /// Of this step, whose `words` hold the caller's `addresses`. Nothing of this library may run beside it. `priority`: the device's highest.
    #[must_use]
    pub fn new(step: Step, words: Words, addresses: Addresses, priority: i32) -> Self {
        let next = Step { edge: Edge::Programmatic, residency: Residency::Foremost(priority), ..step.clone() };
        Self { first: [step], next: [next], words, addresses }
    }

    /// Enqueues it for the buffers of a call. `follows`: the latest call was on this stream.
    ///
    /// # Safety
    /// As for [`launch`].
    pub unsafe fn launch_at(&mut self, addresses: Addresses, stream: Stream, follows: bool) -> Result<(), Error> {
        for step in [&mut self.first, &mut self.next] {
            self.words.follow(step, self.addresses, addresses, |_, _| Ok::<(), Error>(()))?;
        }
        self.addresses = addresses;
        let [step] = if follows { &self.next } else { &self.first };
        // SAFETY: the caller's promise.
        unsafe { launch(step, stream) }
    }
}
