//! When the latest call on a device was enqueued, and on which stream. To ask the driver whether a stream is busy takes 2 to 3 us (H100).

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Instant;

/// No call has ended so many nanoseconds after it was enqueued: the shortest takes 4.8 us once its blocks run (one prepared row, H200), and they do not run at
/// once.
const SHORTEST: u64 = 5000;

/// The latest call. Of two that are enqueued at once it may mix up the one and the other, so it is a hint.
pub struct Latest {
    start: Instant,
    stream: AtomicU64,
    /// From `start` on.
    nanoseconds: AtomicU64,
}

impl Latest {
    /// There was no call yet.
    pub fn none() -> Self {
        Self { start: Instant::now(), stream: AtomicU64::new(u64::MAX), nanoseconds: AtomicU64::new(0) }
    }

    /// A call has been enqueued on the stream of this number.
    pub fn note(&self, stream: u64) {
        self.stream.store(stream, Relaxed);
        self.nanoseconds.store(self.now(), Relaxed);
    }

    /// Whether it is on this stream and still has to end.
    pub fn runs_on(&self, stream: u64) -> bool {
        self.stream.load(Relaxed) == stream && self.now().saturating_sub(self.nanoseconds.load(Relaxed)) < SHORTEST
    }

    fn now(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread::sleep;
    use std::time::Duration;

    #[test]
    fn a_call_runs_for_a_while_on_its_stream() {
        let latest = Latest::none();
        assert!(!latest.runs_on(0), "there was none");
        let close = (0..100).any(|_| {
            latest.note(7);
            latest.runs_on(7)
        });
        assert!(close);
        latest.note(7);
        assert!(!latest.runs_on(8));
        sleep(Duration::from_nanos(2 * SHORTEST));
        assert!(!latest.runs_on(7));
    }
}
