//! What a candidate's process that ended in a fenced call ended of.

use super::Rig;
use super::inspect::place_in;
use crate::arena::{Lay, Place};
use crate::reason::{Failure, Reason};

impl Rig {
    /// Before a fenced call: nobody has reached for anything yet.
    pub(super) fn clear_note(&mut self, lay: Lay) -> Result<(), Failure> {
        let note = self.arena.note;
        if lay == Lay::Device { Ok(()) } else { self.memory.fill(note.at, note.len, 0) }
    }

    /// The same failure, or what was behind it. The candidate can write to the note, too: to exchange one failure for another.
    pub(super) fn explained(&mut self, failure: Failure, lay: Lay, at: [Place; 3]) -> Failure {
        if failure.reason != Reason::Crash || lay == Lay::Device {
            return failure;
        }
        let mut note = [0.0; crate::arena::NOTE];
        let read = self.memory.read(self.arena.note.at, &mut note);
        let float = u64::from(note[1].to_bits()) << 32 | u64::from(note[0].to_bits());
        let told = read.ok().and_then(|()| told((float as usize).checked_sub(1)?, at));
        told.unwrap_or_else(|| match lay {
            Lay::Malloc => {
                let message = format!("{}; x, weights and output lay at multiples of 16 bytes only", failure.message);
                Failure { message, ..failure }
            }
            _ => failure,
        })
    }
}

/// Of a float that was reached for.
fn told(float: usize, [x, output, weights]: [Place; 3]) -> Option<Failure> {
    for (place, name) in [(x, "x"), (weights, "weights"), (output, "output")] {
        if place.holds(float) {
            let at = place_in(name, float - place.at);
            let message =
                format!("{name} {} written during the call, at {at}", if name == "x" { "was" } else { "were" });
            return (name != "output").then(|| Failure::new(Reason::InputModified, message));
        }
        let sides = place.red_zones().into_iter().zip(["before", "behind"]);
        if let Some((_, side)) = sides.into_iter().find(|(zone, _)| zone.holds(float)) {
            let at = float as isize - place.at as isize;
            let message = format!("memory {side} {name} was read or written, at {name}[{at}], where there may be none");
            return Some(Failure::new(Reason::OutOfBounds, message));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arena::RED;
    use crate::dims::D;

    #[test]
    fn what_was_reached_for_is_told() {
        let of = |at| Place { at, len: 4 * D };
        let at = [of(RED), of(4 * RED), of(8 * RED)];
        let said = |float| told(float, at).map(|f| (f.reason, f.message)).unwrap_or((Reason::Pass, String::new()));
        assert_eq!(said(RED + D + 7).1, "x was written during the call, at row 1 column 7");
        assert_eq!(said(8 * RED).1, "weights were written during the call, at weights[0]");
        let beside = said(RED - 1024);
        assert!(beside.0 == Reason::OutOfBounds && beside.1.contains("before x was read or written, at x[-1024],"));
        assert!(said(4 * RED + 4 * D).1.contains("behind output was read or written, at output[3072],"));
        assert_eq!([said(4 * RED).0, said(100 * RED).0], [Reason::Pass; 2]);
    }
}
