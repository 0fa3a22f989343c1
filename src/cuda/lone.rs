//! One forward that is one launch, without a graph, so that it may begin while the kernel before it in its stream ends: 0.4 to 1.9 us less from call to call
//! than by a graph (1 to 32 rows, H100). On an idle stream it would be 2 to 3 us more, so there a graph it is.
//!
//! Its blocks wait for each other and start one by one as multiprocessors come free. A cooperative launch would start all of them at once, but never early. A
//! cooperative grid of somebody else's that waits for its turn would keep out those that have yet to start, for ever (seen): hence the highest priority.

use super::addresses::{Addresses, Words};
use super::launch::{Edge, Residency, Step, launch};
use crate::error::Error;
use crate::options::Stream;

/// A launch of a kernel that waits by griddepcontrol before it touches anything.
pub struct Lone {
    step: [Step; 1],
    /// Where it holds addresses of the caller's, and which.
    words: Words,
    addresses: Addresses,
}

impl Lone {
    /// Of this step, whose `words` hold the caller's `addresses`. Nothing of this library may run beside it. `priority`: the device's highest.
    #[must_use]
    pub fn new(step: Step, words: Words, addresses: Addresses, priority: i32) -> Self {
        let step = [Step { edge: Edge::Programmatic, residency: Residency::Foremost(priority), ..step }];
        Self { step, words, addresses }
    }

    /// Enqueues it for the buffers of a call.
    ///
    /// # Safety
    /// As for [`launch`].
    pub unsafe fn launch_at(&mut self, addresses: Addresses, stream: Stream) -> Result<(), Error> {
        self.words.follow(&mut self.step, self.addresses, addresses, |_, _| Ok::<(), Error>(()))?;
        self.addresses = addresses;
        // SAFETY: the caller's promise.
        unsafe { launch(&self.step[0], stream) }
    }
}
