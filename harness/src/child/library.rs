//! A library under test, and its symbols. It is never unloaded: Rust and CUDA libraries do not survive that.

use std::ffi::{CStr, OsStr, c_char, c_int, c_void};
use std::path::Path;
use std::time::Instant;

use clap::ValueEnum;
use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};

use crate::binary;
use crate::contract::Precision;
use crate::protocol::{Api, Loaded};
use crate::reason::{Failure, Reason};

type Solve = unsafe extern "C" fn(*const f32, *mut f32, *const f32, c_int);
type Text = unsafe extern "C" fn() -> *const c_char;
type Status = unsafe extern "C" fn() -> c_int;
type Create = unsafe extern "C" fn(*const f32, *const c_void, *mut *mut c_void) -> c_int;
type Forward = unsafe extern "C" fn(*mut c_void, *const f32, *mut f32, c_int, c_int, *mut c_void) -> c_int;
type Update = unsafe extern "C" fn(*mut c_void, *const f32, *mut c_void) -> c_int;

/// `solve_options`.
#[repr(C)]
struct Options {
    size: usize,
    device: c_int,
    precision: c_int,
    causal: c_int,
    max_tokens: c_int,
}

impl Options {
    /// A handle has an option for what `solve` reads from `SOLVE_PRECISION`.
    fn new(max_tokens: c_int) -> Self {
        let asked = std::env::var("SOLVE_PRECISION").ok();
        let precision = asked.and_then(|name| Precision::from_str(&name, false).ok()).unwrap_or_default().number();
        Self { size: size_of::<Self>(), device: -1, precision, causal: 0, max_tokens }
    }
}

struct Block {
    create: Create,
    forward: Forward,
    update: Update,
    options: Options,
    handle: *mut c_void,
}

/// A loaded library, ready to be called through one of its two entry points.
pub struct Candidate {
    solve: Solve,
    block: Option<Block>,
    status: Option<Status>,
    error: Option<Text>,
}

/// The functions of a handle that are called here.
pub const HANDLE: [&str; 3] = ["solve_block_create", "solve_block_forward", "solve_block_update"];

/// What a C++ compiler calls the function where nothing tells it that C is to call it, whichever of its pointers are to const and whatever kind of number a
/// length is.
fn cpp_names() -> impl Iterator<Item = String> {
    let pointers = ["PKfPfS0_", "PfS_S_", "PKfPfS1_", "PfS_PKf"];
    pointers.into_iter().flat_map(|pointers| ["i", "j", "l", "m"].map(|length| format!("_Z5solve{pointers}{length}")))
}

fn load_failed(message: String) -> Failure {
    Failure::new(Reason::Load, message)
}

/// A symbol's value, where the library has it.
fn symbol<T: Copy>(library: &Library, name: &str) -> Option<T> {
    // SAFETY: the types above are the C signatures; a library that lies about them is what the process is for.
    unsafe { library.get::<T>(name.as_bytes()).ok().map(|s| *s) }
}

fn text(function: Option<Text>) -> Option<String> {
    // SAFETY: the function returns a string or null.
    let pointer = function.map(|f| unsafe { f() }).filter(|p| !p.is_null())?;
    // SAFETY: not null, and terminated by the interface's promise.
    Some(unsafe { CStr::from_ptr(pointer) }.to_string_lossy().into_owned())
}

impl Candidate {
    /// Loads the library and finds what `api` needs. No call of it will have more than `max_tokens`.
    pub fn load(path: &Path, api: Api, max_tokens: c_int) -> Result<(Self, Loaded), Failure> {
        let start = Instant::now();
        // SAFETY: runs the library's constructors, which is what a candidate's process is for.
        let library = unsafe { Library::open(Some(OsStr::new(path)), RTLD_NOW | RTLD_LOCAL) }
            .map_err(|e| load_failed(format!("{} cannot be loaded: {}", path.display(), told(&e))))?;
        let load_ms = start.elapsed().as_secs_f64() * 1e3;
        let missing = |name: &str| load_failed(format!("{} has no symbol {name}", path.display()));
        let cpp = || cpp_names().any(|name| symbol::<Solve>(&library, &name).is_some());
        let solve = symbol(&library, "solve").ok_or_else(|| match cpp() {
            true => missing("solve, but a C++ function of that name: declare it extern \"C\""),
            false => missing("solve"),
        })?;
        let data = binary::data(path);
        let function = |name: &str| symbol::<Text>(&library, name).is_some() && !data.iter().any(|data| data == name);
        let lacks: Vec<String> = HANDLE.iter().filter(|name| !function(name)).map(ToString::to_string).collect();
        if let (Api::Prepared, Some(first)) = (api, lacks.first()) {
            return Err(missing(first));
        }
        let [create, forward, update] = HANDLE;
        let block = (|| {
            Some(Block {
                create: symbol(&library, create)?,
                forward: symbol(&library, forward)?,
                update: symbol(&library, update)?,
                options: Options::new(max_tokens),
                handle: std::ptr::null_mut(),
            })
        })();
        // Who has no handle may mean something else by the other names.
        let optional = |name: &str| lacks.is_empty() && function(name);
        let words = |name: &str| symbol::<Text>(&library, name).filter(|_| optional(name));
        let (error, status) = (words("solve_last_error"), symbol(&library, "solve_last_status"));
        let status = status.filter(|_| optional("solve_last_status"));
        let loaded = Loaded {
            version: text(words("solve_version")),
            build_id: text(words("solve_build_id")),
            prepared: lacks.is_empty(),
            lacks,
            load_ms,
        };
        let candidate = Self { solve, block: block.filter(|_| api == Api::Prepared), status, error };
        std::mem::forget(library);
        Ok((candidate, loaded))
    }

    /// Before a call: gives a prepared handle the weights, where that is the entry point.
    pub fn prepare(&mut self, weights: *const f32, changed: bool) -> Result<(), Failure> {
        let Some(block) = &mut self.block else { return Ok(()) };
        let null = std::ptr::null_mut();
        let (what, status) = if block.handle.is_null() {
            let options = (&raw const block.options).cast();
            // SAFETY: the options are as the interface has them, and the handle's place is ours.
            ("solve_block_create", unsafe { (block.create)(weights, options, &raw mut block.handle) })
        } else if changed {
            // SAFETY: a handle from create, and weights that outlive the call.
            ("solve_block_update", unsafe { (block.update)(block.handle, weights, null) })
        } else {
            return Ok(());
        };
        self.accepted(what, status).map_err(|why| Failure::new(Reason::CudaError, why))
    }

    /// What the candidate says to a status that is not 0.
    fn accepted(&self, what: &str, status: c_int) -> Result<(), String> {
        if status == 0 {
            return Ok(());
        }
        Err(format!("{what} returned status {status}: {}", text(self.error).unwrap_or_default()))
    }

    /// One call, or why a handle refused it.
    ///
    /// # Safety
    /// The pointers are valid for a block of `seq` tokens.
    pub unsafe fn call(&self, x: *const f32, output: *mut f32, weights: *const f32, seq: c_int) -> Result<(), String> {
        let Some(block) = &self.block else {
            // SAFETY: the caller's promise.
            unsafe { (self.solve)(x, output, weights, seq) };
            return Ok(());
        };
        // SAFETY: the caller's promise, and a handle from create.
        let status = unsafe { (block.forward)(block.handle, x, output, 1, seq, std::ptr::null_mut()) };
        self.accepted("solve_block_forward", status)
    }

    /// What the candidate reports about its last call, where that is an error.
    pub fn complaint(&self) -> Option<String> {
        // SAFETY: takes nothing, returns a number.
        let status = self.status.map_or(0, |status| unsafe { status() });
        (status != 0).then(|| format!("status {status}: {}", text(self.error).unwrap_or_default()))
    }
}

/// The loader's own words, without the crate's wrapping.
fn told(error: &libloading::Error) -> String {
    match error {
        libloading::Error::DlOpen { source } => source.to_string(),
        other => other.to_string(),
    }
}
