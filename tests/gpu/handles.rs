//! A handle on memory of every kind, from several threads, and beside a call that waits.

use std::ffi::c_void;
use std::mem::ManuallyDrop;
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use cudarc::driver::sys;
use solve::dims::D;
use solve::error::SolveStatus;
use solve::weights::WEIGHTS_LEN;

use super::api::{Block, message, options, solve};
use super::common::{Random, check_block, reference, weights};
use super::rig::{Captured, Kind, Memory, OwnStream, enter, ok};

/// A handle that somebody else destroys.
fn borrowed(handle: usize) -> ManuallyDrop<Block> {
    ManuallyDrop::new(Block(ptr::with_exposed_provenance_mut(handle)))
}

/// x, output and weights of create, update and forward: off 16 bytes, mapped in pieces, managed, pinned; the bits of aligned device memory, in the caller's
/// graph, too. Weights of the host may be written over as soon as update has returned.
pub fn memory_kinds() {
    let [first, second] = [63u64, 64].map(weights);
    let changed = options(|o| o.max_tokens = 600);
    let plain = Block::create(Memory::of(&second).address(), &changed).expect("create");
    let kinds = [
        (Kind::Device, 4),
        (Kind::Device, 8),
        (Kind::Mapped, 12),
        (Kind::Managed, 0),
        (Kind::Managed, 4),
        (Kind::Pinned, 0),
        (Kind::Pinned, 12),
    ];
    for (kind, offset) in kinds {
        let there = Memory::new(kind, WEIGHTS_LEN, offset).with(&second);
        let created = Block::create(there.address(), &changed).expect("create");
        let updated = Block::create(first.as_ptr().addr(), &changed).expect("create");
        let stream = OwnStream::new();
        updated.update(there.address(), stream.0).expect("update");
        if kind == Kind::Pinned {
            // SAFETY: the host's own memory, which update no longer reads.
            unsafe { ptr::with_exposed_provenance_mut::<f32>(there.address()).write_bytes(0xff, WEIGHTS_LEN) };
        }
        for (batch, seq_len) in [(1, 1), (1, 12), (20, 1), (1, 40), (3, 50), (1, 600)] {
            let what = format!("{batch} x {seq_len} tokens in {kind:?} memory, {offset} bytes off");
            let floats = batch * seq_len * D;
            let host_x = Random::new(floats as u64).uniforms(floats);
            let direct = Memory::poisoned(floats);
            plain.forward(&Memory::of(&host_x), &direct, batch, seq_len, ptr::null_mut()).expect(&what);
            let wanted = direct.read();
            check_block(&wanted, &reference(&host_x, &second, batch, seq_len, false), &what);
            let (x, output) = (Memory::new(kind, floats, offset).with(&host_x), Memory::new(kind, floats, offset));
            for block in [&created, &updated] {
                output.write(&vec![f32::NAN; floats]);
                block.forward(&x, &output, batch, seq_len, stream.0).expect(&what);
                assert!(output.read() == wanted, "{what}");
                output.check_guards();
                block.forward(&x, &x, batch, seq_len, stream.0).expect(&what);
                assert!(x.read() == wanted, "{what}, in place");
                x.check_guards();
                x.write(&host_x);
            }
            if kind != Kind::Pinned {
                let graph = Captured::new(&stream, || {
                    created.forward(&x, &output, batch, seq_len, stream.0).expect(&what);
                });
                output.write(&vec![f32::NAN; floats]);
                graph.launch(&stream);
                assert!(output.read() == wanted, "{what}, captured");
            }
        }
    }
}

/// CU_STREAM_PER_THREAD
const PER_THREAD: usize = 2;

/// Threads that share a handle, each on a stream and with tokens of its own, get what each would get alone, and so do threads that give solve() host memory.
pub fn threads() {
    const CALLS: usize = 40;
    let host_weights = weights(65);
    let block = Block::create(host_weights.as_ptr().addr(), &options(|o| o.max_tokens = 700)).expect("create");
    let (handle, weights_at) = (block.0.expose_provenance(), host_weights.as_ptr().addr());
    let inputs = [1usize, 20, 64, 150, 333, 700].map(|rows| (rows, Random::new(rows as u64).uniforms(rows * D)));
    let alone = inputs.each_ref().map(|(rows, host_x)| {
        let (x, output) = (Memory::of(host_x), Memory::poisoned(host_x.len()));
        block.forward(&x, &output, 1, *rows, ptr::null_mut()).expect("alone");
        let got = output.read();
        check_block(&got, &reference(host_x, &host_weights, 1, *rows, false), "alone");
        got
    });
    thread::scope(|scope| {
        for (number, ((rows, host_x), wanted)) in inputs.iter().zip(&alone).enumerate() {
            scope.spawn(move || {
                enter(0);
                let (block, own) = (borrowed(handle), OwnStream::new());
                let stream = if number % 2 == 0 { own.0 } else { ptr::without_provenance_mut(PER_THREAD) };
                let (x, output) = (Memory::of(host_x), Memory::poisoned(host_x.len()));
                for call in 0..CALLS {
                    output.write(&vec![f32::NAN; host_x.len()]);
                    block.forward(&x, &output, 1, *rows, stream).expect("forward");
                    assert!(output.read() == *wanted, "call {call} on {rows} rows got something else");
                }
            });
        }
        for (rows, host_x) in &inputs[2..5] {
            let host_weights = &host_weights;
            scope.spawn(move || {
                let wanted = reference(host_x, host_weights, 1, *rows, false);
                for call in 0..CALLS / 4 {
                    let mut output = vec![f32::NAN; host_x.len()];
                    let at = output.as_mut_ptr().expose_provenance();
                    solve(host_x.as_ptr().addr(), at, weights_at, *rows).expect("solve");
                    check_block(&output, &wanted, &format!("call {call} of solve() on host memory"));
                }
            });
        }
    });
}

/// Set where a stream may go on.
static GO_ON: AtomicBool = AtomicBool::new(false);

extern "C" fn wait_to_go_on(_: *mut c_void) {
    while !GO_ON.load(Ordering::Acquire) {
        thread::sleep(Duration::from_millis(1));
    }
}

/// While a call of one handle on host memory waits for its stream, another handle's calls are enqueued.
pub fn beside_a_call_that_waits() {
    const ROWS: usize = 64;
    let host_weights = weights(66);
    let host_x = Random::new(66).uniforms(ROWS * D);
    let wanted = reference(&host_x, &host_weights, 1, ROWS, false);
    let create = || Block::create(host_weights.as_ptr().addr(), &options(|_| {})).expect("create");
    let [waiting, other] = [create(), create()];
    let (x, output, streams) = (Memory::of(&host_x), Memory::poisoned(ROWS * D), [OwnStream::new(), OwnStream::new()]);
    // On one stream, so that the other one is new to the library when it comes; and kernels have been loaded, for which the driver waits.
    for block in [&waiting, &other, &waiting, &other] {
        block.forward(&x, &output, 1, ROWS, streams[0].0).expect("forward");
    }
    output.write(&vec![f32::NAN; ROWS * D]);
    let [waiting_at, other_at] = [&waiting, &other].map(|block| block.0.expose_provenance());
    let [first, second] = streams.each_ref().map(|stream| stream.0.expose_provenance());
    let (x_at, output_at) = (x.address(), output.address());
    let (begun, enqueued) = (mpsc::channel(), mpsc::channel());
    // SAFETY: a function that lives, for no data.
    unsafe { ok(sys::cuLaunchHostFunc(streams[0].0, Some(wait_to_go_on), ptr::null_mut())) };
    thread::scope(|scope| {
        let on_host = scope.spawn(|| {
            enter(0);
            let mut output = vec![f32::NAN; ROWS * D];
            begun.0.send(()).expect("somebody listens");
            let stream = ptr::with_exposed_provenance_mut(first);
            let at = output.as_mut_ptr().expose_provenance();
            let status = borrowed(waiting_at).call(host_x.as_ptr().addr(), at, 1, ROWS, stream);
            assert_eq!(status, SolveStatus::Ok, "{}", message());
            output
        });
        begun.1.recv().expect("it begins");
        // It is in the call by then, or this test says nothing.
        thread::sleep(Duration::from_millis(200));
        scope.spawn(|| {
            enter(0);
            let stream = ptr::with_exposed_provenance_mut(second);
            enqueued.0.send(borrowed(other_at).call(x_at, output_at, 1, ROWS, stream)).expect("somebody listens");
        });
        let status = enqueued.1.recv_timeout(Duration::from_secs(10));
        let waits = !on_host.is_finished();
        GO_ON.store(true, Ordering::Release);
        assert_eq!(status, Ok(SolveStatus::Ok), "a call waited for another handle's");
        assert!(waits, "the call on host memory did not wait");
        check_block(&on_host.join().expect("the call on host memory"), &wanted, "on host memory");
    });
    check_block(&output.read(), &wanted, "beside a call that waits");
}
