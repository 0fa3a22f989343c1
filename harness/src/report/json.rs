//! The report as a file, written so that a reader never sees half of it.

use std::path::Path;

use serde::Serialize;

use crate::reason::{Failure, Reason};

/// Writes `value` to `path` by way of a file beside it.
pub fn write(path: &Path, value: &impl Serialize) -> Result<(), Failure> {
    let mut text = serde_json::to_string_pretty(value).map_err(|e| failed(path, e))?;
    text.push('\n');
    write_text(path, &text)
}

/// Writes text in the same way.
pub fn write_text(path: &Path, text: &str) -> Result<(), Failure> {
    let beside = path.with_extension("part");
    std::fs::write(&beside, text).and_then(|()| std::fs::rename(&beside, path)).map_err(|e| failed(path, e))
}

fn failed(path: &Path, error: impl std::fmt::Display) -> Failure {
    Failure::new(Reason::Usage, format!("{} cannot be written: {error}", path.display()))
}
