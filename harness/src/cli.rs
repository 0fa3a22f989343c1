//! The command line.

mod values;

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::cases::Suite;
use crate::contract::Precision;
use crate::protocol::{Api, Device};
use crate::reason::{self, Failure, Reason};
use crate::record::Tests;

/// Grades libraries that export solve(): correctness first, then speed.
#[derive(Parser)]
#[command(name = "harness/run", bin_name = "harness/run", version)]
#[command(after_help = reason::help(), args_conflicts_with_subcommands = true)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Option<Command>,
    #[command(flatten)]
    pub run: Run,
}

#[derive(Subcommand)]
pub enum Command {
    /// Grade candidates (what happens without a subcommand)
    Run(Box<Run>),
    /// Time every kernel of one call
    Profile(Box<Calls>),
    /// Compare two reports written with --json
    Compare(Compare),
    /// Write the README's table from a record
    Readme(Readme),
    /// Grade the candidates that cheat, and the honest ones that look like it
    Redteam(Red),
    /// Grade wrong blocks: the mutation score of the correctness suite
    Mutants(Wrong),
    /// Grade the grader: mutants and red team
    Selftest(Selftest),
    /// Compare a library with itself, again and again: how often is there a difference where there is none?
    Itself(Box<Itself>),
    /// Say whether this machine is fit to measure on
    Doctor,
    /// Print the build id of the source tree
    BuildId,
}

/// Which weights timed calls get.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Weights {
    /// Rewritten before every call
    Fresh,
    /// The same for all calls
    Fixed,
    Both,
}

/// What is called, and how.
#[derive(Args, Clone)]
pub struct Calls {
    /// Libraries to grade; the default is this project's own
    pub candidates: Vec<PathBuf>,
    /// A library to grade, as a positional one
    #[arg(long, value_name = "PATH")]
    pub lib: Vec<PathBuf>,
    /// Lengths to time: 1024, or 1,16,1024, or 128:4096:x2
    #[arg(long, default_value = "1024", value_parser = values::seqs)]
    pub seq: values::Seqs,
    /// Where to run; the default is the GPU if there is one
    #[arg(long)]
    pub device: Option<Device>,
    /// Which entry point to call
    #[arg(long, default_value = "solve")]
    pub api: Api,
    /// Lower architecture for a library that honours SOLVE_ARCH
    #[arg(long, value_parser = ["sm75", "sm80", "sm90a"])]
    pub arch: Option<String>,
    /// Precision to ask for (SOLVE_PRECISION) and to hold the candidate to; without it, fast on the hard suite
    #[arg(long)]
    pub precision: Option<Precision>,
    /// Seed of all random numbers; the default is a secret one, and one that is given here can be read by a candidate
    #[arg(long, value_parser = values::seed)]
    pub seed: Option<u64>,
    /// Seconds that a call may take
    #[arg(long, default_value_t = 60.0, value_name = "SECONDS", value_parser = values::seconds)]
    pub timeout: f64,
    /// Never map the grader's device memory into the candidate's process: copy
    #[arg(long)]
    pub copies: bool,
}

/// What a grade consists of.
#[derive(Args, Clone, Default)]
pub struct Grading {
    /// Which correctness cases; official, the challenge's own, is for a quick look: on a GPU its single calls are timed for a moment only
    #[arg(long, default_value = "full")]
    pub suite: Suite,
    /// Correctness cases up to this length; the default is 4096, for the hard suite on a CPU 300
    #[arg(long, value_name = "TOKENS", value_parser = values::at_least_one())]
    pub max_case: Option<usize>,
    /// Weights of the timed calls; the default is both, for the official suite on a GPU fresh
    #[arg(long)]
    pub weights: Option<Weights>,
    /// Fewer samples
    #[arg(long)]
    pub quick: bool,
    /// Processes of the candidate that share the runs back to back on a GPU, because what one is given of its memory is worth 1 to 2 % of a short call; the
    /// default is 3, for the official suite 1
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..=16))]
    pub processes: Option<u16>,
    /// No timing
    #[arg(long)]
    pub no_timing: bool,
}

/// What a record sets itself.
const OF_A_RECORD: [&str; 8] = ["seq", "api", "arch", "precision", "weights", "quick", "processes", "no_timing"];

#[derive(Args, Clone)]
pub struct Run {
    #[command(flatten)]
    pub calls: Calls,
    #[command(flatten)]
    pub grading: Grading,
    /// Write the whole report here
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Write a table of all times here
    #[arg(long, value_name = "FILE")]
    pub csv: Option<PathBuf>,
    /// Write the report as Markdown here
    #[arg(long, value_name = "FILE")]
    pub md: Option<PathBuf>,
    /// Write the cases as JUnit XML here
    #[arg(long, value_name = "FILE")]
    pub junit: Option<PathBuf>,
    /// Write the report as one HTML page with charts here
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// Times of others for the page, as harness/peers/peers.py --json writes them
    #[arg(long, value_name = "FILE", requires = "html")]
    pub peers: Option<PathBuf>,
    /// Keep this run under a name, or in a file
    #[arg(long, value_name = "NAME", value_parser = values::baseline)]
    pub save_baseline: Option<String>,
    /// Compare with a run that was kept
    #[arg(long, value_name = "NAME", value_parser = values::baseline)]
    pub baseline: Option<String>,
    /// Exit with 21 if anything is surely slower than the baseline by more than this
    #[arg(long, value_name = "PERCENT", value_parser = values::percent, requires = "baseline", conflicts_with = "no_timing")]
    pub fail_on_regression: Option<f64>,
    /// Measure every architecture, both entry points and all lengths, and write harness/records/<gpu>.json
    #[arg(long, conflicts_with_all = OF_A_RECORD)]
    pub record: bool,
    /// Where --record writes
    #[arg(long, value_name = "FOLDER", requires = "record")]
    pub record_to: Option<PathBuf>,
    /// Results of the GPU tests for the record, PASSED,FAILED and, where known, IGNORED
    #[arg(long, value_name = "PASSED,FAILED[,IGNORED]", value_parser = values::tests, requires = "record")]
    pub gpu_tests: Option<Tests>,
    /// No progress
    #[arg(short, long)]
    pub quiet: bool,
}

#[derive(Args)]
pub struct Itself {
    /// So many comparisons
    #[arg(long, default_value_t = 100, value_parser = values::at_least_one())]
    pub repeat: usize,
    #[command(flatten)]
    pub calls: Calls,
}

#[derive(Args)]
pub struct Compare {
    /// The earlier report
    pub old: PathBuf,
    /// The later report
    pub new: PathBuf,
    /// Exit with 21 if anything is surely slower by more than this
    #[arg(long, value_name = "PERCENT", value_parser = values::percent)]
    pub fail_on_regression: Option<f64>,
}

#[derive(Args)]
pub struct Readme {
    /// The record
    pub record: PathBuf,
    /// The README
    pub readme: PathBuf,
    /// Change nothing, exit with 21 if something would change
    #[arg(long)]
    pub check: bool,
}

#[derive(Args, Clone)]
pub struct Names {
    /// Names to grade, all without any
    pub names: Vec<String>,
}

#[derive(Args)]
pub struct Red {
    #[command(flatten)]
    pub names: Names,
    /// Which candidates
    #[arg(long)]
    pub device: Option<Device>,
    /// A folder that holds them built already
    #[arg(long, value_name = "FOLDER")]
    pub built: Option<PathBuf>,
    #[command(flatten)]
    pub honest: Honest,
}

#[derive(Args)]
pub struct Wrong {
    #[command(flatten)]
    pub names: Names,
    /// A folder that holds them built already
    #[arg(long, value_name = "FOLDER")]
    pub built: Option<PathBuf>,
}

#[derive(Args)]
pub struct Selftest {
    #[command(flatten)]
    pub names: Names,
    #[command(flatten)]
    pub honest: Honest,
}

#[derive(Args)]
pub struct Honest {
    /// Grade honest candidates this many times
    #[arg(long, default_value_t = 1, value_parser = values::at_least_one())]
    pub repeat: usize,
    /// Grade honest candidates only on what varies from time to time
    #[arg(long)]
    pub short: bool,
}

impl Names {
    /// Is this name asked for?
    pub fn wants(&self, name: &str) -> bool {
        self.names.is_empty() || self.names.iter().any(|n| n == name)
    }

    /// Fails where a name is asked for that none of these have.
    pub fn all_known<'a>(&self, what: &str, known: impl Iterator<Item = &'a str>) -> Result<(), Failure> {
        let known: Vec<&str> = known.collect();
        match self.names.iter().find(|name| !known.contains(&name.as_str())) {
            Some(name) => Err(Failure::new(Reason::Usage, format!("{name:?} is the name of no {what}"))),
            None => Ok(()),
        }
    }
}

/// The command that was given, as a shell reads it, and with the seed where one is told that was not given.
pub fn reproduce(seed: Option<u64>) -> String {
    again(std::env::args_os().skip(1).collect(), seed)
}

fn again(arguments: Vec<OsString>, seed: Option<u64>) -> String {
    let mut arguments: Vec<String> = arguments.iter().map(|a| quoted(a)).collect();
    let given = arguments.iter().any(|a| a == "--seed" || a.starts_with("--seed="));
    if let Some(seed) = seed.filter(|_| !given) {
        // Behind "--" there are only candidates.
        let end = arguments.iter().position(|a| a == "--").unwrap_or(arguments.len());
        arguments.splice(end..end, ["--seed".into(), format!("{seed:#x}")]);
    }
    format!("harness/run {}", arguments.join(" "))
}

fn quoted(argument: &OsStr) -> String {
    let Some(argument) = argument.to_str() else { return quoted_bytes(argument.as_bytes()) };
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./,:=+%@".contains(c);
    if !argument.is_empty() && argument.chars().all(plain) {
        return argument.into();
    }
    format!("'{}'", argument.replace('\'', "'\\''"))
}

/// What is no text, as bash, ksh and zsh read it.
fn quoted_bytes(bytes: &[u8]) -> String {
    let quoted = |&byte: &u8| match byte {
        b'\'' | b'\\' => format!("\\{}", char::from(byte)),
        b' '..=b'~' => char::from(byte).into(),
        _ => format!("\\x{byte:02x}"),
    };
    format!("$'{}'", bytes.iter().map(quoted).collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_is_told_as_it_was_given() {
        let told = |arguments: &str| again(arguments.split(' ').map(OsString::from).collect(), Some(255));
        assert_eq!(told("a.so --max-case 7 --quick"), "harness/run a.so --max-case 7 --quick --seed 0xff");
        assert_eq!(told("run --seed=3 a.so"), "harness/run run --seed=3 a.so");
        assert_eq!(told("--copies -- a.so"), "harness/run --copies --seed 0xff -- a.so");
        assert_eq!(again(vec!["it's my.so".into()], None), r"harness/run 'it'\''s my.so'");
        let no_text = OsStr::from_bytes(b"it's \xff\n.so").into();
        assert_eq!(again(vec![no_text], None), r"harness/run $'it\'s \xff\x0a.so'");
    }

    #[test]
    fn every_suite_says_what_it_is() {
        let told = |suite: &Suite| suite.to_possible_value().is_some_and(|value| value.get_help().is_some());
        assert!(Suite::value_variants().iter().all(told));
    }

    #[test]
    fn the_command_line_is_consistent() {
        use clap::CommandFactory;
        Cli::command().debug_assert();
    }
}
