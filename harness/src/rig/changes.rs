//! What happens to the buffers between the calls of a chain, as copies inside the region: inputs that change, and outputs
//! that are spoilt before a call and kept after it, so that every call may be the one that is looked at.

use crate::arena::{Place, RED};
use crate::content::Content;
use crate::dims::{D, FFN, Param};
use crate::protocol::Patch;

/// The content of a chain describes the state after all changes.
#[derive(Clone, Debug, Default)]
pub struct Changes {
    /// Before call `.0`, rows `.1` and `.2` trade places: of x, or, counted on from its last, of `spare`.
    pub tokens: Vec<(usize, usize, usize)>,
    /// Rows beside x.
    pub spare: Vec<f32>,
    /// Before call `.0`, rows `.2` and `.3` of the matrix `.1` trade places; each row once.
    pub weights: Vec<(usize, Param, usize, usize)>,
    /// Row `.1` of the output is spoilt before call `.0` and kept after it.
    pub looks: Vec<(usize, usize)>,
}

/// Room at the start of the snapshot for the longest row that trades places; behind it are the rows that were kept, and the spare ones.
const PASSING: usize = FFN;

impl Changes {
    /// Where the kept rows lie, one behind the other.
    pub fn kept(&self, snapshot: Place) -> Place {
        Place { at: snapshot.at + PASSING, len: self.looks.len() * D }
    }

    /// Where the spare rows lie.
    pub fn spare(&self, snapshot: Place) -> Place {
        let kept = self.kept(snapshot);
        Place { at: kept.at + kept.len, len: self.spare.len() }
    }

    /// Where both lie.
    pub fn beside(&self, snapshot: Place) -> Place {
        let kept = self.kept(snapshot);
        let place = Place { len: kept.len + self.spare.len(), ..kept };
        assert!(place.at + place.len <= snapshot.at + snapshot.len, "the snapshot has room for all rows of a run");
        place
    }

    /// x and the spare rows before all changes.
    pub fn first_rows(&self, content: &Content) -> (Vec<f32>, Vec<f32>) {
        let mut x = [&content.x[..], &self.spare].concat();
        for &(_, a, b) in self.tokens.iter().rev() {
            for c in 0..D {
                x.swap(a * D + c, b * D + c);
            }
        }
        let spare = x.split_off(content.x.len());
        (x, spare)
    }

    /// Rows of the weights before all changes, with their offsets in the buffer.
    pub fn first_weights<'a>(&self, content: &'a Content) -> Vec<(usize, &'a [f32])> {
        let row = |p: Param, r: usize| p.offset + r * p.cols;
        let swapped = |&(_, p, a, b): &(usize, Param, usize, usize)| {
            [(row(p, a), row(p, b)), (row(p, b), row(p, a))].map(|(to, from)| (to, &content.weights[from..][..p.cols]))
        };
        self.weights.iter().flat_map(swapped).collect()
    }

    /// All of it as copies, in the order in which they are made. A spoilt row is a piece of the red zone.
    pub fn patches(&self, x: Place, output: Place, weights: Place, snapshot: Place) -> Vec<Patch> {
        let mut patches = Vec::new();
        let mut trade = |before, a, b, len| {
            let copy = |from, to| Patch { before, to, from, len };
            patches.extend([copy(a, snapshot.at), copy(b, a), copy(snapshot.at, b)]);
        };
        let spare = self.spare(snapshot).at;
        let token = |row: usize| if row * D < x.len { x.at + row * D } else { spare + row * D - x.len };
        for &(before, a, b) in &self.tokens {
            trade(before, token(a), token(b), D);
        }
        for &(before, p, a, b) in &self.weights {
            let row = |r: usize| weights.at + p.offset + r * p.cols;
            trade(before, row(a), row(b), p.cols);
        }
        let kept = self.kept(snapshot);
        for (k, &(call, row)) in self.looks.iter().enumerate() {
            let at = output.at + row * D;
            patches.push(Patch { before: call, to: at, from: output.at - RED, len: D });
            patches.push(Patch { before: call + 1, to: kept.at + k * D, from: at, len: D });
        }
        // What one call left is kept before anything is done for the next.
        patches.sort_by_key(|p| (p.before, !(kept.at..kept.at + kept.len).contains(&p.to)));
        patches
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::arena::Arena;
    use crate::contract::Limits;
    use crate::dims::{W_FC, W_PROJ, WEIGHTS};
    use crate::rng::Stream;

    #[test]
    fn the_copies_lead_from_the_first_state_to_the_last() {
        let arena = Arena::new(8);
        let ((x, output), weights) = (arena.tokens(8, Stream::new(1, 1)), arena.weights(Stream::new(1, 2)));
        let content = Content {
            seq: 8,
            x: (0..8 * D).map(|i| i as f32).collect(),
            weights: Arc::new((0..WEIGHTS).map(|i| i as f32).collect()),
            rows: vec![],
            expected: vec![],
            limits: Limits::tolerance(0.0),
        };
        let changes = Changes {
            tokens: vec![(1, 2, 5), (2, 5, 7), (2, 3, 9)],
            spare: (0..2 * D).map(|i| -(i as f32)).collect(),
            weights: vec![(1, W_FC, 3, 9), (2, W_PROJ, 0, 3071)],
            looks: vec![(1, 4), (2, 4)],
        };
        let mut region = vec![0f32; arena.len];
        let (first, spare) = changes.first_rows(&content);
        region[x.at..x.at + x.len].copy_from_slice(&first);
        let beside = changes.spare(arena.snapshot);
        region[beside.at..][..beside.len].copy_from_slice(&spare);
        region[weights.at..weights.at + WEIGHTS].copy_from_slice(&content.weights);
        for (at, row) in changes.first_weights(&content) {
            region[weights.at + at..][..row.len()].copy_from_slice(row);
        }
        assert_ne!(region[x.at..x.at + x.len], content.x);
        region[output.at - RED..output.at].fill(-1.0);
        let patches = changes.patches(x, output, weights, arena.snapshot);
        for call in 0..=3 {
            for p in patches.iter().filter(|p| p.before == call) {
                region.copy_within(p.from..p.from + p.len, p.to);
            }
            if call < 3 {
                assert_eq!(region[output.at + 4 * D] == -1.0, call > 0, "spoilt before calls 1 and 2");
                region[output.at..output.at + output.len].fill(call as f32 + 10.0);
            }
        }
        assert!(region[x.at..x.at + x.len] == content.x[..]);
        assert!(region[beside.at..][..beside.len] == changes.spare[..]);
        assert!(region[weights.at..weights.at + WEIGHTS] == content.weights[..]);
        let kept = changes.kept(arena.snapshot);
        assert_eq!((region[kept.at], region[kept.at + D]), (11.0, 12.0));
    }
}
