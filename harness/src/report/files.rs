//! Every file that was asked for, written even when the grade failed.

use std::path::Path;

use super::{Report, csv, html, json, junit, markdown};
use crate::cli::Run;
use crate::floor::Rates;
use crate::reason::Failure;
use crate::versus::baseline;

/// Writes them all; before the report is complete only those that can be written anew then.
pub fn write(args: &Run, report: &Report, rates: Option<&Rates>, complete: bool) -> Result<(), Failure> {
    let due = |path: &&Path| complete || !json::is_stream(path);
    if let Some(path) = args.json.as_deref().filter(due) {
        json::write(path, report)?;
    }
    if let Some(path) = args.csv.as_deref().filter(due) {
        json::write_text(path, &csv::render(report))?;
    }
    if let Some(path) = args.md.as_deref().filter(due) {
        json::write_text(path, &markdown::render(report))?;
    }
    if let Some(path) = args.junit.as_deref().filter(due) {
        json::write_text(path, &junit::render(report))?;
    }
    if let Some(path) = args.html.as_deref().filter(due) {
        let peers = html::Peers::read(args.peers.as_deref());
        json::write_text(path, &html::render(report, rates, &peers))?;
    }
    if let Some(name) = &args.save_baseline {
        let path = baseline::path(name);
        if let Some(folder) = path.parent() {
            let _ = std::fs::create_dir_all(folder);
        }
        if due(&path.as_path()) {
            json::write(&path, report)?;
        }
    }
    Ok(())
}
