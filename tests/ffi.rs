//! Bad input that needs no GPU to exist: a status, a sentence that names the argument and the value, output as it was, and the next good call
//! works. Runs on the CPU backend, on any machine.

#[path = "common/api.rs"]
mod api;
#[path = "common/mod.rs"]
mod common;

use std::ffi::{CStr, OsStr, OsString};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;
use std::ptr;

use solve::cuda::driver::{check_version, toolkit_version};
use solve::cuda::images::IMAGES;
use solve::dims::D;
use solve::error::Error;
use solve::error::SolveStatus::{
    self, BadHandle, BadPointer, InvalidArgument, Misaligned, MixedMemory, NullPointer, OutOfMemory, Overlap,
    Unsupported,
};
use solve::ffi;
use solve::options::BlockOptions;
use solve::precision::SolvePrecision::{self, Auto, Exact, Fast};
use solve::span::Tokens;
use solve::weights::WEIGHTS_LEN;

use api::{Block, message, options, raw_solve, solve};
use common::{Random, check_block, reference, run, weights};

fn main() -> std::process::ExitCode {
    // SAFETY: no other thread runs yet.
    unsafe { std::env::set_var("SOLVE_DEVICE", "cpu") };
    let tests: [(&str, fn()); 13] = [
        ("solve_refuses_bad_input", solve_refuses_bad_input),
        ("a_mapped_file_may_have_any_name", a_mapped_file_may_have_any_name),
        ("buffers_may_lie_side_by_side", buffers_may_lie_side_by_side),
        ("memory_may_be_of_several_mappings", memory_may_be_of_several_mappings),
        ("create_refuses_bad_options", create_refuses_bad_options),
        ("no_options_are_the_defaults", no_options_are_the_defaults),
        ("forward_and_update_refuse_bad_input", forward_and_update_refuse_bad_input),
        ("a_destroyed_block_is_an_error", a_destroyed_block_is_an_error),
        ("each_thread_has_its_own_status", each_thread_has_its_own_status),
        ("strings_describe_the_library", strings_describe_the_library),
        ("every_error_has_its_status", every_error_has_its_status),
        ("an_old_driver_is_named", an_old_driver_is_named),
        ("what_a_gpu_loads_at_once_is_aligned", what_a_gpu_loads_at_once_is_aligned),
    ];
    run(&tests)
}

/// Host memory that is unmapped again, read-only, or too short: what a program with a bug has.
struct Pages(*mut libc::c_void, usize);

impl Pages {
    fn new(bytes: usize, protection: i32) -> Self {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: fresh anonymous memory.
        let base = unsafe { libc::mmap(ptr::null_mut(), bytes + 4096, protection, flags, -1, 0) };
        assert_ne!(base, libc::MAP_FAILED);
        // SAFETY: the last page of it. Nothing can be mapped there by chance while it is protected.
        assert_eq!(unsafe { libc::mprotect(base.byte_add(bytes), 4096, libc::PROT_NONE) }, 0);
        Self(base, bytes + 4096)
    }

    fn address(&self) -> usize {
        self.0.addr()
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: mapped in `new`.
        unsafe { libc::munmap(self.0, self.1) };
    }
}

type Row = (&'static str, [usize; 3], i32, SolveStatus, &'static [&'static str]);

fn solve_refuses_bad_input() {
    let (seq_len, mut host_weights) = (8, weights(60));
    // Room for an output that begins in the weights.
    host_weights.resize(WEIGHTS_LEN + D, 0.0);
    let host_x = Random::new(60).uniforms(seq_len * D);
    let mut output = vec![f32::NAN; seq_len * D];
    let short = Pages::new(4096, libc::PROT_READ | libc::PROT_WRITE);
    let constant = Pages::new(8 * 4096, libc::PROT_READ);
    let none = Pages::new(8 * 4096, libc::PROT_NONE);
    let (a, b, c) = (host_x.as_ptr().addr(), output.as_mut_ptr().expose_provenance(), host_weights.as_ptr().addr());
    let good = [a, b, c];
    let end = usize::MAX - 4095;
    let table: &[Row] = &[
        ("x null", [0, b, c], 8, NullPointer, &["x is null"]),
        ("output null", [a, 0, c], 8, NullPointer, &["output is null"]),
        ("weights null", [a, b, 0], 8, NullPointer, &["weights is null"]),
        ("seq_len 0", good, 0, InvalidArgument, &["seq_len is 0, expected 1 or more"]),
        ("seq_len negative", good, i32::MIN, InvalidArgument, &["seq_len is -2147483648"]),
        ("seq_len past memory", good, i32::MAX, BadPointer, &["not readable", "6597069763584 bytes"]),
        ("x one byte off", [a + 1, b, c], 7, Misaligned, &["x is at", "not a multiple of 4"]),
        ("output one byte off", [a, b + 1, c], 7, Misaligned, &["output is at"]),
        ("weights two bytes off", [a, b, c + 2], 7, Misaligned, &["weights is at"]),
        ("output over x", [a, a + 4, c], 7, Overlap, &["output", "overlaps x", "only output == x"]),
        ("output over weights", [a, c, c], 1, Overlap, &["overlaps weights"]),
        ("output at the end of weights", [a, c + 4 * WEIGHTS_LEN - 4, c], 1, Overlap, &["overlaps weights"]),
        ("x foreign", [0x10, b, c], 8, BadPointer, &["x at 0x10 is not readable memory"]),
        ("output foreign", [a, 0x7000_0000_0000, c], 8, BadPointer, &["output at 0x700000000000 is not writable"]),
        ("weights past the end of memory", [a, b, end], 8, BadPointer, &["weights at 0xfffffffffffff000"]),
        ("x without access", [none.address(), b, c], 8, BadPointer, &["x at", "not readable"]),
        ("x short", [short.address(), b, c], 8, BadPointer, &["x at", "24576 bytes"]),
        ("weights short", [a, b, short.address()], 8, BadPointer, &["weights at", "28351488 bytes"]),
        ("output read-only", [a, constant.address(), c], 8, BadPointer, &["output at", "not writable"]),
    ];
    for (name, [x, output_at, weights], seq_len, status, words) in table {
        let (got, sentence) = raw_solve(*x, *output_at, *weights, *seq_len).expect_err(name);
        assert_eq!(got, *status, "{name}: {sentence}");
        for word in *words {
            assert!(sentence.contains(word), "{name}: {word:?} is not in {sentence:?}");
        }
        assert!(output.iter().all(|value| value.is_nan()), "{name}: output was touched");
    }
    solve(a, output.as_mut_ptr().expose_provenance(), c, seq_len).expect("the next good call");
    check_block(&output, &reference(&host_x, &host_weights[..WEIGHTS_LEN], 1, seq_len, false), "the next good call");
}

/// What is mapped above a file whose name is not UTF-8 is memory like any other.
fn a_mapped_file_may_have_any_name() {
    let mut host_weights = weights(64);
    let mut x = Random::new(64).uniforms(D);
    let path = std::env::temp_dir().join(OsStr::from_bytes(format!("solve {} ", std::process::id()).as_bytes()));
    let path = PathBuf::from(OsString::from_vec([path.as_os_str().as_bytes(), b"\xe9"].concat()));
    std::fs::write(&path, [0; 4096]).expect("a file");
    let file = std::fs::File::open(&path).expect("the file");
    // SAFETY: a fresh mapping below all of the program's own: an address is a wish where something else is already.
    let mapped = unsafe {
        let low = ptr::without_provenance_mut(0x1000_0000);
        libc::mmap(low, 4096, libc::PROT_READ, libc::MAP_PRIVATE, file.as_raw_fd(), 0)
    };
    std::fs::remove_file(&path).expect("the file");
    assert_ne!(mapped, libc::MAP_FAILED);
    let at = x.as_mut_ptr().expose_provenance();
    assert!(mapped.addr() < at && mapped.addr() < host_weights.as_mut_ptr().addr(), "it hides nothing");
    let outcome = solve(at, at, host_weights.as_ptr().addr(), 1);
    // SAFETY: mapped above.
    unsafe { libc::munmap(mapped, 4096) };
    outcome.expect("solve");
}

/// As where a program takes all of them from one allocation.
fn buffers_may_lie_side_by_side() {
    let mut all = weights(65);
    all.splice(0..0, Random::new(65).uniforms(2 * D));
    let wanted = [0, 1].map(|row| reference(&all[row * D..][..D], &all[2 * D..], 1, 1, false));
    let at = all.as_mut_ptr().expose_provenance();
    let [first, second, host_weights] = [0, D, 2 * D].map(|floats| at + 4 * floats);
    solve(second, first, host_weights, 1).expect("output before x");
    check_block(&all[..D], &wanted[1], "output before x");
    all[..D].copy_from_slice(&Random::new(65).uniforms(D));
    solve(first, second, host_weights, 1).expect("output between x and weights");
    check_block(&all[D..2 * D], &wanted[0], "output between x and weights");
}

/// The kernel lists what has other rights apart.
fn memory_may_be_of_several_mappings() {
    let host_weights = weights(66);
    let pages = Pages::new(8 * D * size_of::<f32>(), libc::PROT_READ | libc::PROT_WRITE);
    // SAFETY: its first two pages.
    assert_eq!(unsafe { libc::mprotect(pages.0, 2 * 4096, libc::PROT_READ) }, 0);
    let (at, mut output) = (pages.0.expose_provenance(), vec![0.0; 8 * D]);
    let (to, weights_at) = (output.as_mut_ptr().expose_provenance(), host_weights.as_ptr().addr());
    solve(at, to, weights_at, 8).expect("x that is readable from end to end");
    let (status, sentence) = solve(to, at, weights_at, 8).expect_err("output that begins read-only");
    assert!(status == BadPointer && sentence.contains("not writable"), "{sentence}");
}

fn create_refuses_bad_options() {
    let host_weights = weights(61);
    let at = host_weights.as_ptr().expose_provenance();
    let refuse = |weights: usize, change: fn(&mut ffi::SolveOptions), status: SolveStatus, words: &str| {
        let (got, sentence) = Block::create(weights, &options(change)).map(|_| ()).expect_err(words);
        assert_eq!(got, status, "{sentence}");
        assert!(sentence.contains(words), "{words:?} is not in {sentence:?}");
    };
    refuse(at, |o| o.size = 0, InvalidArgument, "options->size is 0, expected 24");
    refuse(at, |o| o.size += 8, InvalidArgument, "options->size is 32, expected 24");
    refuse(at, |o| o.device = -7, InvalidArgument, "options->device is -7");
    refuse(at, |o| o.max_tokens = -1, InvalidArgument, "options->max_tokens is -1");
    refuse(0, |_| {}, NullPointer, "weights is null");
    refuse(at + 1, |_| {}, Misaligned, "weights is at");
    refuse(0x1000, |_| {}, BadPointer, "weights at 0x1000");

    let mine = ptr::without_provenance_mut(0x10);
    let mut kept = mine;
    // SAFETY: the library checks weights.
    let status = unsafe { ffi::solve_block_create(ptr::null(), &options(|_| {}), &mut kept) };
    assert_eq!((status, kept), (NullPointer, mine), "a block is written on success only");

    let mut bytes = options(|_| {});
    // A C program can put any int there.
    let precision = (&raw mut bytes.precision).cast::<i32>();
    // SAFETY: an int in the place of an int; the library reads it as one.
    let status = unsafe {
        precision.write(77);
        ffi::solve_block_create(ptr::with_exposed_provenance(at), &raw const bytes, &mut ptr::null_mut())
    };
    assert_eq!(status, InvalidArgument);
    assert!(message().contains("options->precision is 77"), "{}", message());
    // SAFETY: the library checks the pointer.
    let status = unsafe { ffi::solve_block_create(ptr::with_exposed_provenance(at), ptr::null(), ptr::null_mut()) };
    assert_eq!((status, message().as_str()), (NullPointer, "block is null"));
    Block::create(at, &options(|_| {})).expect("the next good call");
    Block::create(at, &options(|o| o.device = 0)).expect("SOLVE_DEVICE=cpu has the last word");
}

fn no_options_are_the_defaults() {
    let host_weights = weights(67);
    let mut x = Random::new(67).uniforms(4 * D);
    let wanted = reference(&x, &host_weights, 1, 4, false);
    let mut block = ptr::null_mut();
    // SAFETY: no options are none to get wrong.
    let status = unsafe { ffi::solve_block_create(host_weights.as_ptr(), ptr::null(), &mut block) };
    assert_eq!(status, SolveStatus::Ok, "{}", message());
    let (block, at) = (Block(block), x.as_mut_ptr().expose_provenance());
    assert_eq!(block.raw_forward(at, at, 1, 4), SolveStatus::Ok, "{}", message());
    check_block(&x, &wanted, "a block without options");
    for block in [block, Block::create(host_weights.as_ptr().addr(), &options(|_| {})).expect("create")] {
        assert_eq!(block.raw_forward(0x10, 0x10, 1, 4097), InvalidArgument);
        assert!(message().ends_with("is 4097, the block was created for max_tokens = 4096"), "{}", message());
    }
}

fn forward_and_update_refuse_bad_input() {
    let host_weights = weights(62);
    let host_x = Random::new(62).uniforms(4 * D);
    let mut output = vec![f32::NAN; 4 * D];
    let (x, to) = (host_x.as_ptr().addr(), output.as_mut_ptr().expose_provenance());
    let block = Block::create(host_weights.as_ptr().addr(), &options(|o| o.max_tokens = 4)).expect("create");
    let refuse = |(x, to, batch, seq_len, stream): (usize, usize, usize, usize, usize), status, words: &str| {
        let got = block.call(x, to, batch, seq_len, ptr::without_provenance_mut(stream));
        assert_eq!(got, status, "{}", message());
        assert!(message().contains(words), "{words:?} is not in {:?}", message());
    };
    refuse((0, to, 1, 4, 0), NullPointer, "x is null");
    refuse((x, 0, 1, 4, 0), NullPointer, "output is null");
    refuse((x, to, 0, 4, 0), InvalidArgument, "batch is 0");
    refuse((x, to, 4, 0, 0), InvalidArgument, "seq_len is 0");
    refuse((x, to, 1, 5, 0), InvalidArgument, "batch * seq_len is 5, the block was created for max_tokens = 4");
    refuse((x, to, 65_535, 1, 0), InvalidArgument, "batch * seq_len is 65535");
    refuse((x, to, 65_536, 1, 0), InvalidArgument, "batch is 65536");
    refuse((x, to, 60_000, 60_000, 0), InvalidArgument, "batch * seq_len is 3600000000");
    refuse((x + 2, to, 1, 3, 0), Misaligned, "x is at");
    refuse((x, x + 4, 1, 3, 0), Overlap, "overlaps x");
    refuse((0x20, to, 1, 4, 0), BadPointer, "x at 0x20");
    refuse((x, 0x20, 1, 4, 0), BadPointer, "output at 0x20 is not writable");
    refuse((x, to, 1, 4, 99), InvalidArgument, "stream is 0x63, expected null");
    assert!(output.iter().all(|value| value.is_nan()), "output was touched");
    assert_eq!(block.update(0, ptr::null_mut::<u8>()).expect_err("null").0, NullPointer);
    assert_eq!(block.update(0x40, ptr::null_mut::<u8>()).expect_err("foreign").0, BadPointer);
    let stream = ptr::without_provenance_mut::<u8>(99);
    assert_eq!(block.update(host_weights.as_ptr().addr(), stream).expect_err("a stream").0, InvalidArgument);

    assert_eq!(block.raw_forward(x, output.as_mut_ptr().expose_provenance(), 2, 2), SolveStatus::Ok);
    check_block(&output, &reference(&host_x, &host_weights, 2, 2, false), "the next good call");
}

fn a_destroyed_block_is_an_error() {
    let host_weights = weights(63);
    let mut x = Random::new(63).uniforms(D);
    let at = x.as_mut_ptr().expose_provenance();
    let block = Block::create(host_weights.as_ptr().addr(), &options(|_| {})).expect("create");
    // SAFETY: any handle may be destroyed, also twice, and null.
    unsafe {
        assert_eq!(ffi::solve_block_destroy(block.0), SolveStatus::Ok);
        assert_eq!(ffi::solve_block_destroy(block.0), BadHandle);
        assert_eq!(ffi::solve_block_destroy(ptr::null_mut()), SolveStatus::Ok);
    }
    // Nor is it the name of a later one.
    let later = Block::create(host_weights.as_ptr().addr(), &options(|_| {})).expect("create");
    assert_ne!(later.0, block.0);
    assert_eq!(block.raw_forward(at, at, 1, 1), BadHandle);
    assert!(message().contains("already destroyed"), "{}", message());
    assert_eq!(block.update(at, ptr::null_mut::<u8>()).expect_err("destroyed").0, BadHandle);
    for invented in [1, 0x1234_5678] {
        let invented = Block(ptr::without_provenance_mut(invented));
        assert_eq!(invented.raw_forward(at, at, 1, 1), BadHandle);
    }
    assert_eq!(Block(ptr::null_mut()).raw_forward(at, at, 1, 1), NullPointer);
    solve(at, at, host_weights.as_ptr().addr(), 1).expect("the next good call");
}

fn each_thread_has_its_own_status() {
    let failed = raw_solve(0, 0, 0, 1).expect_err("null");
    assert_eq!(failed.0, NullPointer);
    std::thread::spawn(|| {
        assert_eq!(ffi::solve_last_status(), SolveStatus::Ok, "before the first call");
        assert_eq!(message(), "");
        assert_eq!(raw_solve(4, 4, 4, 0).expect_err("seq_len").0, InvalidArgument);
    })
    .join()
    .expect("the thread");
    assert_eq!((ffi::solve_last_status(), message()), failed, "another thread's failure is not this one's");
}

fn text(string: *const std::ffi::c_char) -> &'static str {
    // SAFETY: static strings of the library.
    unsafe { CStr::from_ptr(string) }.to_str().expect("ASCII")
}

fn strings_describe_the_library() {
    for (status, words) in [
        (SolveStatus::Ok, "ok"),
        (NullPointer, "null pointer"),
        (InvalidArgument, "invalid argument"),
        (Misaligned, "misaligned pointer"),
        (Overlap, "output overlaps an input"),
        (MixedMemory, "pointers of different memories"),
        (BadPointer, "pointer to memory that may not be used"),
        (OutOfMemory, "out of memory"),
        (SolveStatus::NoDevice, "no usable GPU"),
        (SolveStatus::Driver, "CUDA driver error"),
        (Unsupported, "unsupported"),
        (BadHandle, "no such block"),
        (SolveStatus::Panic, "defect in libsolve"),
    ] {
        assert_eq!(text(ffi::solve_status_string(status as i32)), words);
    }
    assert_eq!([-1, 13].map(|status| text(ffi::solve_status_string(status))), ["unknown status"; 2]);
    let version: Vec<&str> = text(ffi::solve_version()).split(' ').collect();
    assert_eq!(version[0], env!("CARGO_PKG_VERSION"));
    let (kind, number) = (version[1], version[2]);
    match toolkit_version() {
        0 => assert_eq!((kind, number), ("without", "cuda")),
        toolkit => assert_eq!((kind, number), ("cuda", &*format!("{}.{}", toolkit / 1000, toolkit % 1000 / 10))),
    }
    assert!(IMAGES.iter().all(|image| version.contains(&image.arch.name())), "{version:?}");
    let numbers = [Fast, Exact, Auto].map(|precision| SolvePrecision::from_number(precision as i32));
    assert_eq!(numbers, ["fast", "exact", "auto"].map(SolvePrecision::from_name));
    assert_eq!(numbers, [0, 1, 2].map(SolvePrecision::from_number));
    let taken = |number| BlockOptions::from_numbers(-1, number, 0, 0).map(|options| options.precision).ok();
    assert_eq!(numbers, [0, 1, 2].map(taken));
    let id = text(ffi::solve_build_id());
    assert!(id.len() == 64 && id.bytes().all(|byte| byte.is_ascii_hexdigit()), "{id}");
}

/// Those of a GPU, too, which needs none to be told.
fn every_error_has_its_status() {
    let driver = |code| Error::Driver { what: "", code, name: String::new() };
    let (place, block) = (String::new(), String::new());
    let (first_place, second_place) = (String::new(), String::new());
    for (error, status) in [
        (Error::Mixed { first: "", first_place, second: "", second_place }, MixedMemory),
        (Error::Elsewhere { argument: "", place, block }, MixedMemory),
        (Error::Exhausted { what: "", why: String::new() }, OutOfMemory),
        (Error::OutOfMemory { what: String::new(), bytes: 0 }, OutOfMemory),
        (Error::Short { argument: "", address: 0, have: 0, need: 0 }, InvalidArgument),
        (Error::NoDevice(String::new()), SolveStatus::NoDevice),
        (driver(700), SolveStatus::Driver),
        (Error::Reset { device: 0 }, SolveStatus::Driver),
        (Error::Incomplete, SolveStatus::Driver),
        (Error::Lost { device: 0, cause: Box::new(driver(700)) }, SolveStatus::Driver),
    ] {
        assert_eq!(error.status(), status, "{error}");
    }
    // After a fault the device is lost; a stream or an argument that is wrong harms nobody else.
    let faults = [214, 220, 226, 700, 702, 710, 714, 715, 716, 717, 718, 719, 721, 810, 911];
    assert!(faults.iter().all(|&code| driver(code).is_fault()));
    assert!(Error::Lost { device: 0, cause: Box::new(driver(700)) }.is_fault());
    assert!([1, 2, 201, 400, 701, 709, 801, 900].iter().all(|&code| !driver(code).is_fault()));
    assert!(!Error::Reset { device: 0 }.is_fault());
}

fn an_old_driver_is_named() {
    let error = check_version(11_040).expect_err("too old");
    assert_eq!(error.status(), Unsupported);
    assert!(error.to_string().contains("supports CUDA 11.4, this build needs"), "{error}");
    if toolkit_version() >= 13_000 {
        let error = check_version(12_090).expect_err("too old for this compiler");
        assert!(error.to_string().ends_with("or newer; a build by nvcc 12.9 would do"), "{error}");
    }
    assert!(check_version(toolkit_version().max(12_080)).is_ok());
    // A later driver of the compiler's generation, and one before it, but none of an earlier generation
    let generation = toolkit_version() / 1000 * 1000;
    assert!(check_version(generation.max(12_080)).is_ok());
    assert!([12_070, generation - 10].into_iter().all(|older| check_version(older).is_err()));
}

/// Of buffers at these addresses a call on a GPU takes a copy where they are not on 16 bytes.
fn what_a_gpu_loads_at_once_is_aligned() {
    let copied = |x, output| Tokens::new(x, output, 1, 1).expect("good numbers").is_misaligned();
    assert!(!copied(1 << 20, 1 << 21));
    for off in [4, 8, 12] {
        assert!(copied((1 << 20) + off, 1 << 21) && copied(1 << 20, (1 << 21) + off), "{off} bytes off");
    }
}
