//! What is looked at after a call: red zones, inputs, the output and whether it keeps still.

use super::{Done, Manner, Rig};
use crate::arena::Place;
use crate::check;
use crate::content::Content;
use crate::dims::D;
use crate::protocol::{Api, Device};
use crate::reason::{Failure, Reason};

/// How long work that is still running gets before it is called missing.
const SETTLE: std::time::Duration = std::time::Duration::from_millis(60);

/// Longer than this an idle GPU is not waited for, in us.
const PENDING_US: f64 = 5000.0;

impl Rig {
    /// Looks at everything after a call. The order decides which reason is given first.
    pub(super) fn inspect(
        &mut self,
        content: &Content,
        manner: &Manner,
        at: [Place; 3],
        before: Option<Place>,
        done: &mut Done,
    ) -> Result<(), Failure> {
        let [x, output, weights] = at;
        for (place, name) in [(output, "output"), (x, "x"), (weights, "weights")] {
            self.red_zones(place, name, before)?;
        }
        self.unchanged(x, &content.x, "x")?;
        if manner.check_weights {
            match self.api {
                Api::Solve => self.unchanged(weights, &content.weights, "weights")?,
                // They are gone since the handle was told.
                Api::Prepared => self.unchanged(weights, &vec![f32::from_bits(self.red); weights.len], "weights")?,
            }
        }
        if done.called.pending_us > PENDING_US {
            let ms = done.called.pending_us / 1e3;
            let message =
                format!("work of an earlier call, or of none, kept the GPU busy for {ms:.1} ms into this one");
            return Err(Failure::new(Reason::DeferredWork, message));
        }
        if manner.repeat == 0 {
            return Ok(());
        }
        if manner.snapshot && manner.repeat == 1 {
            self.same_as_snapshot(&done.output)?;
        }
        done.accuracy =
            check::compare(&done.output, &content.expected, &content.x, &content.rows, content.limits.slack);
        let unfinished = done.output.iter().any(|v| !v.is_finite());
        let suspicious = unfinished || done.accuracy.over > 0;
        if manner.settle || suspicious {
            self.still_the_same(output, &done.output)?;
        }
        if let Some(words) = &done.called.complaint {
            let reason = if unfinished { Reason::NotFiniteOrUnwritten } else { Reason::WrongAnswer };
            return Err(Failure::new(reason, format!("the candidate reports an error itself: {words}")));
        }
        self.all_written(&done.output)
    }

    fn read(&mut self, place: Place) -> Result<Vec<f32>, Failure> {
        let mut values = std::mem::take(&mut self.scratch);
        values.resize(place.len, 0.0);
        self.memory.read(place.at, &mut values)?;
        Ok(values)
    }

    fn red_zones(&mut self, place: Place, name: &str, before: Option<Place>) -> Result<(), Failure> {
        for (zone, side) in place.red_zones().into_iter().zip(["before", "behind"]) {
            let values = self.read(zone)?;
            let hits: Vec<usize> =
                (0..zone.len).filter(|&i| values[i].to_bits() != self.red).map(|i| zone.at + i).collect();
            self.scratch = values;
            if hits.is_empty() {
                continue;
            }
            // The last call's output may lie in this call's red zone.
            if before.is_some_and(|b| hits.iter().all(|h| (b.at..b.at + b.len).contains(h))) {
                let message = "the output of the call before was written once more: old addresses are remembered";
                return Err(Failure::new(Reason::Caching, message));
            }
            let message = floats(hits.len(), &format!("{side} {name}"), "written");
            let first = hits[0] as isize - place.at as isize;
            return Err(Failure::new(Reason::OutOfBounds, format!("{message}, first at {name}[{first}]")));
        }
        Ok(())
    }

    fn unchanged(&mut self, place: Place, was: &[f32], name: &str) -> Result<(), Failure> {
        let now = self.read(place)?;
        let changed = differing(&now, was);
        let differ = |(a, b): (&f32, &f32)| a.to_bits() != b.to_bits();
        let first = (changed > 0).then(|| now.iter().zip(was).position(differ)).flatten();
        self.scratch = now;
        let Some(first) = first else { return Ok(()) };
        let first = place_in(name, first);
        let message = floats(changed, &format!("of {name}"), "changed");
        Err(Failure::new(Reason::InputModified, format!("{message}, first at {first}")))
    }

    fn same_as_snapshot(&mut self, output: &[f32]) -> Result<(), Failure> {
        let snapshot = self.read(Place { at: self.arena.snapshot.at, len: output.len() })?;
        let late = differing(&snapshot, output);
        self.scratch = snapshot;
        if late > 0 {
            let late = floats(late, "of the output", "written");
            let message = match self.device {
                Device::Cpu => format!("{late} after the call had returned: work was still running (a thread)"),
                Device::Cuda => format!(
                    "{late} after the call was over on the default stream: work was still running at return (another \
                     stream, or a thread)"
                ),
            };
            return Err(Failure::new(Reason::DeferredWork, message));
        }
        Ok(())
    }

    /// Waits, and fails if the output moves meanwhile.
    fn still_the_same(&mut self, output: Place, was: &[f32]) -> Result<(), Failure> {
        std::thread::sleep(SETTLE);
        let now = self.read(output)?;
        let late = differing(&now, was);
        self.scratch = now;
        if late > 0 {
            let message = format!("{} after the call had returned", floats(late, "of the output", "written"));
            return Err(Failure::new(Reason::DeferredWork, message));
        }
        Ok(())
    }

    fn all_written(&self, output: &[f32]) -> Result<(), Failure> {
        let unwritten = told(output, "were never written", |v| v.to_bits() == self.poison);
        let told = unwritten.or_else(|| told(output, "are NaN or infinite", |v| !v.is_finite()));
        told.map_or(Ok(()), |message| Err(Failure::new(Reason::NotFiniteOrUnwritten, message)))
    }
}

/// How many outputs are like this, where there are any, and which is the first.
fn told(output: &[f32], what: &str, like_this: impl Fn(&f32) -> bool) -> Option<String> {
    let first = output.iter().position(&like_this)?;
    let count = output.iter().filter(|v| like_this(v)).count();
    Some(format!("{count} of {} outputs {what}, first at {}", output.len(), row_and_column(first)))
}

/// A place in an input.
pub(super) fn place_in(name: &str, at: usize) -> String {
    if name == "x" { row_and_column(at) } else { format!("{name}[{at}]") }
}

/// A place in x or the output.
fn row_and_column(at: usize) -> String {
    format!("row {} column {}", at / D, at % D)
}

/// So many floats, where they are and what was done to them.
fn floats(count: usize, place: &str, done: &str) -> String {
    if count == 1 { format!("1 float {place} was {done}") } else { format!("{count} floats {place} were {done}") }
}

fn differing(a: &[f32], b: &[f32]) -> usize {
    use rayon::prelude::*;
    let blocks = a.par_chunks(1 << 16).zip(b.par_chunks(1 << 16));
    blocks.map(|(a, b)| a.iter().zip(b).filter(|(a, b)| a.to_bits() != b.to_bits()).count()).sum()
}
