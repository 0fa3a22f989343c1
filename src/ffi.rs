//! The C ABI: every `extern "C"`, every raw pointer of a caller, and the guard that lets no panic out and no cancellation in. Nothing else.

use core::ffi::{CStr, c_char, c_int, c_void};
use std::cell::{Cell, RefCell};
use std::ffi::CString;

use crate::backend;
use crate::cancel;
use crate::error::{Error, SolveStatus};
use crate::options::{BlockOptions, Stream};
use crate::panics;
use crate::precision::SolvePrecision;
use crate::registry;

/// A block whose weights are prepared, made by solve_block_create. Opaque.
pub struct SolveBlock {
    _private: [u8; 0],
}

/// What a block is to be. Start from SOLVE_OPTIONS_DEFAULT, so that size is right, and change what you need.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct SolveOptions {
    /// sizeof(solve_options), by which the library knows the caller's version of this struct.
    pub size: usize,
    /// Ordinal of the GPU; -1 is the one that holds the weights, or the current one if they are on the host.
    pub device: c_int,
    /// What the GPU may round; see solve_precision.
    pub precision: SolvePrecision,
    /// Not 0: token i attends to tokens 0..i of its own sequence only.
    pub causal: c_int,
    /// Tokens (batch * seq_len) that one forward may have: what memory is reserved for on a GPU. 0 is 4096.
    pub max_tokens: c_int,
}

/// Runs the block once: output = block(x), x and output (seq_len, 768), weights SOLVE_WEIGHTS_LEN floats, seq_len 1 or more.
///
/// With device pointers the work is enqueued on the legacy default stream of the device that holds them, which no graph can capture (a block's
/// calls can be), and solve returns without waiting. But a call that takes memory (the first, one of more tokens than any before, the first that is
/// misaligned, one of more tokens than any misaligned one before) may wait for all calls before it, those of blocks too; and a call waits while
/// another thread is in such a one, or in one on host memory.
/// On Hopper a call of few tokens may begin while the kernel before it ends: solve_block_forward says when, and what follows from it. Where a
/// cooperative grid of another stream keeps the kernels of a call of more than 32 tokens from running whole, the call gives up after some
/// milliseconds, and is computed again, in exact, by as many multiprocessors as it gets.
/// With host or managed pointers it returns when output is ready. Nothing about x, output or weights is remembered: weights rewritten in
/// place are seen by the next call. The outcome is in solve_last_status and solve_last_error of the same thread:
/// SOLVE_STATUS_NULL_POINTER, INVALID_ARGUMENT (seq_len below 1, or a device buffer shorter than its shape), MISALIGNED (not a multiple of 4),
/// OVERLAP, MIXED_MEMORY, BAD_POINTER (freed, foreign, or memory that may not be read, or written), OUT_OF_MEMORY, NO_DEVICE
/// (SOLVE_DEVICE=cuda and no GPU), UNSUPPORTED (a driver older than this build needs, a GPU or SOLVE_ARCH that it has no code for, a
/// share of a GPU that has too few multiprocessors, or an environment variable that means nothing), DRIVER.
///
/// # Safety
/// Device pointers stay valid until the enqueued work is done; nobody else writes the buffers meanwhile.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn solve(x: *const f32, output: *mut f32, weights: *const f32, seq_len: c_int) {
    guard(|| backend::solve(x.addr(), output.addr(), weights.addr(), seq_len));
}

/// Status of this thread's latest call of solve or of a solve_block function. SOLVE_STATUS_OK before the first.
#[unsafe(no_mangle)]
pub extern "C" fn solve_last_status() -> SolveStatus {
    STATUS.get()
}

/// What went wrong in this thread's latest call, as a sentence; "" if nothing did. The string is the library's and lives until this thread's
/// next call of solve or of a solve_block function.
#[unsafe(no_mangle)]
pub extern "C" fn solve_last_error() -> *const c_char {
    MESSAGE.try_with(|last| last.borrow().as_deref().unwrap_or(c"").as_ptr()).unwrap_or(c"".as_ptr())
}

/// A status in words, such as "null pointer". Never null, static.
#[unsafe(no_mangle)]
pub extern "C" fn solve_status_string(status: c_int) -> *const c_char {
    let text: &CStr = match status {
        0 => c"ok",
        1 => c"null pointer",
        2 => c"invalid argument",
        3 => c"misaligned pointer",
        4 => c"output overlaps an input",
        5 => c"pointers of different memories",
        6 => c"pointer to memory that may not be used",
        7 => c"out of memory",
        8 => c"no usable GPU",
        9 => c"CUDA driver error",
        10 => c"unsupported",
        11 => c"no such block",
        12 => c"defect in libsolve",
        _ => c"unknown status",
    };
    text.as_ptr()
}

/// Version of the library, of the CUDA compiler, and the architectures built in, such as "0.1.0 cuda 13.0 sm75 sm80 sm90a". Static.
#[unsafe(no_mangle)]
pub extern "C" fn solve_version() -> *const c_char {
    static TEXT: std::sync::OnceLock<CString> = std::sync::OnceLock::new();
    TEXT.get_or_init(|| CString::new(backend::version()).unwrap_or_default()).as_ptr()
}

/// SHA-256, in hexadecimal, of the sources that this library was built from. Static.
#[unsafe(no_mangle)]
pub extern "C" fn solve_build_id() -> *const c_char {
    concat!(env!("SOLVE_BUILD_ID"), "\0").as_ptr().cast()
}

/// Prepares a block: takes a copy of weights (SOLVE_WEIGHTS_LEN floats, on a device or on the host) in the form the kernels like best, and
/// on a GPU reserves memory for options->max_tokens. options may be null: all defaults. Returns when the block is ready, and weights may then be
/// freed. Destroy the block with solve_block_destroy. With SOLVE_DEVICE=cpu, or where no GPU is asked for and there is none, it is one on the CPU.
/// Weights on a device are read in the order of its legacy default stream: what other streams still write there is not waited for. What other
/// blocks of the device, and solve, still have to do is.
///
/// The statuses of solve, and SOLVE_STATUS_INVALID_ARGUMENT for an option out of its range or a size that is not sizeof(solve_options),
/// NO_DEVICE for a device that is not there, MIXED_MEMORY for weights on another device than the options name, OUT_OF_MEMORY when
/// max_tokens do not fit. block is written on success only.
///
/// # Safety
/// options is null or points to a solve_options; block points to where the handle is to be written.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn solve_block_create(
    weights: *const f32,
    options: *const SolveOptions,
    block: *mut *mut SolveBlock,
) -> SolveStatus {
    guard(|| {
        if block.is_null() {
            return Err(Error::Null { argument: "block" });
        }
        // SAFETY: the caller passes null or a solve_options.
        let options = unsafe { read_options(options) }?;
        let handle = registry::insert(backend::Block::create(weights.addr(), options)?);
        // SAFETY: not null, and the caller says that it is theirs to write.
        unsafe { block.write(handle as *mut SolveBlock) };
        Ok(())
    })
}

/// Runs a prepared block on batch (1 to 65,535) sequences of seq_len (1 or more) tokens: x and output are (batch, seq_len, 768), batch * seq_len
/// is at most max_tokens.
///
/// On a GPU: x and output are device or managed memory of the block's device. The work is enqueued on stream (a CUstream or cudaStream_t of
/// that device, null for the legacy default stream; not one of a green context). The library allocates no memory. The call waits only while another thread is
/// in solve_block_create, in a solve that takes memory, in the first captured call, or in a call of this block on host memory. In a capturing
/// stream the work goes into its graph. Calls on one block run in the order in which they were made, whatever their streams, within one graph, too;
/// launches of a captured graph are ordered by whoever launches them, against each other and against other use of the block. The first call in a
/// process that is captured waits for what other blocks of the device, and solve, still have to do. Host memory is served too, but then the call
/// waits and must not be captured.
/// Calls of blocks that share a stream, and of solve with them, are faster than on streams of their own: those of at most 32 tokens by 1.4 us, solve of
/// 100 to 1024 tokens by 0.3 to 1.7 (H200). After calls on several streams that is so again once 64 calls in a row came on one and those on the others
/// have ended; until another block is created this happens once, and where calls have been captured it does not. The first call on a second stream
/// runs behind those that were enqueued on the first.
/// On Hopper a call of at most 32 tokens (in exact 16), of a block or of solve, or of at most 64 sequences of one token of a block that is not
/// exact, made right behind another one on its stream, begins while the kernel before it ends, at the device's highest priority, as long as
/// other streams have no calls of this library. It comes after all that kernel comes after; one that was launched with programmatic stream
/// serialization must have waited itself (griddepcontrol.wait). And no cooperative grid may be launched meanwhile that has this same priority
/// and no room beside the call, nor may others' kernels keep it from multiprocessors for more than 20 s.
/// On Hopper a captured call (in exact one of at most 8 tokens) begins while the kernel before it in its graph ends, by a programmatic edge, which a
/// graph's edges show only with their data; what that kernel must have waited for is the same, and no more is asked of others. Above 32 tokens it
/// ends with two kernels side by side, and what is captured next follows both. Captured when the weights are known to be such that calls are
/// computed in exact (solve_precision), it is exact in its graph for good, and begins when what is before it has ended: capture again behind an update.
/// Where one sequence has numbers that are not finite, others of its batch may come out as NaN, too, and if causal its own earlier tokens.
/// On the CPU: x and output are host memory, stream is null (or CUDA's legacy stream), and output is ready on return.
///
/// The statuses of solve, and SOLVE_STATUS_BAD_HANDLE for a block that does not exist (any more), INVALID_ARGUMENT for batch outside 1 to 65,535,
/// seq_len below 1, batch * seq_len above 2^31 - 1 or above max_tokens, or a stream given to a block on the CPU, MIXED_MEMORY for memory of another
/// device than the block's, UNSUPPORTED for a stream of a green context, or for host memory while stream is captured.
///
/// # Safety
/// As for solve; stream is a live stream of the block's device.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn solve_block_forward(
    block: *mut SolveBlock,
    x: *const f32,
    output: *mut f32,
    batch: c_int,
    seq_len: c_int,
    stream: *mut c_void,
) -> SolveStatus {
    guard(|| {
        let stream = Stream::from_address(stream.addr());
        registry::with(block.addr(), |block| block.forward(x.addr(), output.addr(), batch, seq_len, stream))
    })
}

/// Replaces a block's weights by others (SOLVE_WEIGHTS_LEN floats, on the block's device or on the host), in stream order: forwards enqueued
/// before it use the old ones, later ones the new. Device weights must stay as they are until the work enqueued on stream is done; host weights
/// may be reused on return, and take memory of the device meanwhile, for which the call may wait for its other work. Captured graphs see the new
/// weights too. Where an update fails halfway, forward is SOLVE_STATUS_DRIVER until one succeeds.
///
/// SOLVE_STATUS_NULL_POINTER (block or weights), BAD_HANDLE, INVALID_ARGUMENT (device weights shorter than SOLVE_WEIGHTS_LEN floats, or a stream
/// given to a block on the CPU), MISALIGNED, MIXED_MEMORY (weights on another device than the block's), BAD_POINTER, OUT_OF_MEMORY,
/// UNSUPPORTED (a stream of a green context, or host weights while stream is captured), DRIVER.
///
/// # Safety
/// As for solve_block_forward.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn solve_block_update(
    block: *mut SolveBlock,
    weights: *const f32,
    stream: *mut c_void,
) -> SolveStatus {
    guard(|| registry::with(block.addr(), |block| block.update(weights.addr(), Stream::from_address(stream.addr()))))
}

/// Waits for the block's work and frees it. Null is allowed. Graphs that captured the block must not be launched any more. A block that does
/// not exist (any more) is SOLVE_STATUS_BAD_HANDLE. A forward that another thread has begun is finished first.
///
/// # Safety
/// None: a handle that does not exist is an error.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn solve_block_destroy(block: *mut SolveBlock) -> SolveStatus {
    guard(|| if block.is_null() { Ok(()) } else { registry::remove(block.addr()) })
}

/// Reads the caller's options without trusting the numbers in them.
///
/// # Safety
/// `options` is null or points to at least its own `size` bytes.
unsafe fn read_options(options: *const SolveOptions) -> Result<BlockOptions, Error> {
    if options.is_null() {
        return Ok(BlockOptions::default());
    }
    // SAFETY: every version of the struct begins with its size.
    let size = unsafe { options.cast::<usize>().read_unaligned() };
    let expected = size_of::<SolveOptions>();
    if size != expected {
        return Err(Error::OptionsSize { size, expected });
    }
    let number = |offset: usize| {
        // SAFETY: the size is right, so the struct holds an int at each offset used below.
        unsafe { options.byte_add(offset).cast::<c_int>().read_unaligned() }
    };
    BlockOptions::from_numbers(
        number(core::mem::offset_of!(SolveOptions, device)),
        number(core::mem::offset_of!(SolveOptions, precision)),
        number(core::mem::offset_of!(SolveOptions, causal)),
        number(core::mem::offset_of!(SolveOptions, max_tokens)),
    )
}

thread_local! {
    // Without a destructor: a call from the destructor of a thread's or the process's own things finds it.
    static STATUS: Cell<SolveStatus> = const { Cell::new(SolveStatus::Ok) };
    // Nobody can ask for the sentence of such a call: by then this may be gone.
    static MESSAGE: RefCell<Option<CString>> = const { RefCell::new(None) };
}

/// Runs `body` and records errors and panics alike as this thread's last status.
fn guard(body: impl FnOnce() -> Result<(), Error>) -> SolveStatus {
    cancel::put_off(|| {
        let (status, message) = match panics::caught(body) {
            Ok(Ok(())) => (SolveStatus::Ok, None),
            Ok(Err(error)) => (error.status(), CString::new(error.to_string()).ok()),
            Err(said) => (SolveStatus::Panic, CString::new(format!("defect in libsolve: {said}")).ok()),
        };
        STATUS.set(status);
        let _ = MESSAGE.try_with(|last| last.replace(message));
        status
    })
}
