//! On a machine without a GPU, or with none in sight, everything runs on the CPU: solve, the handle, threads.

#[path = "common/api.rs"]
mod api;
#[path = "common/mod.rs"]
mod common;
#[path = "no_gpu/memory.rs"]
mod memory;

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError, mpsc};
use std::time::Duration;
use std::{env, ptr, thread};

use solve::dims::D;
use solve::error::SolveStatus;
use solve::knobs::Knobs;
use solve::precision::SolvePrecision;
use solve::weights::WEIGHTS_LEN;

use api::{Block, message, options, raw_solve, solve};
use common::{Random, check_block, reference, run, weights};

const TASK: &str = "SOLVE_TEST_TASK";
const SOLVE: &str = "solve";
const NO_FILES: &str = "solve without a file descriptor to be had";
const COUNT: &str = "solve twice, and count the threads of the process";
const READ: &str = "say what was read of the environment";

fn main() -> std::process::ExitCode {
    // Before the driver is looked for: it then sees no GPU, where there is one.
    // SAFETY: no other thread runs yet.
    unsafe { env::set_var("CUDA_VISIBLE_DEVICES", "") };
    if let Some(task) = env::var_os(TASK) {
        if task == READ {
            println!("{:?}", Knobs::get());
            return std::process::ExitCode::SUCCESS;
        }
        if task == memory::TASK {
            memory::task();
            return std::process::ExitCode::SUCCESS;
        }
        let mut x = vec![0.5f32; D];
        let weights = weights(70);
        let at = x.as_mut_ptr().expose_provenance();
        if task == NO_FILES {
            let none = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
            // SAFETY: reads the limits.
            assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &none) }, 0);
        }
        println!("{:?}", raw_solve(at, at, weights.as_ptr().addr(), 1));
        if task == COUNT {
            raw_solve(at, at, weights.as_ptr().addr(), 1).expect("the same again");
            println!("{}", std::fs::read_dir("/proc/self/task").expect("the kernel's list").count());
        }
        return std::process::ExitCode::SUCCESS;
    }
    let tests: [(&str, fn()); 17] = [
        ("solve_runs_on_the_cpu", solve_runs_on_the_cpu),
        ("a_block_runs_on_the_cpu", a_block_runs_on_the_cpu),
        ("update_changes_the_weights", update_changes_the_weights),
        ("a_gpu_that_is_asked_for_is_missed", a_gpu_that_is_asked_for_is_missed),
        ("knobs", knobs),
        ("the_environment_is_what_was_read", the_environment_is_what_was_read),
        ("so_many_threads_are_started_once", so_many_threads_are_started_once),
        ("no_file_descriptor_is_an_error", no_file_descriptor_is_an_error),
        ("no_memory_is_an_error", memory::no_memory_is_an_error),
        ("without_proc_memory_is_trusted", without_proc_memory_is_trusted),
        ("mappings_are_listed_once_a_call", mappings_are_listed_once_a_call),
        ("mappings_are_listed_up_to_the_last_buffer", mappings_are_listed_up_to_the_last_buffer),
        ("threads", threads),
        ("forked_child", forked_child),
        ("forked_child_of_its_parents_number", forked_child_of_its_parents_number),
        ("destroy_waits_for_a_forward", destroy_waits_for_a_forward),
        ("a_forward_keeps_nobody_from_another_block", a_forward_keeps_nobody_from_another_block),
    ];
    run(&tests)
}

fn solve_runs_on_the_cpu() {
    let host_weights = weights(71);
    for seq_len in [1, 2, 17, 64] {
        let mut x = Random::new(seq_len as u64).uniforms(seq_len * D);
        let wanted = reference(&x, &host_weights, 1, seq_len, false);
        let mut output = vec![f32::NAN; x.len()];
        let (from, to) = (x.as_mut_ptr().expose_provenance(), output.as_mut_ptr().expose_provenance());
        solve(from, to, host_weights.as_ptr().addr(), seq_len).expect("solve");
        assert!(output == wanted, "seq_len {seq_len}");
        solve(from, from, host_weights.as_ptr().addr(), seq_len).expect("in place");
        assert!(x == wanted, "in place, seq_len {seq_len}");
    }
}

fn a_block_runs_on_the_cpu() {
    let mut host_weights = weights(72);
    for causal in [0, 1, -2] {
        let x = Random::new(72).uniforms(3 * 20 * D);
        let wanted = reference(&x, &host_weights, 3, 20, causal != 0);
        let block = Block::create(
            host_weights.as_ptr().addr(),
            &options(|o| {
                o.causal = causal;
                o.precision = if causal == 1 { SolvePrecision::Auto } else { SolvePrecision::Exact };
            }),
        )
        .expect("create");
        // The block has its own copy.
        let kept = host_weights.clone();
        host_weights.fill(f32::NAN);
        let mut output = vec![f32::NAN; x.len()];
        let status = block.raw_forward(x.as_ptr().addr(), output.as_mut_ptr().expose_provenance(), 3, 20);
        assert_eq!(status, SolveStatus::Ok, "{}", message());
        check_block(&output, &wanted, "batch of 3");
        host_weights = kept;
    }
}

fn update_changes_the_weights() {
    let (first, second) = (weights(73), weights(74));
    let mut x = Random::new(73).uniforms(D);
    let wanted = reference(&x, &second, 1, 1, false);
    let block = Block::create(first.as_ptr().addr(), &options(|_| {})).expect("create");
    block.update(second.as_ptr().addr(), ptr::null_mut::<u8>()).expect("update");
    let at = x.as_mut_ptr().expose_provenance();
    assert_eq!(block.raw_forward(at, at, 1, 1), SolveStatus::Ok);
    check_block(&x, &wanted, "after the update");
}

fn a_gpu_that_is_asked_for_is_missed() {
    let host_weights = weights(75);
    let asked = Block::create(host_weights.as_ptr().addr(), &options(|o| o.device = 0)).map(|_| ());
    let (status, sentence) = asked.expect_err("there is no device 0");
    assert_eq!(status, SolveStatus::NoDevice);
    assert!(sentence.starts_with("no usable GPU"), "{sentence}");
}

fn child(name: &str, value: impl AsRef<OsStr>) -> String {
    child_of(SOLVE, name, value)
}

fn child_of(task: &str, name: &str, value: impl AsRef<OsStr>) -> String {
    let program = env::current_exe().expect("this program has a path");
    let output = Command::new(program).env(TASK, task).env(name, value).output().expect("it runs");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn knobs() {
    assert_eq!(child("SOLVE_DEVICE", "cpu").trim(), "Ok(())");
    assert_eq!(child("SOLVE_DEVICE", "").trim(), "Ok(())", "as good as unset");
    assert!(child("SOLVE_DEVICE", "cuda").contains("NoDevice"));
    assert!(child("SOLVE_DEVICE", "tpu").contains("SOLVE_DEVICE is \\\"tpu\\\", expected cpu or cuda"));
    assert!(
        child("SOLVE_PRECISION", "double").contains("SOLVE_PRECISION is \\\"double\\\", expected fast, exact or auto")
    );
    assert!(child("SOLVE_ARCH", "volta").contains("SOLVE_ARCH is \\\"volta\\\", expected sm75, sm80 or sm90a"));
    assert!(child("SOLVE_DEVICE", OsStr::from_bytes(b"c\xe9")).contains("SOLVE_DEVICE is"), "not UTF-8");
    for count in ["abc", "-1", "1025", "100000"] {
        let sentence = format!("RAYON_NUM_THREADS is \\\"{count}\\\", expected a number up to 1024");
        assert!(child("RAYON_NUM_THREADS", count).contains(&sentence), "{count} threads");
    }
    for count in ["0", "1", "5"] {
        assert_eq!(child("RAYON_NUM_THREADS", count).trim(), "Ok(())", "{count} threads");
    }
    assert!(!child("RAYON_NUM_THREADS", "1024").contains("expected"), "whether or not so many are to be had");
    let of_rayon = child_of(COUNT, "RAYON_RS_NUM_CPUS", "37");
    assert_eq!(of_rayon, child_of(COUNT, "RAYON_NUM_THREADS", "0"), "a variable that is none of ours");
    assert_eq!(child("RUST_MIN_STACK", "65536").trim(), "Ok(())", "threads with room for their tiles");
    for precision in ["fast", "exact", "auto"] {
        assert_eq!(child("SOLVE_PRECISION", precision).trim(), "Ok(())", "the CPU is exact");
    }
}

/// Those of a GPU, too, where nobody would miss them.
fn the_environment_is_what_was_read() {
    const TOOLS: &str = "NVIDIA_PROCESS_INJECTION_CRASH_REPORTING";
    let usual = "device: Any, arch: None, precision: Fast, threads: 0, instrumented: false";
    for (name, value, changed, to) in [
        ("SOLVE_DEVICE", "", "", ""),
        ("SOLVE_DEVICE", "cpu", "device: Any", "device: Cpu"),
        ("SOLVE_DEVICE", "cuda", "device: Any", "device: Cuda"),
        ("SOLVE_ARCH", "sm75", "arch: None", "arch: Some(Sm75)"),
        ("SOLVE_ARCH", "sm80", "arch: None", "arch: Some(Sm80)"),
        ("SOLVE_ARCH", "sm90a", "arch: None", "arch: Some(Sm90a)"),
        ("SOLVE_PRECISION", "fast", "", ""),
        ("SOLVE_PRECISION", "exact", "Fast", "Exact"),
        ("SOLVE_PRECISION", "auto", "Fast", "Auto"),
        ("RAYON_NUM_THREADS", "1024", "threads: 0", "threads: 1024"),
        (TOOLS, "1", "instrumented: false", "instrumented: true"),
    ] {
        let mut read = Command::new(env::current_exe().expect("this program has a path"));
        for unset in ["SOLVE_DEVICE", "SOLVE_ARCH", "SOLVE_PRECISION", "RAYON_NUM_THREADS", TOOLS] {
            read.env_remove(unset);
        }
        let read = read.env(TASK, READ).env(name, value).output().expect("it runs").stdout;
        let wanted = format!("Ok(Knobs {{ {} }})", usual.replace(changed, to));
        assert_eq!(String::from_utf8_lossy(&read).trim(), wanted, "{name}={value}");
    }
}

fn so_many_threads_are_started_once() {
    let count = |threads: &str| -> usize {
        let said = child_of(COUNT, "RAYON_NUM_THREADS", threads);
        said.lines().last().and_then(|line| line.parse().ok()).unwrap_or_else(|| panic!("{said}"))
    };
    let others = count("1") - 1;
    assert_eq!(count("5"), others + 5);
    let cpus = thread::available_parallelism().expect("CPUs").get();
    assert_eq!([count(""), count("0")], [others + cpus; 2], "one for each CPU");
}

/// Nor is memory trusted that cannot be looked at, or a driver taken for missing that cannot be looked for.
fn no_file_descriptor_is_an_error() {
    let said = child_of(NO_FILES, "SOLVE_DEVICE", "cuda");
    let looked =
        said.contains("OutOfMemory") && said.contains("a file descriptor for the NVIDIA driver: Too many open files");
    assert!(looked || said.contains("this build has no GPU code"), "{said}");
    let either = child_of(NO_FILES, "SOLVE_DEVICE", "");
    assert!(!looked || either == said, "a CPU in place of a GPU that may be there: {either}");
    let said = child_of(NO_FILES, "SOLVE_DEVICE", "cpu");
    assert!(said.contains("OutOfMemory") && said.contains("/proc/thread-self/maps: Too many open files"), "{said}");
}

/// As in a sandbox: then nothing can be checked, and a call goes on.
fn without_proc_memory_is_trusted() {
    const REFUSED: i32 = 77;
    const EMPTY: &str = concat!(env!("CARGO_TARGET_TMPDIR"), "\0");
    let host_weights = weights(80);
    let mut x = Random::new(80).uniforms(D);
    let (at, weights_at) = (x.as_mut_ptr().expose_provenance(), host_weights.as_ptr().addr());
    solve(at, at, weights_at, 1).expect("with it");
    let status = status_of_child(|| {
        // SAFETY: a C string.
        let leave = || unsafe { libc::chroot(EMPTY.as_ptr().cast()) } == 0;
        // SAFETY: of this process, which was forked for it and has one thread.
        if !leave() && (unsafe { libc::unshare(libc::CLONE_NEWUSER) } != 0 || !leave()) {
            // SAFETY: as in `status_of_child`.
            unsafe { libc::_exit(REFUSED) }
        }
        !Path::new("/proc").exists() && solve(at, at, weights_at, 1).is_ok()
    });
    if libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == REFUSED {
        eprintln!("\nskipped: this process may not leave its root");
    } else {
        assert_eq!(status, 0, "256 times 1 if the call failed");
    }
}

const PAGE: usize = 4096;
/// Tests that count what is read of the list do not make it longer for each other.
static LISTING: Mutex<()> = Mutex::new(());

/// Thousands of mappings, as a program with many threads or files has them, cost a call one look at their list.
fn mappings_are_listed_once_a_call() {
    let _alone = LISTING.lock().unwrap_or_else(PoisonError::into_inner);
    // Every other page of so many is a mapping of its own. Behind them are one token and the weights: the list has these last.
    const MANY: usize = 2000 * PAGE;
    let bytes = MANY + PAGE + WEIGHTS_LEN * size_of::<f32>();
    // SAFETY: fresh memory.
    let base = unsafe {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        libc::mmap(ptr::null_mut(), bytes, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0)
    };
    assert_ne!(base, libc::MAP_FAILED);
    for at in (0..MANY).step_by(2 * PAGE) {
        // SAFETY: a page of it, of which there is no use.
        assert_eq!(unsafe { libc::mprotect(base.byte_add(at), PAGE, libc::PROT_NONE) }, 0);
    }
    let x = base.expose_provenance() + MANY;
    let weights = x + PAGE;
    let block = Block::create(weights, &options(|_| {})).expect("create");
    let list = std::fs::read("/proc/self/maps").expect("the list").len();
    let calls: [(&str, &dyn Fn()); 4] = [
        ("solve", &|| solve(x, x, weights, 1).expect("solve")),
        ("forward", &|| assert_eq!(block.raw_forward(x, x, 1, 1), SolveStatus::Ok)),
        ("update", &|| block.update(weights, ptr::null_mut::<u8>()).expect("update")),
        ("create", &|| drop(Block::create(weights, &options(|_| {})).expect("create"))),
    ];
    for (name, call) in calls {
        let before = bytes_read();
        call();
        let read = bytes_read() - before;
        assert!(list / 2 < read && read < list + list / 2, "{name} read {read} bytes, the list has {list}");
    }
    // SAFETY: mapped above.
    unsafe { libc::munmap(base, bytes) };
}

/// What lies behind all buffers of a call is not read.
fn mappings_are_listed_up_to_the_last_buffer() {
    let _alone = LISTING.lock().unwrap_or_else(PoisonError::into_inner);
    // A page that keeps them apart from other memory, one token and the weights, and behind them every other page of so many.
    const BUFFERS: usize = 2 * PAGE + (WEIGHTS_LEN * size_of::<f32>()).next_multiple_of(PAGE);
    let bytes = BUFFERS + 2000 * PAGE;
    // SAFETY: fresh memory.
    let base = unsafe {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        libc::mmap(ptr::null_mut(), bytes, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0)
    };
    assert_ne!(base, libc::MAP_FAILED);
    for at in [0].into_iter().chain((BUFFERS..bytes).step_by(2 * PAGE)) {
        // SAFETY: a page of it, of which there is no use.
        assert_eq!(unsafe { libc::mprotect(base.byte_add(at), PAGE, libc::PROT_NONE) }, 0);
    }
    let x = base.expose_provenance() + PAGE;
    let list = std::fs::read_to_string("/proc/self/maps").expect("the list");
    let front: usize =
        list.lines().take_while(|line| !line.starts_with(&format!("{x:x}-"))).map(|line| line.len() + 1).sum();
    let before = bytes_read();
    solve(x, x, x + PAGE, 1).expect("solve");
    let read = bytes_read() - before;
    // A buffer or two more than it takes to see them
    assert!(
        read < front + 4 * PAGE && front + 4 * PAGE < list.len(),
        "{read} bytes, {front} in front, {} in all",
        list.len()
    );
    // SAFETY: mapped above.
    unsafe { libc::munmap(base, bytes) };
}

/// Bytes that this thread has read from files, lists of the kernel's among them.
fn bytes_read() -> usize {
    let counters = std::fs::read_to_string("/proc/thread-self/io").expect("counters of the kernel");
    let line = counters.lines().find_map(|line| line.strip_prefix("rchar: "));
    line.expect("characters read").parse().expect("a number")
}

fn threads() {
    let host_weights = weights(76);
    let block = Block::create(host_weights.as_ptr().addr(), &options(|_| {})).expect("create");
    let (block, weights_at) = (block.0.expose_provenance(), host_weights.as_ptr().addr());
    thread::scope(|scope| {
        for index in 0..6usize {
            scope.spawn(move || {
                let block = std::mem::ManuallyDrop::new(Block(ptr::with_exposed_provenance_mut(block)));
                let seq_len = [1, 3, 10, 16, 25, 40][index];
                let x = Random::new(index as u64).uniforms(seq_len * D);
                let mut output = vec![f32::NAN; x.len()];
                let (from, to) = (x.as_ptr().addr(), output.as_mut_ptr().expose_provenance());
                solve(from, to, weights_at, seq_len).expect("solve");
                let first = output.clone();
                for _ in 0..10 {
                    output.fill(f32::NAN);
                    let to = output.as_mut_ptr().expose_provenance();
                    if index % 2 == 0 {
                        solve(from, to, weights_at, seq_len).expect("solve");
                    } else {
                        assert_eq!(block.raw_forward(from, to, 1, seq_len), SolveStatus::Ok);
                    }
                    assert!(output == first, "thread {index} got something else");
                }
            });
        }
    });
    drop(Block(ptr::with_exposed_provenance_mut(block)));
}

/// A child that was forked after a call, as Python's multiprocessing does, has threads of its own.
fn forked_child() {
    let host_weights = weights(78);
    let x = Random::new(78).uniforms(40 * D);
    let mut output = vec![f32::NAN; x.len()];
    let [from, weights_at] = [x.as_ptr().addr(), host_weights.as_ptr().addr()];
    let to = output.as_mut_ptr().expose_provenance();
    solve(from, to, weights_at, 40).expect("in the parent");
    let wanted = output.clone();
    let status = status_of_child(|| {
        output.fill(f32::NAN);
        solve(from, to, weights_at, 40).is_ok() && output == wanted
    });
    assert_eq!(status, 0, "the child's status; 256 times 14 is the alarm that ends it after 30 s");
}

extern "C" fn ended(_: i32) {
    // SAFETY: as in `status_of_child`.
    unsafe { libc::_exit(14) };
}

/// A forked child's status as of waitpid: 0 if `body` is true there.
fn status_of_child(body: impl FnOnce() -> bool) -> i32 {
    // SAFETY: the child calls what is to work there, and leaves without running anything of its parent's; it is ended if it does not return.
    unsafe {
        let child = libc::fork();
        if child == 0 {
            // With a handler: the first process of a namespace is not ended by a signal that it has none for.
            libc::signal(libc::SIGALRM, ended as *const () as usize);
            libc::alarm(30);
            libc::_exit(if body() { 0 } else { 1 });
        }
        assert!(child > 0, "fork");
        let mut status = 0;
        assert_eq!(libc::waitpid(child, &mut status, 0), child);
        status
    }
}

/// The first processes of two namespaces, one forked from the other after a call, are both number 1.
fn forked_child_of_its_parents_number() {
    const REFUSED: i32 = 77;
    let host_weights = weights(79);
    let mut x = Random::new(79).uniforms(D);
    let (at, weights_at) = (x.as_mut_ptr().expose_provenance(), host_weights.as_ptr().addr());
    let works = || solve(at, at, weights_at, 1).is_ok();
    assert!(works(), "and no other test is starting threads when it is forked");
    let unshare = |flags| {
        // SAFETY: of this process, which was forked for it and has one thread.
        if unsafe { libc::unshare(flags) } != 0 {
            // SAFETY: as in `status_of_child`.
            unsafe { libc::_exit(REFUSED) }
        }
    };
    let status = status_of_child(|| {
        unshare(libc::CLONE_NEWUSER | libc::CLONE_NEWPID);
        let status = status_of_child(|| {
            let parent = (std::process::id(), works());
            unshare(libc::CLONE_NEWPID);
            let status = status_of_child(|| parent == (std::process::id(), true) && works());
            // SAFETY: as in `status_of_child`.
            unsafe { libc::_exit(if libc::WIFEXITED(status) { libc::WEXITSTATUS(status) } else { 2 }) }
        });
        // SAFETY: as in `status_of_child`.
        unsafe { libc::_exit(if libc::WIFEXITED(status) { libc::WEXITSTATUS(status) } else { 3 }) }
    });
    if libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == REFUSED {
        eprintln!("\nskipped: this process may make no namespaces");
    } else {
        assert_eq!(status, 0, "256 times 1 if a call failed, 14 if one did not return in 30 s");
    }
}

/// What another thread has begun is complete when the block is gone; what comes later finds none.
fn destroy_waits_for_a_forward() {
    const ROWS: usize = 1024;
    let host_weights = weights(77);
    let block = Block::create(host_weights.as_ptr().addr(), &options(|o| o.max_tokens = ROWS as i32)).expect("create");
    let x = Random::new(77).uniforms(ROWS * D);
    let mut output = vec![f32::NAN; x.len()];
    let (handle, from, to) = (block.0.expose_provenance(), x.as_ptr().addr(), output.as_mut_ptr().expose_provenance());
    let (first, is_over) = mpsc::channel();
    let forwards = thread::spawn(move || {
        let block = std::mem::ManuallyDrop::new(Block(ptr::with_exposed_provenance_mut(handle)));
        loop {
            match block.raw_forward(from, to, 1, ROWS) {
                SolveStatus::Ok => first.send(()).expect("somebody listens"),
                status => return status,
            }
        }
    });
    // One after the other, so that hardly a moment is between two.
    is_over.recv().expect("a forward");
    thread::sleep(Duration::from_millis(5));
    // SAFETY: any handle may be destroyed.
    assert_eq!(unsafe { solve::ffi::solve_block_destroy(block.0) }, SolveStatus::Ok);
    // SAFETY: `output`, which nobody writes any more.
    let written = unsafe { std::slice::from_raw_parts_mut(ptr::with_exposed_provenance_mut::<f32>(to), x.len()) };
    assert!(written.iter().all(|value| value.is_finite()), "the forward that had begun is not complete");
    written.fill(0.0);
    assert_eq!(forwards.join().expect("the thread"), SolveStatus::BadHandle);
    assert!(written.iter().all(|&value| value == 0.0), "a forward went on behind the block's end");
    std::mem::forget(block);
}

/// Blocks come and go while another one computes.
fn a_forward_keeps_nobody_from_another_block() {
    const ROWS: usize = 1024;
    let host_weights = weights(81);
    let create = || {
        let options = options(|o| o.max_tokens = ROWS as i32);
        Block::create(host_weights.as_ptr().addr(), &options).expect("create")
    };
    let block = create();
    let x = Random::new(81).uniforms(ROWS * D);
    let mut output = vec![f32::NAN; x.len()];
    let (handle, from, to) = (block.0.expose_provenance(), x.as_ptr().addr(), output.as_mut_ptr().expose_provenance());
    // More than once, as this thread may be kept waiting by others than the forward.
    let free = (0..5).any(|_| {
        let other = create();
        let over = AtomicBool::new(false);
        thread::scope(|scope| {
            let (begins, has_begun) = mpsc::channel();
            let over = &over;
            scope.spawn(move || {
                let block = std::mem::ManuallyDrop::new(Block(ptr::with_exposed_provenance_mut(handle)));
                begins.send(()).expect("somebody listens");
                assert_eq!(block.raw_forward(from, to, 1, ROWS), SolveStatus::Ok);
                over.store(true, Ordering::SeqCst);
            });
            has_begun.recv().expect("a forward");
            thread::sleep(Duration::from_millis(10));
            drop(other);
            !over.load(Ordering::SeqCst)
        })
    });
    assert!(free, "a block was destroyed when the forward of another was over, five times");
}
