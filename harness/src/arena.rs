//! One region of memory, shared by the grader and the candidate's process, cut into slots. Every buffer of a
//! call sits at a random place inside a random slot, between two red zones.
//! Offsets are in floats from the start of the region.

use crate::dims::{D, WEIGHTS};
use crate::rng::Stream;

/// Floats in a red zone: 64 KiB.
pub const RED: usize = 16_384;
/// Buffers start at multiples of this many floats: 256 bytes, as cudaMalloc gives them.
const GRAIN: usize = 64;
/// How many grains a buffer may sit away from its slot's start.
const JITTER: usize = 256;
/// Slots for x and output. A call takes two of them.
const TOKEN_SLOTS: usize = 8;
/// Slots for weights.
const WEIGHT_SLOTS: usize = 3;
/// The snapshot's floats, at least: rows that come and go in a run of calls lie there.
const SNAPSHOT: usize = 128 * D;

/// A buffer's place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// First float.
    pub at: usize,
    /// Floats.
    pub len: usize,
}

impl Place {
    /// The two red zones around the buffer.
    pub fn red_zones(self) -> [Place; 2] {
        [Place { at: self.at - RED, len: RED }, Place { at: self.at + self.len, len: RED }]
    }
}

/// How the region is cut.
#[derive(Clone, Debug)]
pub struct Arena {
    token_slot: usize,
    weight_slot: usize,
    /// Where the copy of the output goes that is taken the moment the call is over.
    pub snapshot: Place,
    /// Floats in the whole region.
    pub len: usize,
}

fn slot(payload: usize) -> usize {
    (RED + JITTER * GRAIN + payload + RED).next_multiple_of(GRAIN)
}

impl Arena {
    /// A region for sequences of up to `tokens` tokens.
    pub fn new(tokens: usize) -> Self {
        let (token_slot, weight_slot) = (slot(tokens * D), slot(WEIGHTS));
        let at = TOKEN_SLOTS * token_slot + WEIGHT_SLOTS * weight_slot;
        let snapshot = Place { at, len: SNAPSHOT.max(tokens * D) };
        Self { token_slot, weight_slot, snapshot, len: snapshot.at + snapshot.len }
    }

    fn inside(base: usize, len: usize, jitter: usize) -> Place {
        Place { at: base + RED + jitter * GRAIN, len }
    }

    /// Places for x and output, in two different slots.
    pub fn tokens(&self, tokens: usize, stream: Stream) -> (Place, Place) {
        let first = stream.below(0, TOKEN_SLOTS);
        let second = (first + 1 + stream.below(1, TOKEN_SLOTS - 1)) % TOKEN_SLOTS;
        let place = |slot: usize, i| Self::inside(slot * self.token_slot, tokens * D, stream.below(i, JITTER));
        (place(first, 2), place(second, 3))
    }

    /// A place for a weight buffer.
    pub fn weights(&self, stream: Stream) -> Place {
        let base = TOKEN_SLOTS * self.token_slot + stream.below(0, WEIGHT_SLOTS) * self.weight_slot;
        Self::inside(base, WEIGHTS, stream.below(1, JITTER))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_and_red_zones_stay_apart_and_inside() {
        let arena = Arena::new(100);
        for seed in 0..2000 {
            let s = Stream::new(seed, 0);
            let (x, out) = arena.tokens(1 + seed as usize % 100, s);
            let w = arena.weights(s);
            let mut spans = [x, out, w].map(|p| (p.at - RED, p.at + p.len + RED));
            spans.sort_unstable();
            assert!(spans[0].1 <= spans[1].0 && spans[1].1 <= spans[2].0);
            assert!(spans[2].1 <= arena.snapshot.at);
            assert_eq!((x.at % GRAIN, out.at % GRAIN, w.at % GRAIN), (0, 0, 0));
        }
    }
}
