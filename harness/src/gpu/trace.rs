//! Times of single kernels, from NVIDIA's profiling library where the machine has it (it comes with the CUDA toolkit).
//! Only the five functions and the one record that are needed are declared here.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::path::PathBuf;
use std::sync::Mutex;

use libloading::os::unix::{Library, RTLD_GLOBAL, RTLD_NOW};
use serde::{Deserialize, Serialize};

use crate::reason::{Failure, Reason};

/// One kernel that ran.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Kernel {
    pub name: String,
    /// In us after the first kernel's start.
    pub start_us: f64,
    pub us: f64,
    pub grid: [i32; 3],
    pub block: [i32; 3],
    pub registers: u16,
    pub shared_bytes: i32,
}

/// The head of CUpti_ActivityKernel9 (CUPTI 12.x) and its successors, which only add to the end.
#[repr(C, packed(8))]
struct Record {
    kind: u32,
    cache_config: u8,
    shared_config: u8,
    registers: u16,
    partitioned: [u32; 2],
    start: u64,
    end: u64,
    completed: u64,
    device: u32,
    context: u32,
    stream: u32,
    grid: [i32; 3],
    block: [i32; 3],
    static_shared: i32,
    dynamic_shared: i32,
    local_per_thread: u32,
    local_total: u32,
    correlation: u32,
    grid_id: i64,
    name: *const c_char,
}

/// CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL.
const KERNEL: u32 = 10;
const BUFFER: usize = 1 << 20;

type Next = unsafe extern "C" fn(*mut u8, usize, *mut *mut Record) -> c_int;
type Requested = unsafe extern "C" fn(*mut *mut u8, *mut usize, *mut usize);
type Completed = unsafe extern "C" fn(*mut c_void, u32, *mut u8, usize, usize);

static NEXT: Mutex<Option<Next>> = Mutex::new(None);
static SEEN: Mutex<Vec<(u64, u64, Kernel)>> = Mutex::new(Vec::new());

unsafe extern "C" fn requested(buffer: *mut *mut u8, size: *mut usize, records: *mut usize) {
    let words = vec![0u64; BUFFER / 8].into_boxed_slice();
    // SAFETY: CUPTI passes three places to write to; it gives the buffer back to `completed`.
    unsafe {
        *buffer = Box::into_raw(words).cast();
        *size = BUFFER;
        *records = 0;
    }
}

unsafe extern "C" fn completed(_: *mut c_void, _: u32, buffer: *mut u8, _: usize, valid: usize) {
    let next = NEXT.lock().ok().and_then(|next| *next);
    let mut record: *mut Record = std::ptr::null_mut();
    // SAFETY: walks the records of a buffer that CUPTI has just filled.
    while let (Some(next), 0) = (next, next.map_or(1, |next| unsafe { next(buffer, valid, &raw mut record) })) {
        let _ = next;
        // SAFETY: CUPTI points at a record; kernels have the head declared above.
        let seen = unsafe { ((*record).kind == KERNEL).then(|| kernel(&*record)) };
        if let (Some(seen), Ok(mut all)) = (seen, SEEN.lock()) {
            all.push(seen);
        }
    }
    // SAFETY: made in `requested`, of this size.
    drop(unsafe { Box::from_raw(std::ptr::slice_from_raw_parts_mut(buffer.cast::<u64>(), BUFFER / 8)) });
}

fn kernel(r: &Record) -> (u64, u64, Kernel) {
    // SAFETY: CUPTI's strings live as long as the process.
    let name = unsafe { CStr::from_ptr(r.name) }.to_string_lossy().into_owned();
    let (grid, block, registers, shared) = (r.grid, r.block, r.registers, r.static_shared + r.dynamic_shared);
    let us = (r.end - r.start) as f64 / 1e3;
    (r.start, r.end, Kernel { name, start_us: 0.0, us, grid, block, registers, shared_bytes: shared })
}

/// Where the library may be.
fn places() -> Vec<PathBuf> {
    let mut places: Vec<PathBuf> = ["libcupti.so", "libcupti.so.13", "libcupti.so.12"].map(PathBuf::from).to_vec();
    let roots = ["CUDA_HOME", "CUDA_PATH"].into_iter().filter_map(std::env::var_os).map(PathBuf::from);
    for root in roots.chain([PathBuf::from("/usr/local/cuda")]) {
        places.extend(
            ["extras/CUPTI/lib64", "lib64", "targets/x86_64-linux/lib"].map(|f| root.join(f).join("libcupti.so")),
        );
    }
    places
}

fn missing(what: impl std::fmt::Display) -> Failure {
    Failure::new(Reason::Environment, format!("kernels cannot be timed one by one: {what}"))
}

/// Traces every kernel of this process from now on.
pub struct Trace {
    library: Library,
}

impl Trace {
    /// Begins, before the process first uses the GPU if possible.
    pub fn begin() -> Result<Self, Failure> {
        // SAFETY: NVIDIA's library, which only reads the environment when it is loaded.
        let open = |p: PathBuf| unsafe { Library::open(Some(p), RTLD_NOW | RTLD_GLOBAL) }.ok();
        let library = places().into_iter().find_map(open).ok_or_else(|| missing("there is no libcupti.so"))?;
        let trace = Self { library };
        let register: unsafe extern "C" fn(Requested, Completed) -> c_int =
            trace.symbol("cuptiActivityRegisterCallbacks")?;
        let enable: unsafe extern "C" fn(u32) -> c_int = trace.symbol("cuptiActivityEnable")?;
        *NEXT.lock().map_err(missing)? = Some(trace.symbol("cuptiActivityGetNextRecord")?);
        // SAFETY: callbacks of the types that the functions take.
        let status = unsafe { (register(requested, completed), enable(KERNEL)) };
        if status != (0, 0) {
            return Err(missing(format!("CUPTI answers {status:?}")));
        }
        Ok(trace)
    }

    fn symbol<T: Copy>(&self, name: &str) -> Result<T, Failure> {
        // SAFETY: the types above are CUPTI's.
        unsafe { self.library.get::<T>(name.as_bytes()) }.map(|s| *s).map_err(missing)
    }

    /// Forgets what ran so far.
    pub fn clear(&self) -> Result<(), Failure> {
        self.kernels().map(|_| ())
    }

    /// What ran since the last look, in order.
    pub fn kernels(&self) -> Result<Vec<Kernel>, Failure> {
        let flush: unsafe extern "C" fn(u32) -> c_int = self.symbol("cuptiActivityFlushAll")?;
        // SAFETY: 1 asks for what is not complete, too.
        unsafe { flush(1) };
        let mut seen = std::mem::take(&mut *SEEN.lock().map_err(missing)?);
        seen.sort_by_key(|s| s.0);
        let first = seen.first().map_or(0, |s| s.0);
        Ok(seen.into_iter().map(|(start, _, k)| Kernel { start_us: (start - first) as f64 / 1e3, ..k }).collect())
    }
}
