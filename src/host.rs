//! Host memory of the caller, checked against the kernel's own list of mappings before it is touched, so that a freed or foreign pointer
//! becomes a status instead of a crash.

use std::fs::File;
use std::io::{BufRead, BufReader, ErrorKind};

use crate::error::Error;
use crate::span::{Span, Tokens};

/// The floats of a span that is only read.
pub fn read<'a>(span: &Span) -> Result<&'a [f32], Error> {
    check(span, "readable")?;
    // SAFETY: aligned (Span), mapped readable for its whole length just now, and kept so by the caller during the call.
    Ok(unsafe { std::slice::from_raw_parts(span.address as *const f32, span.bytes / size_of::<f32>()) })
}

/// The floats of a span that is written.
pub fn write<'a>(span: &Span) -> Result<&'a mut [f32], Error> {
    check(span, "writable")?;
    // SAFETY: as in `read`, and writable; any slice over x at the same place is no longer used when this is written.
    Ok(unsafe { std::slice::from_raw_parts_mut(span.address as *mut f32, span.bytes / size_of::<f32>()) })
}

/// Where the device has had a fault: NaN in host output, so that a caller who does not look at the status sees that something is wrong.
pub fn spoil(tokens: &Tokens, error: &Error) {
    if error.is_fault()
        && let Ok(output) = write(&tokens.output)
    {
        output.fill(f32::NAN);
    }
}

/// Refuses a span that is not mapped with this access from its first byte to its last.
pub fn check(span: &Span, access: &'static str) -> Result<(), Error> {
    let Some(maps) = mappings()? else { return Ok(()) };
    let mut covered = span.address;
    // The kernel writes the list as it is read, in the order of the addresses, at a cost that a call with few tokens would feel.
    for line in BufReader::new(maps).split(b'\n').map_while(Result::ok) {
        // The name of a mapped file may be anything.
        let line = String::from_utf8_lossy(&line);
        let Some((start, end, permissions)) = mapping(&line) else { continue };
        if start > covered {
            break;
        }
        let allowed = permissions.starts_with('r') && (access == "readable" || permissions[1..].starts_with('w'));
        if allowed && start <= covered && covered < end {
            covered = end;
        }
        if covered >= span.end() {
            return Ok(());
        }
    }
    Err(Error::BadPointer { argument: span.argument, address: span.address, access, bytes: span.bytes })
}

/// The kernel's list, or none where there is no /proc or a sandbox hides it: then nothing can be checked.
fn mappings() -> Result<Option<File>, Error> {
    match File::open("/proc/self/maps") {
        Ok(maps) => Ok(Some(maps)),
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::PermissionDenied) => Ok(None),
        // There is no file descriptor left for it, for instance.
        Err(error) => Err(Error::Exhausted { what: "/proc/self/maps", why: error.to_string() }),
    }
}

/// "start-end perms ..." as numbers.
fn mapping(line: &str) -> Option<(usize, usize, &str)> {
    let (range, rest) = line.split_once(' ')?;
    let (start, end) = range.split_once('-')?;
    Some((usize::from_str_radix(start, 16).ok()?, usize::from_str_radix(end, 16).ok()?, rest))
}
