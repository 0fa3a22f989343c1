//! The grader: `harness/run --help` tells what it does.
//!
//! Two processes. The parent owns seeds, expected values, buffers, clock and verdict, and never loads a candidate;
//! the same executable, started with a hidden argument, loads the library and calls it (`child`).

#![warn(clippy::print_stdout, clippy::print_stderr, reason = "they panic where nobody reads: `ui` has what does not")]

mod arena;
mod arithmetic;
mod bank;
mod binary;
mod cases;
mod check;
mod child;
mod cli;
mod compiler;
mod content;
mod contract;
mod dims;
mod doctor;
mod filter;
mod floor;
mod gpu;
mod grade;
mod guard;
mod inputs;
mod machine;
mod memory;
mod mounts;
mod oracle;
mod plain;
mod plans;
mod processes;
mod profile;
mod protocol;
mod readme;
mod reason;
mod record;
mod redteam;
mod report;
mod rig;
mod rng;
mod run;
mod scope;
mod session;
mod stats;
mod timing;
mod traps;
mod tree;
mod ui;
mod versus;

use std::process::ExitCode;

use clap::Parser;

use crate::cli::{Cli, Command};
use crate::ui::say;

fn main() -> ExitCode {
    if std::env::args_os().nth(1).is_some_and(|first| first == protocol::CHILD) {
        child::main();
    }
    guard::shield();
    if let Err(error) = guard::heed_interrupts() {
        ui::complain(format_args!("warning: an interrupt will not end what a candidate starts: {error}"));
    }
    let cli = Cli::parse();
    let outcome = match cli.command {
        None => run::run(&cli.run),
        Some(Command::Run(args)) => run::run(&args),
        Some(Command::Profile(args)) => profile::run(&args),
        Some(Command::Compare(args)) => compare(&args),
        Some(Command::Readme(args)) => readme::update(&args.record, &args.readme, args.check),
        Some(Command::Redteam(args)) => redteam::redteam(&args),
        Some(Command::Mutants(args)) => redteam::mutants(&args),
        Some(Command::Selftest(args)) => redteam::selftest(args),
        Some(Command::Itself(args)) => versus::itself::run(&args),
        Some(Command::Doctor) => doctor::run(),
        Some(Command::BuildId) => build_id(),
    };
    guard::give_way_to_interrupt();
    match outcome {
        Ok(reason) => ExitCode::from(reason.code()),
        Err(failure) => {
            ui::complain(format_args!("{failure}\nreproduce: {}", cli::reproduce(None)));
            ExitCode::from(failure.outcome().code())
        }
    }
}

/// Prints the build id that a library of this tree has.
fn build_id() -> Result<reason::Reason, reason::Failure> {
    let id = tree::expected_build_id()
        .ok_or_else(|| reason::Failure::new(reason::Reason::Usage, "no source tree above this executable"))?;
    say!("{id}");
    Ok(reason::Reason::Pass)
}

/// Compares two saved reports.
fn compare(args: &cli::Compare) -> Result<reason::Reason, reason::Failure> {
    let (old, new) = (versus::baseline::read(&args.old)?, versus::baseline::read(&args.new)?);
    let compared = versus::baseline::compare(&old, &new);
    for comparison in &compared.comparisons {
        say!("{}", comparison.sentence());
    }
    for sentence in &compared.left_out {
        say!("not compared: {sentence}");
    }
    // With a limit this is a failure, in words of its own.
    if compared.comparisons.is_empty() && args.fail_on_regression.is_none() {
        say!("nothing to compare: the two reports have no timing in common");
    }
    versus::baseline::judge(&compared.comparisons, args.fail_on_regression).map(|()| reason::Reason::Pass)
}
