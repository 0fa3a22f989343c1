//! Host memory of the caller, checked against the kernel's own list of mappings before it is touched, so that a freed or foreign pointer
//! becomes a status instead of a crash.

use std::fs::File;
use std::io::{BufRead, BufReader, ErrorKind};
use std::ops::Range;

use crate::error::Error;
use crate::span::{Span, Tokens};
use crate::weights::WEIGHTS_LEN;

/// The floats of a span that is only read.
///
/// # Safety
/// [`check`] has found the span readable in this call, and the caller of the library keeps it so until the call is over.
pub unsafe fn floats<'a>(span: &Span) -> &'a [f32] {
    // SAFETY: aligned (Span), and mapped for its whole length.
    unsafe { std::slice::from_raw_parts(span.address as *const f32, span.bytes / size_of::<f32>()) }
}

/// The floats of a span that is written.
///
/// # Safety
/// As for [`floats`], but writable; any slice over x at the same place is no longer used when this is written.
pub unsafe fn floats_mut<'a>(span: &Span) -> &'a mut [f32] {
    // SAFETY: as in `floats`, and writable.
    unsafe { std::slice::from_raw_parts_mut(span.address as *mut f32, span.bytes / size_of::<f32>()) }
}

/// The weight buffer at `weights`.
///
/// # Safety
/// As for [`floats`]; the span is one of [`Span::weights`].
pub unsafe fn weights<'a>(weights: &Span) -> &'a [f32; WEIGHTS_LEN] {
    // SAFETY: as in `floats`, and as long as all weight buffers.
    unsafe { &*(weights.address as *const [f32; WEIGHTS_LEN]) }
}

/// Where the device has had a fault: NaN in host output, so that a caller who does not look at the status sees that something is wrong.
pub fn spoil(tokens: &Tokens, error: &Error) {
    if error.is_fault() && check([&tokens.output]).is_ok() {
        // SAFETY: writable as of now.
        unsafe { floats_mut(&tokens.output) }.fill(f32::NAN);
    }
}

/// Refuses the first of these spans that is not mapped with its [access](Span::access) from its first byte to its last. One look at the list serves all
/// spans of a call: it has a line for every mapping of the process, and where those are many, reading it takes longer than the block.
pub fn check<const N: usize>(spans: [&Span; N]) -> Result<(), Error> {
    let Some(maps) = mappings()? else { return Ok(()) };
    let mut covered = spans.map(|span| span.address);
    let (mut maps, mut line) = (BufReader::new(maps), Vec::new());
    // The kernel writes the list as it is read, in the order of the addresses, so what begins behind a span's gap leaves the gap open.
    let mut is_open = true;
    while is_open && maps.read_until(b'\n', &mut line).is_ok_and(|bytes| bytes > 0) {
        if let Some(mapping) = Mapping::of(&line) {
            is_open = false;
            for (span, covered) in spans.iter().zip(&mut covered) {
                if mapping.range.contains(covered) && mapping.allows(span.access()) {
                    *covered = mapping.range.end;
                }
                is_open |= *covered < span.end() && mapping.range.start <= *covered;
            }
        }
        line.clear();
    }
    match spans.iter().zip(covered).find(|(span, covered)| *covered < span.end()) {
        Some((&span, _)) => {
            let Span { argument, address, bytes } = *span;
            Err(Error::BadPointer { argument, address, access: span.access(), bytes })
        }
        None => Ok(()),
    }
}

/// The kernel's list, or none where there is no /proc or a sandbox hides it: then nothing can be checked.
fn mappings() -> Result<Option<File>, Error> {
    // Not /proc/self: that is the process's first thread, whose list is empty once it has left (pthread_exit in main).
    match File::open("/proc/thread-self/maps") {
        Ok(maps) => Ok(Some(maps)),
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::PermissionDenied) => Ok(None),
        // There is no file descriptor left for it, for instance.
        Err(error) => Err(Error::Exhausted { what: "/proc/thread-self/maps", why: error.to_string() }),
    }
}

/// A line of the list.
struct Mapping {
    range: Range<usize>,
    readable: bool,
    writable: bool,
}

impl Mapping {
    /// "start-end rwxp ..." and, behind that, the name of a mapped file, which may be any bytes.
    fn of(line: &[u8]) -> Option<Self> {
        let mut words = line.split(|&byte| byte == b' ');
        let (range, permissions) = (str::from_utf8(words.next()?).ok()?, words.next()?);
        let (start, end) = range.split_once('-')?;
        let number = |digits| usize::from_str_radix(digits, 16).ok();
        let (readable, writable) = (permissions.starts_with(b"r"), permissions.get(1) == Some(&b'w'));
        Some(Self { range: number(start)?..number(end)?, readable, writable })
    }

    fn allows(&self, access: &str) -> bool {
        self.readable && (self.writable || access == "readable")
    }
}
