//! Bad input that needs a GPU to exist: a status, a sentence, output as it was, and the next good call works.

use std::ffi::c_void;
use std::ptr;

use cudarc::driver::sys;
use solve::dims::D;
use solve::error::SolveStatus;
use solve::ffi;
use solve::weights::WEIGHTS_LEN;

use super::api::{Block, message, options, raw_solve, solve};
use super::common::{Random, check_block, reference, weights};
use super::rig::{
    GUARD, Kind, Memory, PIECE, make_piece_read_only, make_read_only, ok, poison, read_floats, unmap_piece,
};

/// (x, output, weights, seq_len), the status, and words of the sentence.
type Row = (&'static str, [usize; 3], i32, SolveStatus, &'static [&'static str]);

fn freed() -> usize {
    let mut address = 0;
    // SAFETY: allocated and freed at once; only the number is used.
    unsafe {
        ok(sys::cuMemAlloc_v2(&mut address, 64 << 20));
        ok(sys::cuMemFree_v2(address));
    }
    address as usize
}

pub fn solve_table() {
    use SolveStatus::{BadPointer, InvalidArgument, Misaligned, MixedMemory, NullPointer, Overlap};
    let rows = 8;
    let host_x = Random::new(40).uniforms(rows * D);
    let (x, output, w) = (Memory::of(&host_x), Memory::poisoned(rows * D), Memory::of(&weights(40)));
    // One page of device memory: far too short for weights.
    let short = Allocation::new(2 << 20);
    let (a, b, c) = (x.address(), output.address(), w.address());
    let good = [a, b, c];
    let host = host_x.as_ptr().addr();
    // The last rows of a large buffer: what is asked for ends past it, and overlaps nothing.
    let large = Memory::poisoned(1000 * D);
    let mapped = Memory::new(Kind::Mapped, 1000 * D, 0);
    let (tail, start) = (large.address() + 992 * D * 4, large.address());
    let table: &[Row] = &[
        ("x null", [0, b, c], 8, NullPointer, &["x is null"]),
        ("output null", [a, 0, c], 8, NullPointer, &["output is null"]),
        ("weights null", [a, b, 0], 8, NullPointer, &["weights is null"]),
        ("seq_len 0", good, 0, InvalidArgument, &["seq_len is 0", "1 or more"]),
        ("seq_len negative", good, -5, InvalidArgument, &["seq_len is -5"]),
        ("seq_len past the buffers", good, 1 << 20, InvalidArgument, &["x holds", "its shape needs 3221225472"]),
        ("seq_len as large as it gets", good, i32::MAX, InvalidArgument, &["x holds"]),
        ("x short", [tail, start, c], 900, InvalidArgument, &["x holds", "its shape needs 2764800"]),
        ("output short", [start, tail, c], 900, InvalidArgument, &["output holds", "its shape needs 2764800"]),
        (
            "mapped x short",
            [mapped.address(), start, c],
            1500,
            InvalidArgument,
            &["x holds", "its shape needs 4608000"],
        ),
        ("x one byte off", [a + 1, b, c], 7, Misaligned, &["x is at", "multiple of 4"]),
        ("output two bytes off", [a, b + 2, c], 7, Misaligned, &["output is at"]),
        ("weights one byte off", [a, b, c + 1], 7, Misaligned, &["weights is at"]),
        ("output over x", [a, a + 4, c], 7, Overlap, &["overlaps x"]),
        ("output over weights", [a, c + 4096, c], 1, Overlap, &["overlaps weights"]),
        ("x on the host", [host, b, c], 8, MixedMemory, &["x is on the host", "weights is on device 0"]),
        ("output on the host", [a, host, c], 8, MixedMemory, &["output is on the host"]),
        ("weights short", [a, b, short.0], 8, InvalidArgument, &["weights holds", "needs 28351488"]),
        ("x foreign", [0x10, b, c], 8, BadPointer, &["x at 0x10 is not readable"]),
        ("all foreign", [0x1000, 0x100_0000, 0x2000_0000], 8, BadPointer, &["x at 0x1000 is not readable"]),
        ("x freed", [freed(), b, c], 8, BadPointer, &["x at", "not readable"]),
        ("output freed", [a, freed(), c], 8, BadPointer, &["output at", "not writable"]),
    ];
    for (name, [x, output_at, weights], seq_len, status, words) in table {
        let (got, sentence) = raw_solve(*x, *output_at, *weights, *seq_len).expect_err(name);
        assert_eq!(got, *status, "{name}: {sentence}");
        for word in *words {
            assert!(sentence.contains(word), "{name}: {word:?} is not in {sentence:?}");
        }
        assert!(output.read().iter().all(|value| value.to_bits() == u32::MAX), "{name}: output was touched");
    }
    assert!(x.read() == host_x, "x was touched");
    solve(a, b, c, rows).expect("the next good call");
    assert!(output.read().iter().all(|value| value.is_finite()));
}

/// The same of a handle, whose output, weights and bits stay as they were.
pub fn forward_and_update_table() {
    use SolveStatus::{BadPointer, InvalidArgument, Misaligned, MixedMemory, NullPointer, Overlap};
    const ROWS: usize = 8;
    let host_x = Random::new(42).uniforms(ROWS * D);
    let (x, output, w) = (Memory::of(&host_x), Memory::poisoned(ROWS * D), Memory::of(&weights(42)));
    let block = Block::create(w.address(), &options(|o| o.max_tokens = 2000)).expect("create");
    let short = Allocation::new(2 << 20);
    let (a, b, host, stream) = (x.address(), output.address(), host_x.as_ptr().addr(), ptr::null_mut::<c_void>());
    let large = Memory::poisoned(1000 * D);
    let (tail, start) = (large.address() + 992 * D * 4, large.address());
    let good = || {
        block.forward(&x, &output, 1, ROWS, ptr::null_mut()).expect("a good call");
        output.read()
    };
    let wanted = good();
    let forwards: &[(&str, [usize; 2], usize, SolveStatus, &str)] = &[
        ("x null", [0, b], 8, NullPointer, "x is null"),
        ("output null", [a, 0], 8, NullPointer, "output is null"),
        ("x one byte off", [a + 1, b], 7, Misaligned, "x is at"),
        ("output two bytes off", [a, b + 2], 7, Misaligned, "output is at"),
        ("output over x", [a, a + 4], 7, Overlap, "overlaps x"),
        ("x on the host", [host, b], 8, MixedMemory, "x is on the host"),
        ("output on the host", [a, host], 8, MixedMemory, "output is on the host"),
        ("x short", [tail, start], 900, InvalidArgument, "x holds"),
        ("output short", [start, tail], 900, InvalidArgument, "output holds"),
        ("x foreign", [0x10, b], 8, BadPointer, "x at 0x10 is not readable"),
        ("both foreign", [0x1000, 0x100_0000], 8, BadPointer, "x at 0x1000 is not readable"),
        ("x freed", [freed(), b], 8, BadPointer, "not readable"),
        ("output freed", [a, freed()], 8, BadPointer, "not writable"),
    ];
    output.write(&vec![f32::NAN; ROWS * D]);
    let poison = output.read();
    for (name, [x_at, output_at], rows, status, words) in forwards {
        assert_eq!(block.raw_forward(*x_at, *output_at, 1, *rows), *status, "{name}: {}", message());
        assert!(message().contains(words), "{name}: {words:?} is not in {:?}", message());
        let untouched = output.read().iter().zip(&poison).all(|(now, before)| now.to_bits() == before.to_bits());
        assert!(untouched, "{name}: output was touched");
    }
    let updates: &[(&str, usize, SolveStatus, &str)] = &[
        ("weights null", 0, NullPointer, "weights is null"),
        ("weights one byte off", w.address() + 1, Misaligned, "weights is at"),
        ("weights short", short.0, InvalidArgument, "weights holds"),
        ("weights foreign", 0x1000, BadPointer, "weights at 0x1000 is not readable"),
        ("weights freed", freed(), BadPointer, "not readable"),
    ];
    for (name, weights_at, status, words) in updates {
        let (got, sentence) = block.update(*weights_at, stream).expect_err(name);
        assert_eq!(got, *status, "{name}: {sentence}");
        assert!(sentence.contains(words), "{name}: {words:?} is not in {sentence:?}");
        assert!(good() == wanted, "{name}: the block has changed");
    }
    assert!(x.read() == host_x, "x was touched");
}

/// Memory that is mapped for reading only serves as x and weights, and is refused as output: nothing faults.
pub fn read_only_memory() {
    const ROWS: usize = 40;
    let (host_x, host_weights) = (Random::new(43).uniforms(ROWS * D), weights(43));
    let x = Memory::new(Kind::Mapped, ROWS * D, 0).with(&host_x);
    let w = Memory::new(Kind::Mapped, WEIGHTS_LEN, 0).with(&host_weights);
    let output = Memory::poisoned(ROWS * D);
    [&x, &w].into_iter().for_each(make_read_only);
    let block = Block::create(w.address(), &options(|_| {})).expect("create");
    for _ in 0..2 {
        let (status, sentence) = solve(x.address(), x.address(), w.address(), ROWS).expect_err("in place");
        assert_eq!(status, SolveStatus::BadPointer, "{sentence}");
        assert!(sentence.contains("output at") && sentence.contains("not writable"), "{sentence}");
        assert_eq!(block.raw_forward(output.address(), x.address(), 1, ROWS), SolveStatus::BadPointer);
        assert!(message().contains("output at") && message().contains("not writable"), "{}", message());
        solve(x.address(), output.address(), w.address(), ROWS).expect("only read");
        let wanted = reference(&host_x, &host_weights, 1, ROWS, false);
        check_block(&output.read(), &wanted, "of memory for reading only");
        block.update(w.address(), ptr::null_mut::<c_void>()).expect("only read");
        block.forward(&x, &output, 1, ROWS, ptr::null_mut()).expect("only read");
        check_block(&output.read(), &wanted, "a handle of memory for reading only");
    }
    assert!(x.read() == host_x && w.read() == host_weights);
}

/// Memory that is mapped in a part of what is reserved, as segments are that may grow: what is not mapped is not there, and each piece has rights of its own.
pub fn mapped_in_part() {
    const WITHIN: usize = 600;
    const INTO_THE_SECOND: usize = 1000;
    const INTO_THE_THIRD: usize = 1500;
    let w = Memory::of(&weights(45));
    let block = Block::create(w.address(), &options(|_| {})).expect("create");
    let host_x = Random::new(45).uniforms(4 * PIECE / 4);
    let x = Memory::new(Kind::Mapped, 4 * PIECE / 4, 0).with(&host_x);
    let [output, direct] = [0; 2].map(|_| Memory::poisoned(INTO_THE_THIRD * D));
    let guarded = Memory::new(Kind::Mapped, INTO_THE_THIRD * D, 0);
    let bits = |from: usize, to: &Memory, rows: usize| {
        solve(from, to.address(), w.address(), rows).expect("all of it is there");
        to.read()[..rows * D].to_vec()
    };
    let wanted = [WITHIN, INTO_THE_SECOND].map(|rows| bits(Memory::of(&host_x[..rows * D]).address(), &direct, rows));
    unmap_piece(&x, 2);
    make_piece_read_only(&guarded, 1);
    for _ in 0..2 {
        assert!(bits(x.address(), &output, INTO_THE_SECOND) == wanted[1], "two pieces");
        let (status, sentence) =
            solve(x.address(), output.address(), w.address(), INTO_THE_THIRD).expect_err("into a hole");
        let have = format!("x holds {} bytes", 2 * PIECE - 4 * GUARD);
        assert!(status == SolveStatus::InvalidArgument && sentence.contains(&have), "{sentence}");
        let status = block.raw_forward(x.address(), output.address(), 1, INTO_THE_THIRD);
        assert!(status == SolveStatus::InvalidArgument && message().contains(&have), "{}", message());
        // Behind the hole
        bits(x.address() - 4 * GUARD + 3 * PIECE, &output, WITHIN);
        let status =
            solve(x.address() - 4 * GUARD + 2 * PIECE, output.address(), w.address(), 1).expect_err("a hole").0;
        assert!(matches!(status, SolveStatus::BadPointer | SolveStatus::MixedMemory), "{}", message());

        assert!(bits(x.address(), &guarded, WITHIN) == wanted[0], "a piece that may be written");
        let (status, sentence) =
            solve(x.address(), guarded.address(), w.address(), INTO_THE_SECOND).expect_err("one that may not");
        assert!(status == SolveStatus::BadPointer && sentence.contains("not writable"), "{sentence}");
        let status = block.raw_forward(x.address(), guarded.address(), 1, INTO_THE_SECOND);
        assert!(status == SolveStatus::BadPointer && message().contains("not writable"), "{}", message());
    }
}

/// What lies right behind a short buffer is another one: neither read for it nor written.
pub fn short_beside_another() {
    const ROWS: usize = 8;
    const BYTES: usize = 4 * ROWS * D;
    let (x, w) = (Memory::of(&Random::new(44).uniforms(2 * ROWS * D)), Memory::of(&weights(44)));
    let output = Memory::poisoned(2 * ROWS * D);
    // The driver puts small ones into one page, close together.
    let small: Vec<Allocation> = (0..16).map(|_| Allocation::new(BYTES)).collect();
    let mut addresses: Vec<usize> = small.iter().map(|one| one.0).collect();
    addresses.sort_unstable();
    let two = addresses.windows(2).find(|two| two[1] == two[0] + BYTES).expect("two beside each other");
    two.iter().for_each(|&one| poison(one as u64, BYTES));
    let first = two[0];
    for (argument, [x, output, weights]) in [
        ("x", [first, output.address(), w.address()]),
        ("output", [x.address(), first, w.address()]),
        ("weights", [x.address(), output.address(), first]),
    ] {
        let (status, sentence) = solve(x, output, weights, 2 * ROWS).expect_err(argument);
        assert_eq!(status, SolveStatus::InvalidArgument, "{sentence}");
        assert!(sentence.contains(&format!("{argument} holds {BYTES} bytes")), "{sentence}");
    }
    let untouched = |floats: Vec<f32>| floats.iter().all(|value| value.to_bits() == u32::MAX);
    assert!(two.iter().all(|&one| untouched(read_floats(one as u64, ROWS * D))), "one of the two was touched");
    assert!(untouched(output.read()), "output was touched");
}

/// Device memory without guard zones.
struct Allocation(usize);

impl Allocation {
    fn new(bytes: usize) -> Self {
        let mut address = 0;
        // SAFETY: writes one address.
        unsafe { ok(sys::cuMemAlloc_v2(&mut address, bytes)) };
        Self(address as usize)
    }
}

impl Drop for Allocation {
    fn drop(&mut self) {
        // SAFETY: allocated above.
        unsafe { ok(sys::cuMemFree_v2(self.0 as u64)) };
    }
}

pub fn handle_table() {
    use SolveStatus::{BadHandle, BadPointer, InvalidArgument, NoDevice, NullPointer, OutOfMemory};
    let (x, w) = (Memory::of(&Random::new(41).uniforms(D)), Memory::of(&weights(41)));
    let stream: sys::CUstream = ptr::null_mut();
    let create = |change: fn(&mut ffi::SolveOptions)| {
        Block::create(w.address(), &options(change)).map(|_| ()).expect_err("a bad option")
    };
    assert_eq!(create(|o| o.max_tokens = i32::MAX).0, OutOfMemory);
    assert!(message().contains("the workspace of max_tokens = 2147483647"), "{}", message());
    let (status, sentence) =
        Block::create(0x1000, &options(|o| o.max_tokens = i32::MAX)).map(|_| ()).expect_err("both");
    assert_eq!(status, BadPointer, "weights are looked at before memory is taken: {sentence}");
    assert_eq!(create(|o| o.device = 4096).0, NoDevice);
    assert_eq!(create(|o| o.device = -2).0, InvalidArgument);
    assert_eq!(create(|o| o.size -= 1).0, InvalidArgument);
    assert_eq!(create(|o| o.max_tokens = -1).0, InvalidArgument);

    let block = Block::create(w.address(), &options(|o| o.max_tokens = 4)).expect("create");
    assert_eq!(block.raw_forward(x.address(), x.address(), 1, 5), InvalidArgument);
    assert_eq!(block.raw_forward(x.address(), x.address(), 0, 1), InvalidArgument);
    assert_eq!(block.raw_forward(0, x.address(), 1, 1), NullPointer);
    block.forward(&x, &x, 1, 1, ptr::null_mut()).expect("the next good call");
    assert_eq!(Block(ptr::null_mut()).update(w.address(), stream).map_err(|error| error.0), Err(NullPointer));

    // SAFETY: any handle may be destroyed, also twice.
    unsafe {
        assert_eq!(ffi::solve_block_destroy(block.0), SolveStatus::Ok);
        assert_eq!(ffi::solve_block_destroy(block.0), BadHandle);
    }
    assert_eq!(block.raw_forward(x.address(), x.address(), 1, 1), BadHandle);
    solve(x.address(), x.address(), w.address(), 1).expect("the next good call");
    assert_eq!(w.floats, WEIGHTS_LEN);
}
