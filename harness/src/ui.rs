//! What the grader prints, and progress: a bar with an estimate on a terminal, a plain line now and then elsewhere.

use std::fmt::Arguments;
use std::io::{ErrorKind, IsTerminal, Write, stderr, stdout};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

use crate::guard;
use crate::plain::plain;
use crate::reason::Reason;

/// As `println!`, which panics where nobody reads any more.
macro_rules! say {
    ($($text:tt)*) => { $crate::ui::print(format_args!($($text)*)) };
}
pub(crate) use say;

/// Prints a line. A reader that has gone ends the grader like any other program, though not by the signal: that would also come of a candidate that has
/// gone, and leave behind what it started.
pub fn print(line: Arguments) {
    let Err(error) = writeln!(stdout(), "{}", plain(&line.to_string())) else { return };
    if error.kind() == ErrorKind::BrokenPipe {
        guard::leave(guard::ended_by(libc::SIGPIPE));
    }
    complain(format_args!("standard output cannot be written: {error}"));
    guard::leave(Reason::Usage.code());
}

/// Prints a line for whoever still reads standard error.
pub fn complain(line: Arguments) {
    let _ = writeln!(stderr(), "{}", plain(&line.to_string()));
}

/// Where progress goes.
pub struct Ui {
    bar: Option<ProgressBar>,
    start: Instant,
    last: Instant,
    quiet: bool,
    done: u64,
    total: u64,
}

/// What is left, if all steps take as long as those that are done did.
fn seconds_left(past: Duration, done: u64, total: u64) -> f64 {
    past.as_secs_f64() * total.saturating_sub(done) as f64 / done.max(1) as f64
}

/// Plain lines come this far apart.
const PLAIN_EVERY: Duration = Duration::from_secs(10);

impl Ui {
    /// A bar if standard error is a terminal.
    pub fn new(quiet: bool) -> Self {
        let bar = (!quiet && std::io::stderr().is_terminal()).then(|| {
            let bar = ProgressBar::new(0);
            let style = ProgressStyle::with_template("{bar:24} {percent:>3}% {eta:>4} left  {wide_msg}");
            bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
            bar
        });
        Self { bar, start: Instant::now(), last: Instant::now(), quiet, done: 0, total: 0 }
    }

    /// So many more steps are to come.
    pub fn expect(&mut self, steps: usize) {
        self.total += steps as u64;
        if let Some(bar) = &self.bar {
            bar.set_length(self.total);
        }
    }

    /// The next step begins.
    pub fn step(&mut self, what: &str) {
        self.done += 1;
        match &self.bar {
            Some(bar) => {
                bar.set_position(self.done - 1);
                bar.set_message(what.to_string());
            }
            None if !self.quiet && self.last.elapsed() >= PLAIN_EVERY => {
                self.last = Instant::now();
                let left = seconds_left(self.start.elapsed(), self.done - 1, self.total);
                complain(format_args!("[{}/{}] {what}, about {left:.0} s left", self.done, self.total));
            }
            None => {}
        }
    }

    /// A line of the result, above the bar.
    pub fn line(&self, text: &str) {
        match &self.bar {
            Some(bar) => bar.suspend(|| say!("{text}")),
            None => say!("{text}"),
        }
    }

    /// Takes the bar away.
    pub fn finish(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_follows_from_what_is_done() {
        assert_eq!(seconds_left(Duration::from_secs(6), 3, 12), 18.0);
        assert_eq!(seconds_left(Duration::from_secs(6), 12, 12), 0.0);
    }
}
