//! Handles that come and go while others are at work, streams that have too little of the device, and a device without memory.

use std::ptr;
use std::thread;

use cudarc::driver::sys;
use solve::dims::D;
use solve::error::SolveStatus;

use super::api::{Block, message, options};
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
    let host_weights = weights(40);
    let (weights, x) = (Memory::of(&host_weights), Memory::of(&Random::new(40).uniforms(ROWS * D)));
    let output = Memory::poisoned(ROWS * D);
    let block = Block::create(weights.address(), &options(|_| {})).expect("create");
    let wanted = |rows: usize| {
        block.forward(&x, &output, 1, rows, ptr::null_mut()).expect("forward");
        output.read()
    };
    let outputs = [60, 100, ROWS].map(wanted);
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
    }
    // SAFETY: allocated above.
    taken.into_iter().for_each(|at| unsafe { ok(sys::cuMemFree_v2(at)) });
}
