//! What is said where the host has no memory left, to a process that may have hardly more than it has.

use std::env;
use std::process::Command;
use std::ptr;

use solve::dims::{D, QKV};
use solve::error::SolveStatus;
use solve::weights::WEIGHTS_LEN;

use super::api::{Block, message, options, solve};
use super::common::weights;

/// The child's.
pub const TASK: &str = "calls that find no memory";

const FLOAT: usize = size_of::<f32>();
/// So many that the smallest buffer of theirs is larger than what glibc holds ready for a thread (64 MiB): the system has it, or nobody.
const TOKENS: usize = 32 << 10;
/// For small calls and for sentences, and less than a copy of the weights.
const SPARE: usize = 16 << 20;
/// In output before the call.
const BEFORE: f32 = 7.0;

pub fn no_memory_is_an_error() {
    let program = env::current_exe().expect("this program has a path");
    let output = Command::new(program).env(super::TASK, TASK).env("SOLVE_DEVICE", "cpu").output().expect("it runs");
    assert!(output.status.success(), "{}: {}", output.status, String::from_utf8_lossy(&output.stderr));
}

pub fn task() {
    // SAFETY: a number of seconds.
    unsafe { libc::alarm(60) };
    let host_weights = weights(82);
    let weights_at = host_weights.as_ptr().addr();
    let x = vec![0.0f32; TOKENS * D];
    let mut output = vec![BEFORE; TOKENS * D];
    let mut token = vec![0.5f32; D];
    let (from, to, at) =
        (x.as_ptr().addr(), output.as_mut_ptr().expose_provenance(), token.as_mut_ptr().expose_provenance());
    let create = || Block::create(weights_at, &options(|o| o.max_tokens = TOKENS as i32));
    let block = create().expect("with memory");

    // Before there are threads, whose memory glibc would give to this one.
    let refused = Err((
        SolveStatus::OutOfMemory,
        format!("out of memory: {} bytes for a copy of the weights", WEIGHTS_LEN * FLOAT),
    ));
    let update = || block.update(weights_at, ptr::null_mut::<u8>());
    let [created, updated] = with_no_more_than(SPARE, || [create().map(drop), update()]);
    assert_eq!(created, refused, "create");
    assert_eq!(updated, refused, "update");

    let small = || (solve(at, at, weights_at, 1), block.raw_forward(at, at, 1, 1));
    let fine = (Ok(()), SolveStatus::Ok);
    assert_eq!(small(), fine, "with memory");
    for (room, what, width) in [(0, "the normalised rows", D), (TOKENS * D * FLOAT, "Q, K and V", QKV)] {
        let bytes = TOKENS * width * FLOAT;
        let sentence = format!("out of memory: {bytes} bytes for {what} of batch * seq_len = {TOKENS}");
        let (solved, run, said, small) = with_no_more_than(room + SPARE, || {
            let solved = solve(from, to, weights_at, TOKENS);
            let run = block.raw_forward(from, to, 2, TOKENS / 2);
            (solved, run, message(), small())
        });
        assert_eq!(solved, Err((SolveStatus::OutOfMemory, sentence.clone())));
        assert_eq!((run, said), (SolveStatus::OutOfMemory, sentence));
        assert_eq!(small, fine, "what there is memory for, without {what}");
        assert!(output.iter().all(|&value| value == BEFORE), "written without {what}");
    }
    assert_eq!((create().map(drop), update()), (Ok(()), Ok(())), "with memory again");
}

/// Runs it while this process may map only so many bytes more. What it gives is looked at behind that, as a panic takes memory, too: without any it may not
/// come to its end.
fn with_no_more_than<T>(more: usize, body: impl FnOnce() -> T) -> T {
    let counts = std::fs::read_to_string("/proc/self/statm").expect("counts of the kernel");
    let pages: usize = counts.split(' ').next().and_then(|pages| pages.parse().ok()).expect("pages mapped");
    set_limit(pages * super::PAGE + more);
    let result = body();
    set_limit(usize::MAX);
    result
}

fn set_limit(bytes: usize) {
    let mut now = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: writes the limits.
    assert_eq!(unsafe { libc::getrlimit(libc::RLIMIT_AS, &mut now) }, 0);
    now.rlim_cur = now.rlim_max.min(bytes as libc::rlim_t);
    // SAFETY: reads them.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_AS, &now) }, 0);
}
