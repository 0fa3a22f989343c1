//! What is left behind a call of the driver that fails. It is the real driver: this program's own `dlsym`, by which the library finds it, puts a function in
//! front of two of its entry points that can answer once with an error in their place.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::mem;
use std::ptr;
use std::sync::atomic::{AtomicI32, AtomicI64, AtomicPtr, Ordering::Relaxed};

use solve::cuda::arch::Arch;
use solve::cuda::device::Device;
use solve::cuda::prepared::Prepared;
use solve::cuda::solve::solve_in_place;
use solve::dims::D;
use solve::error::{Error, SolveStatus};
use solve::options::{BlockOptions, Stream};
use solve::precision::SolvePrecision::{Auto, Fast};
use solve::span::{Span, Tokens};
use solve::weights::W_QKV;

use super::common::{Random, weights};
use super::rig::Memory;

const OUT_OF_MEMORY: c_int = 2;
const CONTEXT_IS_DESTROYED: c_int = 709;

/// An entry point of the driver.
struct Entry {
    real: AtomicPtr<c_void>,
    /// Calls that still go through before one fails; negative: all do.
    left: AtomicI64,
    code: AtomicI32,
}

static LAUNCH: Entry = Entry::new();
static GET_FUNCTION: Entry = Entry::new();

impl Entry {
    const fn new() -> Self {
        Self { real: AtomicPtr::new(ptr::null_mut()), left: AtomicI64::new(-1), code: AtomicI32::new(0) }
    }

    /// The error with which this call fails.
    fn fails(&self) -> Option<c_int> {
        (self.left.load(Relaxed) >= 0 && self.left.fetch_sub(1, Relaxed) == 0).then(|| self.code.load(Relaxed))
    }

    /// Does `work`, in which the call of this number fails, from 0 on. None: there were not so many.
    fn failing<T>(&self, call: i64, code: c_int, work: impl FnOnce() -> T) -> Option<T> {
        self.code.store(code, Relaxed);
        self.left.store(call, Relaxed);
        let outcome = work();
        (self.left.swap(-1, Relaxed) < 0).then_some(outcome)
    }
}

type Find = unsafe extern "C" fn(*mut c_void, *const c_char) -> *mut c_void;
type Launch = unsafe extern "C" fn(*const c_void, *mut c_void, *mut *mut c_void, *mut *mut c_void) -> c_int;
type GetFunction = unsafe extern "C" fn(*mut *mut c_void, *mut c_void, *const c_char) -> c_int;

/// In place of libc's for all that is linked into this program.
///
/// # Safety
/// As for libc's.
#[unsafe(no_mangle)]
unsafe extern "C" fn dlsym(handle: *mut c_void, symbol: *const c_char) -> *mut c_void {
    let version = if cfg!(target_arch = "x86_64") { c"GLIBC_2.2.5" } else { c"GLIBC_2.17" };
    // SAFETY: libc has it by this version; `symbol` is the caller's.
    let found = unsafe {
        let find: Find = mem::transmute(libc::dlvsym(libc::RTLD_NEXT, c"dlsym".as_ptr(), version.as_ptr()));
        find(handle, symbol)
    };
    // SAFETY: the caller's promise.
    let (entry, front) = match unsafe { CStr::from_ptr(symbol) }.to_bytes() {
        b"cuLaunchKernelEx" => (&LAUNCH, launch as Launch as *mut c_void),
        b"cuModuleGetFunction" => (&GET_FUNCTION, get_function as GetFunction as *mut c_void),
        _ => return found,
    };
    entry.real.store(found, Relaxed);
    if found.is_null() { found } else { front }
}

unsafe extern "C" fn launch(
    config: *const c_void,
    function: *mut c_void,
    parameters: *mut *mut c_void,
    extra: *mut *mut c_void,
) -> c_int {
    // SAFETY: the driver's own, with its caller's arguments.
    let real = || unsafe {
        mem::transmute::<*mut c_void, Launch>(LAUNCH.real.load(Relaxed))(config, function, parameters, extra)
    };
    LAUNCH.fails().unwrap_or_else(real)
}

unsafe extern "C" fn get_function(function: *mut *mut c_void, module: *mut c_void, name: *const c_char) -> c_int {
    // SAFETY: the driver's own, with its caller's arguments.
    let real = || unsafe {
        mem::transmute::<*mut c_void, GetFunction>(GET_FUNCTION.real.load(Relaxed))(function, module, name)
    };
    GET_FUNCTION.fails().unwrap_or_else(real)
}

/// A device of its own, as it may be lost.
fn open(arch: Arch) -> Result<&'static Device, Error> {
    Device::open(0, Some(arch)).map(|device| &*Box::leak(Box::new(device)))
}

fn span(weights: &Memory) -> Span {
    Span::weights(weights.address()).expect("good weights")
}

fn forward(block: &Prepared, x: &Memory, seq_len: usize) -> Result<Vec<f32>, Error> {
    let output = Memory::poisoned(seq_len * D);
    let call = Tokens::new(x.address(), output.address(), 1, seq_len as i32).expect("good arguments");
    block.forward(&call, Stream::LEGACY).map(|()| output.read())
}

/// Behind an update of which any launch failed a block has the weights of neither: it says so, until one succeeds.
pub fn update_half_way(arch: Arch) {
    const ROWS: usize = 40;
    let device = open(arch).expect("the device");
    let [before, behind] = [70, 71].map(|seed| Memory::of(&weights(seed)));
    let x = Memory::of(&Random::new(70).uniforms(ROWS * D));
    let options = BlockOptions { max_tokens: ROWS, ..BlockOptions::default() };
    let create = |weights| Prepared::on(device, &span(weights), options).expect("create");
    let wanted = forward(&create(&behind), &x, ROWS).expect("forward");
    let block = create(&before);
    let mut failed = 0;
    while let Some(outcome) = LAUNCH.failing(failed, OUT_OF_MEMORY, || block.update(&span(&behind), Stream::LEGACY)) {
        assert_eq!(outcome.expect_err("a launch failed").status(), SolveStatus::OutOfMemory, "launch {failed}");
        let error = forward(&block, &x, ROWS).expect_err("weights of neither");
        assert!(matches!(error, Error::Incomplete), "launch {failed}: {error}");
        block.update(&span(&behind), Stream::LEGACY).expect("update");
        assert!(forward(&block, &x, ROWS).expect("forward") == wanted, "launch {failed}");
        block.update(&span(&before), Stream::LEGACY).expect("update");
        failed += 1;
    }
    assert!(failed >= 2, "an update has more than {failed} launches");
}

/// What a call has found unusual about its weights is forgotten where it fails before the exact kernel has seen it: the next call is not computed again.
pub fn solve_half_way(arch: Arch) {
    let device = open(arch).expect("the device");
    let mut unusual = weights(72);
    unusual[W_QKV.offset..][..W_QKV.len].iter_mut().for_each(|weight| *weight *= 1000.0);
    let (usual, unusual) = (Memory::of(&weights(72)), Memory::of(&unusual));
    let x = Memory::of(&Random::new(72).uniforms(400 * D));
    let solve = |weights: &Memory, seq_len: usize| {
        let output = Memory::poisoned(seq_len * D);
        let call = Tokens::new(x.address(), output.address(), 1, seq_len as i32).expect("good arguments");
        solve_in_place(device, &call, &span(weights), Auto).map(|()| output.read())
    };
    let wanted = solve(&usual, 300).expect("solve");
    let mut failed = 0;
    // A length that has not come before, so that it is launched kernel by kernel.
    while let Some(outcome) = LAUNCH.failing(failed, OUT_OF_MEMORY, || solve(&unusual, 301 + failed as usize)) {
        assert_eq!(outcome.expect_err("a launch failed").status(), SolveStatus::OutOfMemory, "launch {failed}");
        assert!(solve(&usual, 300).expect("solve") == wanted, "computed again behind a call that failed at {failed}");
        failed += 1;
    }
    assert!(failed >= 6, "a call has more than {failed} launches");
}

/// A driver that loads kernels when they are asked for may have no memory for one: that is no kernel that is missing from the build, and may go away.
pub fn no_memory_for_a_kernel(arch: Arch) {
    let outcome = GET_FUNCTION.failing(5, OUT_OF_MEMORY, || open(arch).map(|_| ())).expect("more kernels than five");
    assert_eq!(outcome.expect_err("no memory").status(), SolveStatus::OutOfMemory);
    open(arch).expect("the device");
}

/// The driver says that the context is destroyed of a stream that is gone, too: that call fails, and no other.
pub fn stream_that_is_gone(arch: Arch) {
    let device = open(arch).expect("the device");
    let (weights, x) = (Memory::of(&weights(73)), Memory::of(&Random::new(73).uniforms(4 * D)));
    let options = BlockOptions { precision: Fast, max_tokens: 4, ..BlockOptions::default() };
    let block = Prepared::on(device, &span(&weights), options).expect("create");
    let outcome = LAUNCH.failing(0, CONTEXT_IS_DESTROYED, || forward(&block, &x, 4)).expect("a launch");
    assert_eq!(outcome.expect_err("it failed").status(), SolveStatus::Driver);
    forward(&block, &x, 4).expect("forward");
}
