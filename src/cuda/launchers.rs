//! Who launches grids on a device. While it is one alone, grids of this library come one after the other, and a kernel whose blocks wait for others needs
//! no cooperative launch (`Kernel::is_resident`).

use std::sync::{Arc, PoisonError, RwLock, RwLockWriteGuard, Weak};

use super::event::Event;

/// The workspaces of a device, each of which runs its calls one after the other; and under MPS other processes.
pub struct Launchers(RwLock<State>);

struct State {
    count: usize,
    /// Events behind the latest calls of those that do not run on the legacy stream.
    ends: Vec<Weak<Event>>,
}

impl Launchers {
    /// Nobody yet, or only processes that are not seen from here.
    pub fn new(others: bool) -> Self {
        Self(RwLock::new(State { count: usize::from(others), ends: Vec::new() }))
    }

    /// One more. Returns when calls that were enqueued without expecting it have run, but for those on the legacy stream.
    pub fn join(&self) {
        let mut state = self.write();
        state.count += 1;
        state.ends.retain(|end| end.strong_count() > 0);
        for end in state.ends.iter().filter_map(Weak::upgrade) {
            // What failed does not run any more either.
            let _ = end.wait();
        }
    }

    /// One less: it has nothing running.
    pub fn leave(&self) {
        self.write().count -= 1;
    }

    /// The event that one of them records behind each of its calls.
    pub fn note_end(&self, end: &Arc<Event>) {
        self.write().ends.push(Arc::downgrade(end));
    }

    /// Enqueues a call, which is told whether its launcher is the only one; no other joins meanwhile.
    pub fn enqueue<T>(&self, call: impl FnOnce(bool) -> T) -> T {
        let state = self.0.read().unwrap_or_else(PoisonError::into_inner);
        call(state.count == 1)
    }

    fn write(&self) -> RwLockWriteGuard<'_, State> {
        self.0.write().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_is_alone_and_two_are_not() {
        let launchers = Launchers::new(false);
        launchers.join();
        assert!(launchers.enqueue(|alone| alone));
        launchers.join();
        assert!(!launchers.enqueue(|alone| alone));
        launchers.leave();
        assert!(launchers.enqueue(|alone| alone));
    }

    #[test]
    fn nobody_is_alone_beside_other_processes() {
        let launchers = Launchers::new(true);
        launchers.join();
        assert!(!launchers.enqueue(|alone| alone));
    }
}
