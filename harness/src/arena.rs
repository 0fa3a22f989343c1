//! One region of memory, shared by the grader and the candidate's process, cut into slots. Every buffer of a
//! call sits at a random place inside a random slot, between two red zones.
//! Offsets are in floats from the start of the region.

use crate::dims::{D, WEIGHTS};
use crate::rng::Stream;

/// Floats in a red zone: 64 KiB.
pub const RED: usize = 16_384;
/// Buffers start at multiples of this many floats: 256 bytes, as cudaMalloc gives them.
const GRAIN: usize = 64;
/// Floats in the 16 bytes at whose multiples malloc's buffers start.
const MALLOC: usize = 4;
/// Floats in a page.
pub const PAGE: usize = 1024;
/// How many grains a buffer may sit away from its slot's start.
const JITTER: usize = 256;
/// Slots for x and output. A call takes two of them.
const TOKEN_SLOTS: usize = 8;
/// Slots for weights.
const WEIGHT_SLOTS: usize = 3;
/// The snapshot's floats, at least: rows that come and go in a run of calls lie there.
const SNAPSHOT: usize = 128 * D;
/// Floats at the region's end for where a fenced call faulted.
pub const NOTE: usize = 2;

/// A buffer's place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// First float.
    pub at: usize,
    /// Floats.
    pub len: usize,
}

impl Place {
    /// Whether this float is one of it.
    pub fn holds(self, float: usize) -> bool {
        (self.at..self.at + self.len).contains(&float)
    }

    /// The buffer and the red zones around it.
    pub fn with_red_zones(self) -> Place {
        Place { at: self.at - RED, len: self.len + 2 * RED }
    }

    /// The two red zones around the buffer.
    pub fn red_zones(self) -> [Place; 2] {
        [Place { at: self.at - RED, len: RED }, Place { at: self.at + self.len, len: RED }]
    }
}

/// How a call's buffers lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lay {
    /// At multiples of 256 bytes.
    Device,
    /// At multiples of 16 bytes and no more.
    Malloc,
    /// From the beginning of a page on.
    First,
    /// Up to the end of a page.
    Last,
}

impl Lay {
    /// The first place from here on that lies so.
    fn from(self, at: usize, len: usize) -> Place {
        let at = match self {
            Lay::Device => at,
            Lay::Malloc => at + MALLOC,
            Lay::First => at.next_multiple_of(PAGE),
            Lay::Last => (at + len).next_multiple_of(PAGE) - len,
        };
        Place { at, len }
    }

    /// Whether this place lies so. What begins with a page may be a device's.
    pub fn has(self, place: Place) -> bool {
        match self {
            Lay::Device => place.at.is_multiple_of(GRAIN),
            Lay::Malloc => place.at % (2 * MALLOC) == MALLOC,
            Lay::First => place.at.is_multiple_of(PAGE),
            Lay::Last => (place.at + place.len).is_multiple_of(PAGE),
        }
    }
}

/// How the region is cut.
#[derive(Clone, Debug)]
pub struct Arena {
    token_slot: usize,
    weight_slot: usize,
    /// Where the copy of the output goes that is taken the moment the call is over.
    pub snapshot: Place,
    /// See [`NOTE`].
    pub note: Place,
    /// Floats in the whole region.
    pub len: usize,
}

fn slot(payload: usize) -> usize {
    (RED + JITTER * GRAIN + PAGE + payload + RED).next_multiple_of(GRAIN)
}

impl Arena {
    /// A region for sequences of up to `tokens` tokens.
    pub fn new(tokens: usize) -> Self {
        let (token_slot, weight_slot) = (slot(tokens * D), slot(WEIGHTS));
        let at = TOKEN_SLOTS * token_slot + WEIGHT_SLOTS * weight_slot;
        let snapshot = Place { at, len: SNAPSHOT.max(tokens * D) };
        let note = Place { at: snapshot.at + snapshot.len, len: NOTE };
        Self { token_slot, weight_slot, snapshot, note, len: note.at + note.len }
    }

    fn inside(base: usize, len: usize, jitter: usize, lay: Lay) -> Place {
        lay.from(base + RED + jitter * GRAIN, len)
    }

    /// Places for x and output, in two different slots.
    pub fn tokens(&self, tokens: usize, stream: Stream) -> (Place, Place) {
        self.tokens_lying(Lay::Device, tokens, stream)
    }

    /// As [`Arena::tokens`], of which both lie so.
    pub fn tokens_lying(&self, lay: Lay, tokens: usize, stream: Stream) -> (Place, Place) {
        let first = stream.below(0, TOKEN_SLOTS);
        let second = (first + 1 + stream.below(1, TOKEN_SLOTS - 1)) % TOKEN_SLOTS;
        let place = |slot: usize, i| Self::inside(slot * self.token_slot, tokens * D, stream.below(i, JITTER), lay);
        (place(first, 2), place(second, 3))
    }

    /// A place for a weight buffer.
    pub fn weights(&self, stream: Stream) -> Place {
        self.weights_lying(Lay::Device, stream)
    }

    /// As [`Arena::weights`], and it lies so.
    pub fn weights_lying(&self, lay: Lay, stream: Stream) -> Place {
        let base = TOKEN_SLOTS * self.token_slot + stream.below(0, WEIGHT_SLOTS) * self.weight_slot;
        Self::inside(base, WEIGHTS, stream.below(1, JITTER), lay)
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
            let lay = [Lay::Device, Lay::Malloc, Lay::First, Lay::Last][seed as usize % 4];
            let (x, out) = arena.tokens_lying(lay, 1 + seed as usize % 100, s);
            let w = arena.weights_lying(lay, s);
            let mut spans = [x, out, w].map(|p| (p.at - RED, p.at + p.len + RED));
            spans.sort_unstable();
            assert!(spans[0].1 <= spans[1].0 && spans[1].1 <= spans[2].0);
            assert!(spans[2].1 <= arena.snapshot.at);
            assert!(
                [x, out, w].into_iter().all(|place| lay.has(place) && (lay == Lay::Malloc) != Lay::Device.has(place))
            );
        }
    }
}
