//! `solve()` and the handle through the C functions: memory kinds, contexts, order, threads, graphs, and what a warm call does not do.

use std::ffi::c_void;
use std::ptr;
use std::thread;

use cudarc::driver::sys;
use solve::cuda::memory::allocations;
use solve::cuda::workspace::Workspace;
use solve::dims::D;
use solve::error::SolveStatus;
use solve::precision::SolvePrecision::{Auto, Exact, Fast};
use solve::weights::WEIGHTS_LEN;

use super::api::{Block, message, options, solve};
use super::common::{Random, check_block, reference, weights};
use super::rig::{Captured, GUARD, Kind, Memory, OwnStream, PIECE, enter, free_bytes, make_writable_from, ok};

/// Device, mapped, managed, pinned and pageable memory give the same result, and the host sees it on return where it can look.
pub fn memory_kinds() {
    let (seq_len, host_weights) = (50, weights(20));
    let host_x = Random::new(20).uniforms(seq_len * D);
    let wanted = reference(&host_x, &host_weights, 1, seq_len, false);
    for kind in [Kind::Device, Kind::Mapped, Kind::Managed, Kind::Pinned] {
        let x = Memory::new(kind, host_x.len(), 0).with(&host_x);
        let weights = Memory::new(kind, WEIGHTS_LEN, 0).with(&host_weights);
        let output = Memory::new(kind, host_x.len(), 0);
        solve(x.address(), output.address(), weights.address(), seq_len).expect("solve");
        if matches!(kind, Kind::Device | Kind::Mapped) {
            check_block(&output.read(), &wanted, &format!("{kind:?} memory"));
        } else {
            // SAFETY: the host may look at this memory, and solve has returned.
            let seen = unsafe { std::slice::from_raw_parts(output.address() as *const f32, host_x.len()) };
            check_block(seen, &wanted, &format!("{kind:?} memory"));
        }
        output.check_guards();
    }
    let mut output = vec![f32::NAN; host_x.len()];
    let addresses = [host_x.as_ptr().addr(), output.as_mut_ptr().addr(), host_weights.as_ptr().addr()];
    solve(addresses[0], addresses[1], addresses[2], seq_len).expect("solve");
    check_block(&output, &wanted, "pageable memory");
}

/// Managed memory beside device memory is served in place.
pub fn managed_beside_device() {
    let (seq_len, host_weights) = (9, weights(21));
    let host_x = Random::new(21).uniforms(seq_len * D);
    let x = Memory::new(Kind::Managed, host_x.len(), 0).with(&host_x);
    let (weights, output) = (Memory::of(&host_weights), Memory::new(Kind::Managed, host_x.len(), 0));
    solve(x.address(), output.address(), weights.address(), seq_len).expect("solve");
    check_block(&output.read(), &reference(&host_x, &host_weights, 1, seq_len, false), "managed beside device");
}

/// Memory that was allocated in another context of the device than its primary one is served, too, whichever of them is current.
pub fn memory_of_another_context() {
    let (seq_len, host_weights) = (40, weights(19));
    let host_x = Random::new(19).uniforms(seq_len * D);
    let wanted = reference(&host_x, &host_weights, 1, seq_len, false);
    let primary = enter(0);
    let mut other = ptr::null_mut();
    // SAFETY: writes one context, which becomes current; destroyed below.
    unsafe { ok(sys::cuCtxCreate_v2(&mut other, 0, 0)) };
    let (x, weights, output) = (Memory::of(&host_x), Memory::of(&host_weights), Memory::poisoned(seq_len * D));
    for current in [other, primary] {
        // SAFETY: contexts that live.
        let wait = || unsafe {
            for context in [primary, other] {
                ok(sys::cuCtxSetCurrent(context));
                ok(sys::cuCtxSynchronize());
            }
        };
        output.write(&vec![f32::NAN; seq_len * D]);
        wait();
        // SAFETY: as above.
        unsafe { ok(sys::cuCtxSetCurrent(current)) };
        solve(x.address(), output.address(), weights.address(), seq_len).expect("solve");
        wait();
        check_block(&output.read(), &wanted, "of another context");
    }
    drop((x, weights, output));
    // SAFETY: contexts that live, of one of which nothing is left.
    unsafe {
        ok(sys::cuCtxSetCurrent(primary));
        ok(sys::cuCtxDestroy_v2(other));
    }
}

/// A thread's own context, or none at all, is what it was before the call.
pub fn context_is_restored() {
    let host_weights = weights(22);
    let (weights, x) = (Memory::of(&host_weights), Memory::of(&Random::new(22).uniforms(D)));
    let addresses = (x.address(), weights.address());
    thread::spawn(move || {
        let mut context = ptr::null_mut();
        // SAFETY: one context, made and destroyed here.
        unsafe {
            ok(sys::cuCtxGetCurrent(&mut context));
            assert!(context.is_null(), "a new thread has no context");
            solve(addresses.0, addresses.0, addresses.1, 1).expect("without a context");
            ok(sys::cuCtxGetCurrent(&mut context));
            assert!(context.is_null(), "solve left a context behind");

            let (mut own, mut after) = (ptr::null_mut(), ptr::null_mut());
            ok(sys::cuCtxCreate_v2(&mut own, 0, 0));
            solve(addresses.0, addresses.0, addresses.1, 1).expect("under another context");
            ok(sys::cuCtxGetCurrent(&mut after));
            assert_eq!(own, after, "solve changed the context");
            ok(sys::cuCtxDestroy_v2(own));
        }
    })
    .join()
    .expect("the thread");
}

/// Calls and copies enqueued one after the other without waiting happen in that order, and weights rewritten in place are seen.
pub fn order() {
    let (seq_len, first, second) = (256, weights(23), weights(24));
    let host_x = Random::new(23).uniforms(seq_len * D);
    let (x, weights) = (Memory::of(&host_x), Memory::of(&first));
    let (second_there, out_1, out_2) =
        (Memory::of(&second), Memory::poisoned(host_x.len()), Memory::poisoned(host_x.len()));
    let bytes = 4 * WEIGHTS_LEN;
    solve(x.address(), out_1.address(), weights.address(), seq_len).expect("first");
    // SAFETY: whole buffers, on the legacy stream.
    unsafe { ok(sys::cuMemcpyDtoDAsync_v2(weights.at(), second_there.at(), bytes, ptr::without_provenance_mut(1))) };
    solve(x.address(), out_2.address(), weights.address(), seq_len).expect("second");
    check_block(&out_1.read(), &reference(&host_x, &first, 1, seq_len, false), "with the first weights");
    check_block(&out_2.read(), &reference(&host_x, &second, 1, seq_len, false), "with the second weights");
}

/// Eight threads on their own data get what they would get alone.
pub fn threads() {
    let host_weights = weights(25);
    let weights = Memory::of(&host_weights);
    let weights_at = weights.address();
    thread::scope(|scope| {
        for index in 0..8usize {
            scope.spawn(move || {
                enter(0);
                let seq_len = [1, 30, 64, 100, 128, 200, 256, 333][index];
                let host_x = Random::new(index as u64).uniforms(seq_len * D);
                let (x, output) = (Memory::of(&host_x), Memory::poisoned(host_x.len()));
                solve(x.address(), output.address(), weights_at, seq_len).expect("alone or not");
                let first = output.read();
                for _ in 0..40 {
                    output.write(&vec![f32::NAN; host_x.len()]);
                    solve(x.address(), output.address(), weights_at, seq_len).expect("solve");
                    assert!(output.read() == first, "thread {index} got something else");
                }
            });
        }
    });
}

/// A warm call allocates nothing, and the workspace stays in its bounds.
pub fn warm_calls_allocate_nothing() {
    let (seq_len, host_weights) = (2048, weights(26));
    let (weights, x) = (Memory::of(&host_weights), Memory::of(&Random::new(26).uniforms(seq_len * D)));
    let output = Memory::poisoned(seq_len * D);
    let call = |seq_len| solve(x.address(), output.address(), weights.address(), seq_len).expect("solve");
    call(1);
    let small = free_bytes();
    // Once plainly, once as a graph.
    for seq_len in [seq_len, 77, seq_len, 77] {
        call(seq_len);
    }
    let (free, count) = (free_bytes(), allocations());
    assert!(small - free.min(small) <= Workspace::bytes(seq_len) + (4 << 20), "{} bytes more", small - free);
    for _ in 0..20 {
        call(seq_len);
        call(77);
    }
    assert_eq!((free_bytes(), allocations()), (free, count));

    // Through the scratch, as misaligned x goes, which grows in steps.
    let misaligned = |seq_len| solve(x.address() + 4, output.address(), weights.address(), seq_len).expect("solve");
    misaligned(513);
    let count = allocations();
    for seq_len in [514, 1, 700, 1024] {
        misaligned(seq_len);
    }
    assert_eq!(allocations(), count, "of 513 to 1024 misaligned tokens");

    let block = Block::create(weights.address(), &options(|o| o.max_tokens = 512)).expect("create");
    for seq_len in [1, 512, 100, 1, 512, 100] {
        block.forward(&x, &output, 1, seq_len, ptr::null_mut()).expect("forward");
    }
    let (free, count) = (free_bytes(), allocations());
    for seq_len in [1, 512, 100] {
        block.forward(&x, &output, 1, seq_len, ptr::null_mut()).expect("forward");
    }
    assert_eq!((free_bytes(), allocations()), (free, count));
    drop(block);
    assert!(free_bytes() > free, "destroy frees");
}

/// The handle on the caller's streams: calls on several of them run in order; update takes its place among them.
pub fn handle_streams() {
    let (seq_len, first, second) = (700, weights(27), weights(28));
    let host_x = Random::new(27).uniforms(seq_len * D);
    let (x, second_there) = (Memory::of(&host_x), Memory::of(&second));
    let block = Block::create(first.as_ptr().addr(), &options(|_| {})).expect("create from host weights");
    let streams = [OwnStream::new(), OwnStream::new(), OwnStream::new()];
    let before: Vec<Memory> = streams.iter().map(|_| Memory::poisoned(host_x.len())).collect();
    let after: Vec<Memory> = streams.iter().map(|_| Memory::poisoned(host_x.len())).collect();
    for (stream, output) in streams.iter().zip(&before) {
        block.forward(&x, output, 1, seq_len, stream.0).expect("forward");
    }
    block.update(second_there.address(), streams[1].0).expect("update");
    for (stream, output) in streams.iter().zip(&after) {
        block.forward(&x, output, 1, seq_len, stream.0).expect("forward");
    }
    let wanted = [&first, &second].map(|weights| reference(&host_x, weights, 1, seq_len, false));
    for (outputs, wanted) in [before, after].iter().zip(&wanted) {
        for output in outputs {
            check_block(&output.read(), wanted, "forward on one of three streams");
        }
    }
}

/// Handles and solve() share a stream, whose calls need not expect each other, until some come on other streams while those still run, and some from a graph;
/// and then all that again.
pub fn a_second_stream_later() {
    const CALLS: usize = 16;
    let host_weights = weights(31);
    let weights = Memory::of(&host_weights);
    let rows = [200usize, 400, 1000, 700];
    let xs = rows.map(|rows| Memory::of(&Random::new(rows as u64).uniforms(rows * D)));
    let outputs = || rows.map(|rows| (0..CALLS).map(|_| Memory::poisoned(rows * D)).collect::<Vec<_>>());
    let wanted: Vec<Vec<f32>> = (0..rows.len())
        .map(|i| {
            let output = Memory::poisoned(rows[i] * D);
            solve(xs[i].address(), output.address(), weights.address(), rows[i]).expect("solve alone");
            output.read()
        })
        .collect();
    let mut blocks = Vec::new();
    let create = || Block::create(weights.address(), &options(|o| o.max_tokens = 1000)).expect("create");
    blocks.extend(rows.map(|_| create()));
    let streams = rows.map(|_| OwnStream::new());
    for (round, again) in [(0, false), (0, true), (1, false), (1, true), (2, false), (2, true), (3, false)] {
        // Who comes newly lets all begin again with one stream; so do many calls on the shared one, once.
        if !again {
            blocks[round] = create();
        }
        let [together, apart, solved, beside] = [outputs(), outputs(), outputs(), outputs()];
        let legacy = ptr::null_mut();
        for call in 0..CALLS {
            for (i, block) in blocks.iter().enumerate() {
                block.forward(&xs[i], &together[i][call], 1, rows[i], legacy).expect("on the shared stream");
            }
            let i = call % rows.len();
            solve(xs[i].address(), solved[i][call].address(), weights.address(), rows[i]).expect("solve");
        }
        let captured = (round == 3).then(|| {
            let output = &apart[0][0];
            Captured::new(&streams[0], || blocks[0].forward(&xs[0], output, 1, rows[0], streams[0].0).expect("capture"))
        });
        for call in 0..CALLS {
            for (i, block) in blocks.iter().enumerate() {
                match &captured {
                    Some(captured) if i == 0 => captured.launch(&streams[0]),
                    _ => block.forward(&xs[i], &apart[i][call], 1, rows[i], streams[i].0).expect("on its own stream"),
                }
            }
            let i = call % rows.len();
            solve(xs[i].address(), beside[i][call].address(), weights.address(), rows[i]).expect("solve beside them");
        }
        for (i, wanted) in wanted.iter().enumerate() {
            let first = together[i][0].read();
            check_block(&first, wanted, "a handle against solve()");
            let launches = if captured.is_some() && i == 0 { 1 } else { CALLS };
            let handles = together[i].iter().chain(&apart[i][..launches]);
            assert!(handles.into_iter().all(|output| output.read() == first), "{} rows, round {round}", rows[i]);
            let calls = (i..CALLS).step_by(rows.len());
            let mut solves = calls.flat_map(|call| [solved[i][call].read(), beside[i][call].read()]);
            assert!(solves.all(|output| output == *wanted), "solve() of {} rows, round {round}", rows[i]);
        }
    }
}

/// Calls of few tokens begin while what is in front of them ends: chains of them, each on what the one before has written, by two blocks in turn, with copies
/// and an update in between. With those on the legacy stream copies on a stream that waits for it, and for which it waits, come late.
pub fn close_behind() {
    const CALLS: usize = 60;
    let bulk = Memory::poisoned(1 << 26);
    let host_weights = [weights(34), weights(35)];
    let memories = host_weights.each_ref().map(|weights| Memory::of(weights));
    for (rows, precision) in [1usize, 6, 15, 30].into_iter().flat_map(|rows| [(rows, Fast), (rows, Exact)]) {
        let create = |weights: &Memory| {
            let changed = options(|o| (o.precision, o.max_tokens) = (precision, rows as i32));
            Block::create(weights.address(), &changed).expect("create")
        };
        let host_x = Random::new(rows as u64).uniforms(rows * D);
        let chain = |blocks: &[Block; 2], stream: sys::CUstream, copies: sys::CUstream, waits: bool| {
            let places = [Memory::of(&host_x), Memory::poisoned(host_x.len())];
            let mut at = 0;
            for call in 0..CALLS {
                let (from, to) = (&places[at], &places[call / 3 % 2]);
                blocks[call / 5 % 2].forward(from, to, 1, rows, stream).expect("forward");
                at = call / 3 % 2;
                if call % 7 == 6 {
                    let (from, to) = (places[at].at(), places[1 - at].at());
                    // SAFETY: whole buffers.
                    unsafe {
                        if copies != stream {
                            ok(sys::cuMemsetD32Async(bulk.at(), call as u32, 1 << 26, copies));
                        }
                        ok(sys::cuMemcpyDtoDAsync_v2(to, from, 4 * host_x.len(), copies));
                    }
                    at = 1 - at;
                }
                if call == CALLS / 2 {
                    blocks[0].update(memories[1].address(), stream).expect("update");
                    blocks[1].update(memories[0].address(), stream).expect("update");
                }
                if waits {
                    // SAFETY: a live stream.
                    unsafe { ok(sys::cuStreamSynchronize(stream)) };
                }
            }
            places[at].read()
        };
        let (own, blocking, legacy) = (OwnStream::new(), OwnStream::blocking(), ptr::without_provenance_mut(1));
        let (x, output) = (Memory::of(&host_x), Memory::poisoned(host_x.len()));
        create(&memories[0]).forward(&x, &output, 1, rows, own.0).expect("forward");
        check_block(&output.read(), &reference(&host_x, &host_weights[0], 1, rows, false), "a single call");
        let wanted = chain(&[create(&memories[0]), create(&memories[1])], own.0, own.0, true);
        for (stream, copies) in [(own.0, own.0), (legacy, legacy), (legacy, blocking.0)] {
            let blocks = [create(&memories[0]), create(&memories[1])];
            assert!(chain(&blocks, stream, copies, false) == wanted, "{rows} rows in {precision:?}");
        }
    }
}

/// The same of `solve()`, whose weights are written over by a copy in between.
pub fn solve_close_behind() {
    const CALLS: usize = 60;
    let memories = [36, 37].map(|seed| Memory::of(&weights(seed)));
    for rows in [1, 2, 6, 15, 30] {
        let host_x = Random::new(rows as u64).uniforms(rows * D);
        let chain = |others: usize, waits: bool| {
            let used = Memory::poisoned(WEIGHTS_LEN);
            let places = [Memory::of(&host_x), Memory::poisoned(host_x.len())];
            let mut at = 0;
            for call in 0..CALLS {
                if call % 20 == 0 {
                    let from = memories[call / 20 % 2 * others].at();
                    // SAFETY: whole buffers; on the legacy stream, as solve() is.
                    unsafe {
                        ok(sys::cuMemcpyDtoDAsync_v2(used.at(), from, 4 * WEIGHTS_LEN, ptr::without_provenance_mut(1)))
                    };
                }
                let (from, to) = (&places[at], &places[call / 3 % 2]);
                solve(from.address(), to.address(), used.address(), rows).expect("solve");
                at = call / 3 % 2;
                if waits {
                    // SAFETY: no arguments to get wrong.
                    unsafe { ok(sys::cuCtxSynchronize()) };
                }
            }
            places[at].read()
        };
        let wanted = chain(1, true);
        assert!(wanted != chain(0, true), "{rows} rows: the other weights change nothing");
        assert!(chain(1, false) == wanted, "{rows} rows");
    }
}

/// A forward captured into a graph gives, launched again and again, the bits of a direct call on what the buffers then hold, and so it does on memory that is
/// mapped in pieces.
pub fn graph_capture() {
    let (seq_len, host_weights) = (130, weights(29));
    let floats = seq_len * D;
    let inputs = [1u64, 2].map(|seed| Random::new(seed).uniforms(floats));
    let block = Block::create(host_weights.as_ptr().addr(), &options(|o| o.causal = 1)).expect("create");
    let (stream, direct) = (OwnStream::new(), Memory::poisoned(floats));
    for kind in [Kind::Device, Kind::Mapped] {
        // Half of it lies in front of the end of a piece.
        let [x, captured] = [0; 2].map(|_| Memory::new(kind, floats, PIECE - 4 * (GUARD + floats / 2)));
        let graph = Captured::new(&stream, || block.forward(&x, &captured, 1, seq_len, stream.0).expect("capture"));
        for input in &inputs {
            x.write(input);
            block.forward(&x, &direct, 1, seq_len, ptr::null_mut()).expect("direct");
            let wanted = direct.read();
            graph.launch(&stream);
            // SAFETY: a live stream.
            unsafe { ok(sys::cuStreamSynchronize(stream.0)) };
            assert!(captured.read() == wanted, "{kind:?}: the graph gives other bits");
            captured.check_guards();
        }
    }
}

extern "C" fn do_nothing(_: *mut c_void) {}

/// Captured calls of several blocks, behind a copy, a memset and a function of the host's, behind each other, side by side, and behind two calls at once: a
/// call may begin while what is in front of it ends, but finds what that has written.
pub fn captured_in_turn() {
    let host_weights = [30u64, 31, 32].map(weights);
    let blocks_of = |precision| {
        let changed = options(|o| (o.precision, o.max_tokens) = (precision, 600));
        host_weights.each_ref().map(|weights| Block::create(weights.as_ptr().addr(), &changed).expect("create"))
    };
    let precisions = [Fast, Auto, Exact].map(|precision| (precision, blocks_of(precision)));
    let (stream, side) = (OwnStream::new(), OwnStream::new());
    let events = [(); 2].map(|()| {
        let mut event = ptr::null_mut();
        // SAFETY: writes one event, destroyed below.
        unsafe { ok(sys::cuEventCreate(&mut event, sys::CUevent_flags_enum::CU_EVENT_DISABLE_TIMING as u32)) };
        event
    });
    let shapes = [(1, 1), (1, 5), (1, 16), (1, 30), (20, 1), (48, 1), (1, 40), (1, 130), (1, 600)];
    for ((precision, blocks), (batch, seq_len)) in precisions.iter().flat_map(|of| shapes.map(|shape| (of, shape))) {
        let floats = batch * seq_len * D;
        let inputs = [1u64, 2].map(|seed| Random::new(seed).uniforms(floats));
        let [given, x, y, z, beside, last] = [(); 6].map(|()| Memory::poisoned(floats));
        let call = |block: usize, from: &Memory, to: &Memory, stream| {
            blocks[block].forward(from, to, batch, seq_len, stream).expect("forward");
        };
        let wanted = inputs.each_ref().map(|input| {
            let steps = [(0, &x, &y), (1, &y, &y), (2, &y, &beside), (0, &y, &z), (1, &z, &last), (2, &beside, &z)];
            x.write(input);
            for (block, from, to) in steps {
                call(block, from, to, ptr::null_mut());
                to.read();
            }
            [last.read(), z.read()]
        });
        let graph = Captured::new(&stream, || {
            // SAFETY: memory of this size.
            unsafe { ok(sys::cuMemcpyDtoDAsync_v2(x.at(), given.at(), 4 * floats, stream.0)) };
            let follow = |event, of: &OwnStream, by: &OwnStream| {
                // SAFETY: an event and streams that live.
                unsafe {
                    ok(sys::cuEventRecord(event, of.0));
                    ok(sys::cuStreamWaitEvent(by.0, event, 0));
                }
            };
            call(0, &x, &y, stream.0);
            // SAFETY: memory of this size, written by a call further on.
            unsafe { ok(sys::cuMemsetD32Async(z.at(), u32::MAX, floats, stream.0)) };
            call(1, &y, &y, stream.0);
            follow(events[0], &stream, &side);
            call(2, &y, &beside, side.0);
            call(0, &y, &z, stream.0);
            follow(events[1], &side, &stream);
            call(1, &z, &last, stream.0);
            // SAFETY: a function that lives, for no data.
            unsafe { ok(sys::cuLaunchHostFunc(stream.0, Some(do_nothing), ptr::null_mut())) };
            call(2, &beside, &z, stream.0);
        });
        for round in 0..6 {
            given.write(&inputs[round % 2]);
            graph.launch(&stream);
            let right = [last.read(), z.read()] == wanted[round % 2];
            assert!(right, "round {round} of {batch} x {seq_len} tokens in {precision:?}");
        }
    }
    // SAFETY: created above, in no graph that is still there.
    events.iter().for_each(|&event| unsafe { ok(sys::cuEventDestroy_v2(event)) });
}

/// Calls of one block on streams of a capture that fork: the block has them one after the other all the same, and an update in its place, also where another
/// capture takes a call of it meanwhile.
pub fn captured_side_by_side() {
    let host_weights = [33u64, 34].map(weights);
    let others = Memory::of(&host_weights[1]);
    let (stream, side, elsewhere) = (OwnStream::new(), OwnStream::new(), OwnStream::new());
    let mut event = ptr::null_mut();
    // SAFETY: writes one event, destroyed below.
    unsafe { ok(sys::cuEventCreate(&mut event, sys::CUevent_flags_enum::CU_EVENT_DISABLE_TIMING as u32)) };
    let follow = |of: &OwnStream, by: &OwnStream| {
        // SAFETY: an event and streams that live.
        unsafe {
            ok(sys::cuEventRecord(event, of.0));
            ok(sys::cuStreamWaitEvent(by.0, event, 0));
        }
    };
    for rows in [12, 30, 64, 200, 600] {
        let block = Block::create(host_weights[0].as_ptr().addr(), &options(|o| o.max_tokens = 600)).expect("create");
        let inputs = [1u64, 2, 3, 4].map(|seed| Random::new(seed).uniforms(rows * D));
        let xs = inputs.each_ref().map(|input| Memory::of(input));
        let outputs = [(); 4].map(|()| Memory::poisoned(rows * D));
        let capture_elsewhere = || {
            let mut other = ptr::null_mut();
            // SAFETY: one capture on a stream of this thread; its graph is run by nobody.
            unsafe {
                ok(sys::cuStreamBeginCapture_v2(
                    elsewhere.0,
                    sys::CUstreamCaptureMode_enum::CU_STREAM_CAPTURE_MODE_GLOBAL,
                ));
                block.forward(&xs[0], &outputs[0], 1, rows, elsewhere.0).expect("forward in another capture");
                ok(sys::cuStreamEndCapture(elsewhere.0, &mut other));
                ok(sys::cuGraphDestroy(other));
            }
        };
        let graph = Captured::new(&stream, || {
            let call = |index: usize, on: &OwnStream| {
                block.forward(&xs[index], &outputs[index], 1, rows, on.0).expect("forward");
            };
            follow(&stream, &side);
            call(0, &stream);
            capture_elsewhere();
            call(1, &side);
            call(2, &stream);
            block.update(others.address(), side.0).expect("update");
            capture_elsewhere();
            call(3, &stream);
            follow(&side, &stream);
        });
        for round in 0..3 {
            block.update(host_weights[0].as_ptr().addr(), stream.0).expect("update");
            outputs.iter().for_each(|output| output.write(&vec![f32::NAN; rows * D]));
            graph.launch(&stream);
            for (index, (input, output)) in inputs.iter().zip(&outputs).enumerate() {
                let wanted = reference(input, &host_weights[index / 3], 1, rows, false);
                check_block(&output.read(), &wanted, &format!("call {index} of {rows} rows in round {round}"));
            }
        }
    }
    // SAFETY: created above, in no graph that is still there.
    unsafe { ok(sys::cuEventDestroy_v2(event)) };
}

/// Calls of one block that are captured into one graph one capture after the other run one after the other.
pub fn captured_into_one_graph() {
    let block = Block::create(weights(35).as_ptr().addr(), &options(|o| o.max_tokens = 600)).expect("create");
    let (stream, other) = (OwnStream::new(), OwnStream::new());
    for (rows, second) in [12, 64, 200, 600].into_iter().flat_map(|rows| [(rows, &stream), (rows, &other)]) {
        let [x, y, z, direct] = [(); 4].map(|()| Memory::poisoned(rows * D));
        let (mut graph, mut executable) = (ptr::null_mut(), ptr::null_mut());
        // SAFETY: writes one graph, destroyed below.
        unsafe { ok(sys::cuGraphCreate(&mut graph, 0)) };
        for (on, from, to) in [(&stream, &x, &y), (second, &y, &z)] {
            let (mode, nothing) = (sys::CUstreamCaptureMode_enum::CU_STREAM_CAPTURE_MODE_GLOBAL, ptr::null());
            let mut into = ptr::null_mut();
            // SAFETY: one capture on a stream of this thread, which follows nothing.
            unsafe {
                ok(sys::cuStreamBeginCaptureToGraph(on.0, graph, nothing, ptr::null(), 0, mode));
                block.forward(from, to, 1, rows, on.0).expect("capture");
                ok(sys::cuStreamEndCapture(on.0, &mut into));
            }
            assert_eq!(into, graph);
        }
        // SAFETY: writes one executable, destroyed below.
        unsafe { ok(sys::cuGraphInstantiateWithFlags(&mut executable, graph, 0)) };
        for seed in 0..20 {
            x.write(&Random::new(seed).uniforms(rows * D));
            block.forward(&x, &direct, 1, rows, ptr::null_mut()).expect("direct");
            block.forward(&direct, &direct, 1, rows, ptr::null_mut()).expect("direct");
            let wanted = direct.read();
            [&y, &z].into_iter().for_each(|memory| memory.write(&vec![f32::NAN; rows * D]));
            // SAFETY: the graph's buffers live.
            unsafe { ok(sys::cuGraphLaunch(executable, stream.0)) };
            assert!(z.read() == wanted, "{rows} rows, round {seed}");
        }
        // SAFETY: nobody launches it any more.
        unsafe {
            ok(sys::cuGraphExecDestroy(executable));
            ok(sys::cuGraphDestroy(graph));
        }
    }
}

/// The handle serves host memory too, and waits for it.
pub fn handle_on_host_memory() {
    let (batch, seq_len, host_weights) = (2, 40, weights(30));
    let host_x = Random::new(30).uniforms(batch * seq_len * D);
    let block = Block::create(host_weights.as_ptr().addr(), &options(|_| {})).expect("create");
    let mut output = vec![f32::NAN; host_x.len()];
    let status = block.raw_forward(host_x.as_ptr().addr(), output.as_mut_ptr().addr(), batch, seq_len);
    assert_eq!(status, SolveStatus::Ok, "{}", message());
    check_block(&output, &reference(&host_x, &host_weights, batch, seq_len, false), "host memory");
}

/// What another GPU may write, and is current, the memory's own may not.
pub fn writable_from_another_device() {
    let (rows, host_weights) = (33, weights(32));
    let (x, weights) = (Memory::of(&Random::new(32).uniforms(rows * D)), Memory::of(&host_weights));
    let output = Memory::new(Kind::Mapped, rows * D, 0);
    make_writable_from(1, &output);
    let block = Block::create(weights.address(), &options(|_| {})).expect("create");
    enter(1);
    let (status, sentence) = solve(x.address(), output.address(), weights.address(), rows).expect_err("solve");
    assert_eq!(status, SolveStatus::BadPointer, "{sentence}");
    assert_eq!(block.raw_forward(x.address(), output.address(), 1, rows), SolveStatus::BadPointer);
    assert!(message().contains("output at") && message().contains("not writable"), "{}", message());
    enter(0);
}

/// A second GPU serves its own memory while the first is current; a block refuses memory of another GPU.
pub fn second_device() {
    let (seq_len, host_weights) = (33, weights(31));
    let host_x = Random::new(31).uniforms(seq_len * D);
    let first = Memory::of(&host_x);
    enter(1);
    let (x, weights) = (Memory::of(&host_x), Memory::of(&host_weights));
    let output = Memory::poisoned(host_x.len());
    let context = enter(0);
    solve(x.address(), output.address(), weights.address(), seq_len).expect("solve on the second device");
    let block = Block::create(weights.address(), &options(|_| {})).expect("create on the second device");
    for row in [0, 1] {
        let output_at = first.address() + 4 * D * row;
        assert_eq!(block.raw_forward(first.address(), output_at, 1, 1), SolveStatus::MixedMemory);
        assert_eq!(message(), "x is on device 0, but the block is on device 1");
    }
    assert!(solve(x.address(), first.address(), weights.address(), 1).is_err(), "two devices in one call");
    block.forward(&x, &x, 1, seq_len, ptr::null_mut()).expect("forward on the second device");
    let mut now = ptr::null_mut();
    // SAFETY: writes one pointer.
    unsafe { ok(sys::cuCtxGetCurrent(&mut now)) };
    assert_eq!(now, context, "the first device's context is still current");
    enter(1);
    let wanted = reference(&host_x, &host_weights, 1, seq_len, false);
    check_block(&output.read(), &wanted, "solve on the second device");
    check_block(&x.read(), &wanted, "forward on the second device");
    drop((x, weights, output, block));
    enter(0);
}
