//! What only a fresh process can show: this program runs itself again with one task.

use std::env;
use std::ffi::CStr;
use std::process::Command;
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Instant;

use cudarc::driver::sys;
use solve::cuda::device::Device;
use solve::cuda::driver::Driver;
use solve::dims::D;
use solve::error::SolveStatus;
use solve::ffi;
use solve::precision::SolvePrecision::{Exact, Fast};

use super::api::{Block, message, options, solve};
use super::common::{Random, check_block, reference, weights};
use super::rig::{Memory, OwnStream, enter, ok};

const TASK: &str = "SOLVE_TEST_TASK";

/// In the child: does the task and says that a child was what this is.
pub fn child() -> bool {
    let Ok(task) = env::var(TASK) else { return false };
    // SAFETY: no arguments to get wrong.
    unsafe { ok(sys::cuInit(0)) };
    enter(0);
    match task.as_str() {
        "first_call" => first_call_here(),
        "chosen_path" => chosen_path_here(),
        "chosen_precision" => chosen_precision_here(),
        "cooperative_grids_beside" => cooperative_grids_beside_here(),
        "fault" => fault_here(),
        "early_fault" => early_fault_here(),
        "reset" => reset_here(),
        _ => panic!("unknown task {task}"),
    }
    true
}

fn run(task: &str, variables: &[(&str, &str)]) -> String {
    let program = env::current_exe().expect("this program has a path");
    let output = Command::new(program).env(TASK, task).envs(variables.iter().copied()).output().expect("it runs");
    let text = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{task}: {text}");
    text
}

/// The first call of a process that already uses the GPU, module load included. Kernels that are there as PTX alone the driver translates first ("Limits" in
/// README.md), in 2 s and more.
pub fn first_call() {
    let said = run("first_call", &[]);
    let (seconds, is_ptx) = said.trim().split_once(' ').expect("seconds, and of what");
    let seconds: f64 = seconds.parse().expect("seconds");
    let limit = if is_ptx == "true" { 30.0 } else { 0.5 };
    assert!(seconds < limit, "the first call took {seconds} s");
}

fn first_call_here() {
    let (x, weights) = (Memory::of(&Random::new(50).uniforms(D)), Memory::of(&weights(50)));
    let start = Instant::now();
    solve(x.address(), x.address(), weights.address(), 1).expect("solve");
    // SAFETY: no arguments to get wrong.
    unsafe { ok(sys::cuCtxSynchronize()) };
    let seconds = start.elapsed().as_secs_f64();
    let arch = Driver::get().and_then(|driver| driver.device(0)).expect("the device that served").arch;
    let capability = Device::capability_of(0).expect("the device tells its capability");
    println!("{seconds:.3} {}", arch.images(capability).any(|image| image.ptx));
}

/// `SOLVE_ARCH` picks the path, and a name that is none is an error.
pub fn chosen_path() {
    for arch in super::rig::archs() {
        assert!(run("chosen_path", &[("SOLVE_ARCH", arch.name())]).contains(arch.name()));
    }
    assert!(run("chosen_path", &[("SOLVE_ARCH", "sm42")]).contains("SOLVE_ARCH is \"sm42\", expected"));
}

fn chosen_path_here() {
    let host_x = Random::new(51).uniforms(100 * D);
    let host_weights = weights(51);
    let (x, weights) = (Memory::of(&host_x), Memory::of(&host_weights));
    match solve(x.address(), x.address(), weights.address(), 100) {
        Ok(()) => {
            check_block(&x.read(), &reference(&host_x, &host_weights, 1, 100, false), "the chosen path");
            let device = Driver::get().and_then(|driver| driver.device(0)).expect("the device that served");
            println!("{}", device.arch.name());
        }
        Err((_, sentence)) => println!("{sentence}"),
    }
}

/// `SOLVE_PRECISION` picks the precision of `solve()`: on unusual weights auto gives the bits of exact, fast others.
pub fn chosen_precision() {
    let bits = |name| run("chosen_precision", &[("SOLVE_PRECISION", name)]);
    let [fast, exact, auto] = ["fast", "exact", "auto"].map(bits);
    assert_eq!(bits(""), fast, "the default is fast");
    assert_eq!(exact, auto);
    assert_ne!(exact, fast);
}

fn chosen_precision_here() {
    let host_weights: Vec<f32> = weights(53).iter().map(|w| 3.0 * w).collect();
    let (x, weights) = (Memory::of(&Random::new(53).uniforms(10 * D)), Memory::of(&host_weights));
    solve(x.address(), x.address(), weights.address(), 10).expect("solve");
    let bits = x.read().iter().fold(0u64, |hash, value| hash.wrapping_mul(31).wrapping_add(u64::from(value.to_bits())));
    println!("{bits:x}");
}

/// A block has the GPU to itself as far as the library knows, and somebody else's grids that start all at once or not at all wait for theirs meanwhile, of the
/// usual priority and of the highest.
pub fn cooperative_grids_beside() {
    run("cooperative_grids_beside", &[]);
}

/// A program's own kernel that takes 5 us and nearly all of a multiprocessor's shared memory.
const OCCUPY: &str = "
.version 7.0
.target sm_70
.address_size 64
.extern .shared .align 16 .b8 room[];
.visible .entry occupy() {
    .reg .b64 %now, %end;
    .reg .pred %more;
    mov.u64 %end, %globaltimer;
    add.u64 %end, %end, 5000;
again:
    mov.u64 %now, %globaltimer;
    setp.lt.u64 %more, %now, %end;
    @%more bra again;
    ret;
}\0";

/// Of a handle or of `solve()`, and of the kernel beside it.
const CALLS: usize = 2000;
/// Of solve(), whose blocks then wait for each other at the usual priority, some of them in a launch that is not cooperative.
const WAITING_ROWS: [usize; 12] = [40, 64, 100, 128, 200, 400, 700, 900, 1024, 2048, 2200, 4096];
const AT_A_TIME: usize = 50;

fn cooperative_grids_beside_here() {
    let device = Driver::get().and_then(|driver| driver.device(0)).expect("a device");
    let (function, mut room) = (kernel(OCCUPY, c"occupy"), 0);
    // SAFETY: the kernel above.
    unsafe {
        let most = sys::CUdevice_attribute_enum::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN;
        ok(sys::cuDeviceGetAttribute(&mut room, most, 0));
        let dynamic = sys::CUfunction_attribute_enum::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
        ok(sys::cuFuncSetAttribute(function, dynamic, room));
    }
    let occupy = function.expose_provenance();
    let host_weights = weights(54);
    let weights = Memory::of(&host_weights);
    let few = [1, 8, 16, 32].into_iter().flat_map(|rows| [(rows, Fast), (rows, Exact)]);
    for (rows, precision) in few.chain([40, 64, 700, 2200, 4096].map(|rows| (rows, Fast))) {
        let changed = options(|o| (o.precision, o.max_tokens) = (precision, rows as i32));
        let block = Block::create(weights.address(), &changed).expect("create");
        let host_x = Random::new(54).uniforms(rows * D);
        let (x, output) = (Memory::of(&host_x), Memory::poisoned(rows * D));
        let own = OwnStream::new();
        let forward = || block.forward(&x, &output, 1, rows, own.0).expect("forward");
        let wanted = beside(&forward, own.0, &output, occupy, [device.sms as u32, room as u32], CALLS);
        check_block(
            &wanted,
            &reference(&host_x, &host_weights, 1, rows, false),
            &format!("{rows} rows, {precision:?}"),
        );
    }
    // solve(), with weights as usual and with some that fp16 does not hold
    let loud: Vec<f32> = host_weights.iter().map(|w| 1e5 * w).collect();
    let few = [2, 8, 16, 32].into_iter().flat_map(|rows| [(rows, &host_weights), (rows, &loud)]);
    for (rows, host_weights) in few.chain(WAITING_ROWS.map(|rows| (rows, &host_weights))) {
        let (x, output) = (Memory::of(&Random::new(54).uniforms(rows * D)), Memory::poisoned(rows * D));
        let weights = Memory::of(host_weights);
        let call = || solve(x.address(), output.address(), weights.address(), rows).expect("solve");
        let legacy = ptr::without_provenance_mut(1);
        let calls = if rows > 32 { CALLS / 20 } else { CALLS };
        beside(&call, legacy, &output, occupy, [device.sms as u32, room as u32], calls);
    }
}

/// What a call writes, alone and behind a great many beside that kernel: the same bits, or, of fewer calls than `CALLS`, which may each have to be computed
/// again, the same within the tolerance.
fn beside(
    call: &dyn Fn(),
    stream: sys::CUstream,
    output: &Memory,
    occupy: usize,
    grid: [u32; 2],
    calls: usize,
) -> Vec<f32> {
    call();
    let wanted = output.read();
    assert!(wanted.iter().all(|value| value.is_finite()), "alone, {} floats", wanted.len());
    for others in [OwnStream::new(), OwnStream::foremost()] {
        output.write(&vec![f32::NAN; wanted.len()]);
        let done = AtomicBool::new(false);
        thread::scope(|scope| {
            let others = others.0.expose_provenance();
            let done = &done;
            scope.spawn(move || launch_cooperatively(occupy, grid, others, done));
            for number in 1..=calls {
                call();
                if number % AT_A_TIME == 0 {
                    // SAFETY: a live stream.
                    unsafe { ok(sys::cuStreamSynchronize(stream)) };
                }
            }
            done.store(true, Ordering::Relaxed);
        });
        let (got, what) = (output.read(), format!("beside others, {} floats", wanted.len()));
        check_block(&got, &wanted, &what);
        assert!(got == wanted || calls < CALLS, "{what}: other bits");
    }
    wanted
}

/// A kernel without parameters, by its address, on a stream, over and over, until others are done.
fn launch_cooperatively(kernel: usize, [blocks, room]: [u32; 2], stream: usize, done: &AtomicBool) {
    enter(0);
    let (kernel, stream) = (ptr::with_exposed_provenance_mut(kernel), ptr::with_exposed_provenance_mut(stream));
    for _ in (0..CALLS).take_while(|_| !done.load(Ordering::Relaxed)) {
        // SAFETY: a kernel and a stream that live.
        unsafe {
            for _ in 0..AT_A_TIME {
                ok(sys::cuLaunchCooperativeKernel(kernel, blocks, 1, 1, 32, 1, 1, room, stream, ptr::null_mut()));
            }
            ok(sys::cuStreamSynchronize(stream));
        }
    }
}

/// A kernel of the program's own.
fn kernel(ptx: &str, name: &CStr) -> sys::CUfunction {
    let (mut module, mut function) = (ptr::null_mut(), ptr::null_mut());
    // SAFETY: the text ends with a zero.
    unsafe {
        ok(sys::cuModuleLoadData(&mut module, ptx.as_ptr().cast()));
        ok(sys::cuModuleGetFunction(&mut function, module, name.as_ptr()));
    }
    function
}

/// After a fault on the device every call says so, and host output is NaN.
pub fn fault() {
    run("fault", &[]);
}

/// A program's own kernel that writes where nothing is.
const FAULT: &str = "
.version 7.0
.target sm_70
.address_size 64
.visible .entry fault() {
    .reg .b64 %address;
    .reg .b32 %value;
    mov.b64 %address, 16;
    mov.b32 %value, 1;
    st.global.b32 [%address], %value;
    ret;
}\0";

fn fault_here() {
    let host_weights = weights(52);
    let mut output = vec![0.0f32; D];
    let host_x = Random::new(52).uniforms(D);
    let call = |output: &mut Vec<f32>| {
        solve(host_x.as_ptr().addr(), output.as_mut_ptr().addr(), host_weights.as_ptr().addr(), 1)
    };
    call(&mut output).expect("before the fault");
    assert!(output.iter().all(|value| value.is_finite()));
    let block = Block::create(host_weights.as_ptr().addr(), &options(|_| {})).expect("create");
    let x = Memory::of(&host_x);
    block.forward(&x, &x, 1, 1, ptr::null_mut()).expect("before the fault");

    cause_a_fault();
    for _ in 0..3 {
        let (status, sentence) = call(&mut output).expect_err("the device is lost");
        assert_eq!(status, SolveStatus::Driver);
        assert!(sentence.contains("ILLEGAL_ADDRESS"), "{sentence}");
        assert!(output.iter().all(|value| value.is_nan()), "host output after a fault is NaN");
        output.fill(0.0);
    }
    assert!(message().starts_with("device 0 is lost"), "{}", message());
    // A handle's functions, on memory of the host and of the device
    assert_eq!(
        block.raw_forward(host_x.as_ptr().addr(), output.as_mut_ptr().expose_provenance(), 1, 1),
        SolveStatus::Driver,
        "{}",
        message()
    );
    assert!(output.iter().all(|value| value.is_nan()), "host output of a handle after a fault is NaN");
    assert_eq!(block.raw_forward(x.address(), x.address(), 1, 1), SolveStatus::Driver, "{}", message());
    let updated = block.update(host_weights.as_ptr().addr(), ptr::null_mut::<u8>());
    assert_eq!(updated.map_err(|(status, _)| status), Err(SolveStatus::Driver));
    let created = Block::create(host_weights.as_ptr().addr(), &options(|_| {}));
    assert_eq!(created.map(|_| ()).map_err(|(status, _)| status), Err(SolveStatus::Driver));
    // SAFETY: a handle that is not used any more.
    assert_eq!(unsafe { ffi::solve_block_destroy(block.0) }, SolveStatus::Ok, "{}", message());
}

fn cause_a_fault() {
    let (function, none) = (kernel(FAULT, c"fault"), ptr::null_mut());
    // SAFETY: the kernel above takes no parameters.
    unsafe {
        ok(sys::cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, none, ptr::null_mut(), ptr::null_mut()));
        assert_ne!(sys::cuCtxSynchronize(), sys::CUresult::CUDA_SUCCESS);
    }
}

/// The same where the fault was before the library's first call.
pub fn early_fault() {
    run("early_fault", &[]);
}

fn early_fault_here() {
    cause_a_fault();
    let (host_x, mut output, host_weights) = (Random::new(55).uniforms(D), vec![0.0f32; D], weights(55));
    let at = output.as_mut_ptr().addr();
    let (status, sentence) =
        solve(host_x.as_ptr().addr(), at, host_weights.as_ptr().addr(), 1).expect_err("the device is lost");
    assert_eq!(status, SolveStatus::Driver, "{sentence}");
    assert!(output.iter().all(|value| value.is_nan()), "host output after a fault is NaN: {sentence}");
}

/// A program that resets the device goes on as if it had just begun; blocks from before say what has become of them.
pub fn reset() {
    run("reset", &[]);
}

fn reset_here() {
    const ROWS: usize = 200;
    let host_weights = weights(56);
    let host_x = Random::new(56).uniforms(ROWS * D);
    let wanted = reference(&host_x, &host_weights, 1, ROWS, false);
    let mut blocks = Vec::new();
    for round in 0..3 {
        let (x, weights) = (Memory::of(&host_x), Memory::of(&host_weights));
        let (solved, output) = (Memory::poisoned(ROWS * D), Memory::poisoned(ROWS * D));
        for (time, block) in blocks.iter().enumerate() {
            let refused: Result<(), String> = Block::forward(block, &x, &output, 1, ROWS, ptr::null_mut());
            let sentence = refused.expect_err("a block from before");
            assert!(sentence.contains("device 0 was reset"), "block {time} in round {round}: {sentence}");
            let (status, sentence) = block.update(weights.address(), ptr::null_mut::<u8>()).expect_err("update");
            assert_eq!(status, SolveStatus::Driver, "{sentence}");
            assert!(sentence.contains("device 0 was reset"), "block {time} in round {round}: {sentence}");
        }
        let block = Block::create(weights.address(), &options(|_| {})).expect("create");
        for _ in 0..3 {
            solve(x.address(), solved.address(), weights.address(), ROWS).expect("solve");
            block.forward(&x, &output, 1, ROWS, ptr::null_mut()).expect("forward");
        }
        check_block(&solved.read(), &wanted, &format!("solve() in round {round}"));
        check_block(&output.read(), &wanted, &format!("a block in round {round}"));
        blocks.push(block);
        if round == 1 {
            // Its memory is gone, and what has its address now is somebody else's.
            drop(blocks.remove(0));
        }
        drop((x, weights, solved, output));
        // SAFETY: nothing of it is used any more but by blocks, which know.
        unsafe { ok(sys::cuDevicePrimaryCtxReset_v2(0)) };
        if round != 0 {
            // Before anybody has made the device's context anew.
            let mut output = vec![0.0f32; host_x.len()];
            let at = output.as_mut_ptr().addr();
            solve(host_x.as_ptr().addr(), at, host_weights.as_ptr().addr(), ROWS).expect("solve on host memory");
            check_block(&output, &wanted, &format!("solve() on host memory behind reset {round}"));
        }
        enter(0);
    }
}
