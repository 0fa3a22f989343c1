//! The command line.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::builder::RangedU64ValueParser;
use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::cases::Suite;
use crate::contract::Precision;
use crate::protocol::{Api, Device};
use crate::reason::{self, Failure, Reason};

/// Grades libraries that export solve(): correctness first, then speed.
#[derive(Parser)]
#[command(name = "harness/run", version, after_help = reason::help(), args_conflicts_with_subcommands = true)]
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
    Profile(Box<Run>),
    /// Compare two reports written with --json
    Compare(Compare),
    /// Write the README's table from a record
    Readme(Readme),
    /// Grade the candidates that cheat, and the honest ones that look like it
    Redteam(Red),
    /// Grade wrong blocks: the mutation score of the correctness suite
    Mutants(Red),
    /// Grade the grader: mutants and red team
    Selftest(Red),
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

#[derive(Args, Clone)]
pub struct Run {
    /// Libraries to grade; the default is this project's own
    pub candidates: Vec<PathBuf>,
    /// A library to grade, as a positional one
    #[arg(long, value_name = "PATH")]
    pub lib: Vec<PathBuf>,
    /// Lengths to time: 1024, or 1,16,1024, or 128:4096:x2
    #[arg(long, default_value = "1024", value_parser = parse_seqs)]
    pub seq: Seqs,
    /// Where to run; the default is the GPU if there is one
    #[arg(long)]
    pub device: Option<Device>,
    /// Which entry point to call
    #[arg(long, default_value = "solve")]
    pub api: Api,
    /// Lower architecture for a library that honours SOLVE_ARCH
    #[arg(long, value_name = "sm75|sm80")]
    pub arch: Option<String>,
    /// Which correctness cases; official, the challenge's own, is for a quick look: on a GPU its single calls are timed for a moment only
    #[arg(long, default_value = "full")]
    pub suite: Suite,
    /// Precision to ask for (SOLVE_PRECISION) and to hold the candidate to; without it, fast on the hard suite
    #[arg(long)]
    pub precision: Option<Precision>,
    /// Correctness cases up to this length; the default is 4096, for the hard suite on a CPU 256
    #[arg(long, value_name = "TOKENS", value_parser = at_least_one())]
    pub max_case: Option<usize>,
    /// Weights of the timed calls; the default is both, for the official suite on a GPU fresh
    #[arg(long)]
    pub weights: Option<Weights>,
    /// Seed of all random numbers; the default is a secret one, and one that is given here can be read by a candidate
    #[arg(long, value_parser = parse_seed)]
    pub seed: Option<u64>,
    /// Seconds that a call may take
    #[arg(long, default_value_t = 60.0, value_name = "SECONDS", value_parser = parse_seconds)]
    pub timeout: f64,
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
    /// Never use CUDA IPC
    #[arg(long)]
    pub copies: bool,
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
    #[arg(long, value_name = "FILE")]
    pub peers: Option<PathBuf>,
    /// Keep this run under a name, or in a file
    #[arg(long, value_name = "NAME")]
    pub save_baseline: Option<String>,
    /// Compare with a run that was kept
    #[arg(long, value_name = "NAME")]
    pub baseline: Option<String>,
    /// Exit with 21 if anything is surely slower than the baseline by more than this
    #[arg(long, value_name = "PERCENT", value_parser = parse_percent, requires = "baseline")]
    pub fail_on_regression: Option<f64>,
    /// Measure every architecture, both entry points and all lengths, and write harness/records/<gpu>.json
    #[arg(long)]
    pub record: bool,
    /// Where --record writes
    #[arg(long, value_name = "FOLDER")]
    pub record_to: Option<PathBuf>,
    /// Results of the GPU tests for the record, PASSED,FAILED
    #[arg(long, value_name = "PASSED,FAILED", value_parser = parse_pair)]
    pub gpu_tests: Option<(usize, usize)>,
    /// No progress
    #[arg(short, long)]
    pub quiet: bool,
}

#[derive(Args)]
pub struct Itself {
    /// So many comparisons
    #[arg(long, default_value_t = 100, value_parser = at_least_one())]
    pub repeat: usize,
    #[command(flatten)]
    pub run: Run,
}

#[derive(Args)]
pub struct Compare {
    /// The earlier report
    pub old: PathBuf,
    /// The later report
    pub new: PathBuf,
    /// Exit with 21 if anything is surely slower by more than this
    #[arg(long, value_name = "PERCENT", value_parser = parse_percent)]
    pub fail_on_regression: Option<f64>,
}

#[derive(Args)]
pub struct Readme {
    /// The record
    pub record: PathBuf,
    /// The README
    pub readme: PathBuf,
    /// Change nothing, fail if something would change
    #[arg(long)]
    pub check: bool,
}

#[derive(Args, Clone)]
pub struct Red {
    /// Names to grade, all without any
    pub names: Vec<String>,
    /// Which candidates
    #[arg(long)]
    pub device: Option<Device>,
    /// A folder that holds them built already
    #[arg(long, value_name = "FOLDER")]
    pub built: Option<PathBuf>,
    /// Grade honest candidates this many times
    #[arg(long, default_value_t = 1, value_parser = at_least_one())]
    pub repeat: usize,
    /// Grade honest candidates only on what varies from time to time
    #[arg(long)]
    pub short: bool,
}

impl Red {
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
    let mut arguments: Vec<String> = arguments.iter().map(|a| quoted(&a.to_string_lossy())).collect();
    let given = arguments.iter().any(|a| a == "--seed" || a.starts_with("--seed="));
    if let Some(seed) = seed.filter(|_| !given) {
        // Behind "--" there are only candidates.
        let end = arguments.iter().position(|a| a == "--").unwrap_or(arguments.len());
        arguments.splice(end..end, ["--seed".into(), format!("{seed:#x}")]);
    }
    format!("harness/run {}", arguments.join(" "))
}

fn quoted(argument: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./,:=+%@".contains(c);
    if !argument.is_empty() && argument.chars().all(plain) {
        return argument.into();
    }
    format!("'{}'", argument.replace('\'', "'\\''"))
}

/// Lengths of sequences.
#[derive(Clone, Debug)]
pub struct Seqs(pub Vec<usize>);

fn parse_seqs(text: &str) -> Result<Seqs, String> {
    let number = |s: &str| match s.trim().parse::<usize>() {
        Ok(n) if (1..=131_072).contains(&n) => Ok(n),
        _ => Err(format!("{s:?} is no length from 1 to 131072")),
    };
    if let [from, to, factor] = text.split(':').collect::<Vec<_>>()[..] {
        let factor = factor.strip_prefix('x').ok_or("a range is FROM:TO:xFACTOR")?;
        let (mut at, to, factor) = (number(from)?, number(to)?, number(factor)?);
        let mut seqs = Vec::new();
        while at <= to && factor > 1 {
            seqs.push(at);
            at *= factor;
        }
        return if seqs.is_empty() { Err("an empty range".into()) } else { Ok(Seqs(seqs)) };
    }
    text.split(',').map(number).collect::<Result<Vec<_>, _>>().map(Seqs)
}

fn at_least_one() -> RangedU64ValueParser<usize> {
    RangedU64ValueParser::new().range(1..)
}

fn parse_seed(text: &str) -> Result<u64, String> {
    let parsed = match text.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16),
        None => text.parse(),
    };
    parsed.map_err(|_| format!("{text:?} is no 64-bit number"))
}

fn parse_seconds(text: &str) -> Result<f64, String> {
    let seconds = text.parse().ok().filter(|s: &f64| s.is_finite() && *s > 0.0);
    seconds.ok_or_else(|| format!("{text:?} is no number of seconds above 0"))
}

fn parse_percent(text: &str) -> Result<f64, String> {
    let percent = text.parse().ok().filter(|p: &f64| p.is_finite() && *p >= 0.0);
    percent.ok_or_else(|| format!("{text:?} is no percentage from 0 on"))
}

fn parse_pair(text: &str) -> Result<(usize, usize), String> {
    let pair = text.split_once(',').and_then(|(a, b)| Some((a.trim().parse().ok()?, b.trim().parse().ok()?)));
    pair.ok_or_else(|| format!("{text:?} is not PASSED,FAILED"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_parse() {
        assert_eq!(parse_seqs("1,16,1024").unwrap().0, [1, 16, 1024]);
        assert_eq!(parse_seqs("128:1024:x2").unwrap().0, [128, 256, 512, 1024]);
        for bad in ["", "0", "a", "1:2", "4:2:x2", "1:8:x1", "1:8:2", "-1", "999999999"] {
            assert!(parse_seqs(bad).is_err(), "{bad}");
        }
        assert_eq!(parse_seed("0xff"), Ok(255));
        assert_eq!([parse_percent("0"), parse_percent("2.5")], [Ok(0.0), Ok(2.5)]);
        assert_eq!(parse_seconds("0.5"), Ok(0.5));
        assert!(parse_seconds("0").is_err());
        for bad in ["nan", "inf", "-1", "", "1%"] {
            assert!(parse_percent(bad).is_err() && parse_seconds(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn the_command_is_told_as_it_was_given() {
        let told = |arguments: &str| again(arguments.split(' ').map(OsString::from).collect(), Some(255));
        assert_eq!(told("a.so --max-case 7 --quick"), "harness/run a.so --max-case 7 --quick --seed 0xff");
        assert_eq!(told("run --seed=3 a.so"), "harness/run run --seed=3 a.so");
        assert_eq!(told("--copies -- a.so"), "harness/run --copies --seed 0xff -- a.so");
        assert_eq!(again(vec!["it's my.so".into()], None), r"harness/run 'it'\''s my.so'");
    }

    #[test]
    fn the_command_line_is_consistent() {
        use clap::CommandFactory;
        Cli::command().debug_assert();
    }
}
