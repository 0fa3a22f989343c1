//! Every file that was asked for, written even when the grade failed.

use super::{Report, csv, html, json, junit, markdown};
use crate::cli::Run;
use crate::floor::Rates;
use crate::reason::Failure;
use crate::versus::baseline;

/// Writes them all.
pub fn write(args: &Run, report: &Report, rates: Option<&Rates>) -> Result<(), Failure> {
    if let Some(path) = &args.json {
        json::write(path, report)?;
    }
    if let Some(path) = &args.csv {
        json::write_text(path, &csv::render(report))?;
    }
    if let Some(path) = &args.md {
        json::write_text(path, &markdown::render(report))?;
    }
    if let Some(path) = &args.junit {
        json::write_text(path, &junit::render(report))?;
    }
    if let Some(path) = &args.html {
        let peers = html::Peers::read(args.peers.as_deref());
        json::write_text(path, &html::render(report, rates, &peers))?;
    }
    if let Some(name) = &args.save_baseline {
        let path = baseline::path(name);
        if let Some(folder) = path.parent() {
            let _ = std::fs::create_dir_all(folder);
        }
        json::write(&path, report)?;
    }
    Ok(())
}
