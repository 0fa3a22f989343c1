//! Handles that come and go while others are at work, streams that have too little of the device, and a device without memory.

use std::ptr;
use std::thread;

use cudarc::driver::sys;
use solve::dims::D;
use solve::error::SolveStatus;

use super::api::{Block, message, options, solve};
use super::common::{Random, check_block, reference, weights};
use super::rig::{Captured, FewMultiprocessors, Memory, OwnStream, enter, free_bytes, ok};

const ROWS: usize = 200;

fn wait_for(stream: &OwnStream) {
    // SAFETY: a live stream that nobody captures.
    unsafe { ok(sys::cuStreamSynchronize(stream.0)) };
}

/// While one thread captures, another creates a block, updates it from the host, runs it for the first time and destroys it, and the one that captures destroys
/// one, too: none of it spoils the capture.
pub fn beside_a_capture() {
    let host_weights = weights(36);
    let host_x = Random::new(36).uniforms(ROWS * D);
    let (weights, x, other) = (Memory::of(&host_weights), Memory::of(&host_x), Memory::of(&host_x[..D]));
    let (output, stream, own) = (Memory::poisoned(ROWS * D), OwnStream::new(), OwnStream::new());
    let create = || Block::create(weights.address(), &options(|_| {})).expect("create");
    let (captured, unwanted, in_a_graph) = (create(), create(), create());
    let before = Memory::poisoned(ROWS * D);
    let its_graph = Captured::new(&own, || in_a_graph.forward(&x, &before, 1, ROWS, own.0).expect("capture"));
    its_graph.launch(&own);
    let graph = Captured::new(&stream, || {
        captured.forward(&x, &output, 1, ROWS, stream.0).expect("capture");
        drop((unwanted, in_a_graph));
        let (weights_at, other_at, host_at) = (weights.address(), other.address(), host_weights.as_ptr().addr());
        let own_at = own.0.expose_provenance();
        let creating = thread::spawn(move || {
            enter(0);
            let own: sys::CUstream = ptr::with_exposed_provenance_mut(own_at);
            let block = Block::create(weights_at, &options(|_| {})).expect("create beside a capture");
            block.update(host_at, own).expect("update beside a capture");
            for _ in 0..3 {
                let status = block.call(other_at, other_at, 1, 1, own.cast());
                assert_eq!(status, SolveStatus::Ok, "{}", message());
            }
        });
        creating.join().expect("the other thread");
    });
    wait_for(&own);
    graph.launch(&stream);
    wait_for(&stream);
    let wanted = reference(&host_x, &host_weights, 1, ROWS, false);
    check_block(&output.read(), &wanted, "captured");
    check_block(&before.read(), &wanted, "of a block that was destroyed then");
}

/// A call that is to fail.
type Refused<'a> = &'a dyn Fn() -> Result<(), SolveStatus>;

/// What cannot be captured is refused. Of host memory nothing gets into the graph, which is none the worse; what needs the legacy stream while a stream that
/// waits for it is captured works again when that is over.
pub fn refused_captures() {
    let host_weights = weights(37);
    let host_x = Random::new(37).uniforms(ROWS * D);
    let (weights, x, output) = (Memory::of(&host_weights), Memory::of(&host_x), Memory::poisoned(ROWS * D));
    let wanted = reference(&host_x, &host_weights, 1, ROWS, false);
    let block = Block::create(weights.address(), &options(|_| {})).expect("create");
    let (stream, mut host_output) = (OwnStream::new(), vec![1.0f32; ROWS * D]);
    let host_output_at = host_output.as_mut_ptr().expose_provenance();
    let graph = Captured::new(&stream, || {
        let status = block.call(host_x.as_ptr().addr(), host_output_at, 1, ROWS, stream.0.cast());
        assert_eq!(status, SolveStatus::Unsupported, "{}", message());
        assert!(message().contains("x and output are on the host"), "{}", message());
        let (status, sentence) = block.update(host_weights.as_ptr().addr(), stream.0).expect_err("host weights");
        assert_eq!(status, SolveStatus::Unsupported, "{sentence}");
        assert!(sentence.contains("weights are on the host"), "{sentence}");
        block.forward(&x, &output, 1, ROWS, stream.0).expect("capture");
    });
    graph.launch(&stream);
    wait_for(&stream);
    check_block(&output.read(), &wanted, "captured behind refused calls");
    assert!(host_output.iter().all(|&value| value == 1.0), "host output was written");

    let blocking = OwnStream::blocking();
    let legacy: sys::CUstream = ptr::null_mut();
    let solve_of = |rows| solve(x.address(), output.address(), weights.address(), rows);
    let status_of = |outcome: Result<(), (SolveStatus, String)>| outcome.map_err(|(status, _)| status);
    let refused: [(&str, Refused); 5] = [
        ("solve", &|| status_of(solve_of(ROWS))),
        ("solve of one token", &|| status_of(solve_of(1))),
        ("create", &|| status_of(Block::create(weights.address(), &options(|_| {})).map(|_| ()))),
        ("forward", &|| match block.raw_forward(x.address(), output.address(), 1, ROWS) {
            SolveStatus::Ok => Ok(()),
            status => Err(status),
        }),
        ("update", &|| status_of(block.update(weights.address(), legacy))),
    ];
    for (name, call) in refused {
        // SAFETY: one capture on one stream, whatever has become of it.
        unsafe {
            ok(sys::cuStreamBeginCapture_v2(blocking.0, sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED));
            assert_eq!(call(), Err(SolveStatus::Driver), "{name} beside a blocking stream's capture: {}", message());
            let mut graph = ptr::null_mut();
            if sys::cuStreamEndCapture(blocking.0, &mut graph) == sys::CUresult::CUDA_SUCCESS {
                ok(sys::cuGraphDestroy(graph));
            }
        }
        // Where an update has failed half-way the next one mends it.
        block.update(weights.address(), legacy).expect("update");
        for solved in [false, true] {
            output.write(&vec![f32::NAN; ROWS * D]);
            match solved {
                true => solve_of(ROWS).expect("solve"),
                false => block.forward(&x, &output, 1, ROWS, legacy).expect("forward"),
            }
            check_block(&output.read(), &wanted, &format!("behind a refused {name}"));
        }
    }
}

/// A block is gone when its captured work is, and others run as before.
pub fn destroy_behind_a_graph() {
    const LAUNCHES: usize = 300;
    let host_weights = weights(37);
    let host_x = Random::new(37).uniforms(ROWS * D);
    let wanted = reference(&host_x, &host_weights, 1, ROWS, false);
    let (weights, x) = (Memory::of(&host_weights), Memory::of(&host_x));
    let create = || Block::create(weights.address(), &options(|_| {})).expect("create");
    let (stream, own, other) = (OwnStream::new(), OwnStream::new(), create());
    for _ in 0..3 {
        let (block, outputs) = (create(), [0; 2].map(|_| Memory::poisoned(ROWS * D)));
        let graph = Captured::new(&stream, || block.forward(&x, &outputs[0], 1, ROWS, stream.0).expect("capture"));
        for _ in 0..LAUNCHES {
            graph.launch(&stream);
        }
        drop(block);
        // SAFETY: a live stream.
        let left = unsafe { sys::cuStreamQuery(stream.0) };
        for _ in 0..LAUNCHES {
            other.forward(&x, &outputs[1], 1, ROWS, own.0).expect("forward of another");
        }
        for output in outputs {
            check_block(&output.read(), &wanted, "beside a block that is destroyed");
        }
        assert_eq!(left, sys::CUresult::CUDA_SUCCESS, "destroy is to wait for the block's work");
    }
}

/// A stream that has a part of the multiprocessors only is refused: blocks of ours would wait there for others that have no place.
pub fn green_context() {
    let host_weights = weights(38);
    let host_x = Random::new(38).uniforms(ROWS * D);
    let (weights, x, output) = (Memory::of(&host_weights), Memory::of(&host_x), Memory::poisoned(ROWS * D));
    let block = Block::create(weights.address(), &options(|_| {})).expect("create");
    for sms in [8, 64] {
        let few = FewMultiprocessors::new(sms);
        for rows in [1, ROWS, ROWS] {
            let status = block.call(x.address(), output.address(), 1, rows, few.stream.cast());
            assert_eq!(status, SolveStatus::Unsupported, "{rows} rows on {sms}: {}", message());
            assert!(message().starts_with("stream is of a green context"), "{}", message());
        }
        let refused = block.update(weights.address(), few.stream).map_err(|(status, _)| status);
        assert_eq!(refused, Err(SolveStatus::Unsupported));
    }
    assert!(output.read().iter().all(|value| value.is_nan()), "output was written");
    block.forward(&x, &output, 1, ROWS, ptr::null_mut()).expect("forward");
    check_block(&output.read(), &reference(&host_x, &host_weights, 1, ROWS, false), "on the legacy stream");
}

/// Calls that have run before go on where no memory is left.
pub fn full_device() {
    const LARGE: usize = 20_000;
    let host_weights = weights(40);
    let (weights, x) = (Memory::of(&host_weights), Memory::of(&Random::new(40).uniforms(ROWS * D)));
    let (output, large) = (Memory::poisoned(ROWS * D), Memory::poisoned(LARGE * D));
    let block = Block::create(weights.address(), &options(|_| {})).expect("create");
    let wanted = |rows: usize| {
        block.forward(&x, &output, 1, rows, ptr::null_mut()).expect("forward");
        output.read()
    };
    let outputs = [60, 100, ROWS].map(wanted);
    let solve = |rows: usize| solve(x.address(), output.address(), weights.address(), rows);
    let solved = [60, ROWS].map(|rows| {
        // Plainly, then as a graph.
        (0..2).for_each(|_| solve(rows).expect("solve"));
        output.read()
    });
    let mut taken = Vec::new();
    let mut bytes = free_bytes();
    while bytes >= 1 << 12 {
        let mut at = 0;
        // SAFETY: writes one address.
        match unsafe { sys::cuMemAlloc_v2(&mut at, bytes) } {
            sys::CUresult::CUDA_SUCCESS => taken.push(at),
            _ => bytes /= 2,
        }
    }
    for _ in 0..3 {
        for (rows, wanted) in [60, 100, ROWS].into_iter().zip(&outputs) {
            block.forward(&x, &output, 1, rows, ptr::null_mut()).expect("forward without memory");
            // A copy needs none either.
            assert!(output.read()[..rows * D] == wanted[..rows * D], "{rows} rows");
        }
        for (rows, wanted) in [60, ROWS].into_iter().zip(&solved) {
            solve(rows).expect("solve without memory");
            assert!(output.read()[..rows * D] == wanted[..rows * D], "solve() of {rows} rows");
        }
        // More than there is room for: refused, and those from before go on.
        let (status, sentence) = super::api::solve(large.address(), large.address(), weights.address(), LARGE)
            .expect_err("there is no memory");
        assert_eq!(status, SolveStatus::OutOfMemory, "{sentence}");
        assert!(sentence.contains(&format!("the workspace of seq_len = {LARGE}")), "{sentence}");
    }
    // SAFETY: allocated above.
    taken.into_iter().for_each(|at| unsafe { ok(sys::cuMemFree_v2(at)) });
}
