//! Streams: polled words, and copies that are outstanding at once.

use fake_device::outstanding::fake_device_most_copies;
use symmem_fake_hip::devices::*;
use symmem_fake_hip::graphs::*;
use symmem_fake_hip::memory::*;
use symmem_fake_hip::streams::*;

use crate::support::*;

/// Polls a word once, on device 0.
fn poll(word: u64) {
    let waiter = stream();
    ok(hipStreamWaitValue32(waiter, word, 0, 0, u32::MAX));
    ok(hipStreamSynchronize(waiter));
    ok(hipStreamDestroy(waiter));
}

#[test]
fn a_peer_s_word_is_polled_where_no_device_caches_it() {
    alone(&[], || {
        ok(hipDeviceEnablePeerAccess(1, 0));
        ok(hipSetDevice(1));
        let (cached, uncached) = (device_memory(4), uncached_memory(4));
        ok(hipSetDevice(0));
        for word in [uncached, host_memory(4), device_memory(4)] {
            poll(word);
        }
        clean();
        poll(cached);
        violated("polled in a peer's memory, which the device caches");
    });
}

#[test]
fn the_oldest_processor_polls_not_even_its_own_cached_memory() {
    alone(&[("FAKE_HIP_ARCHITECTURE", "gfx90a")], || {
        poll(uncached_memory(4));
        clean();
        poll(device_memory(4));
        violated("polled in its own memory, which the device caches");
    });
}

#[test]
fn copies_of_several_streams_are_outstanding_at_once() {
    alone(&[("FAKE_DEVICE_COPY_US", "50000")], || {
        let memory = device_memory(64);
        let copy = |stream, at| {
            // SAFETY: both sides are device memory, so no host pointer is used.
            ok(unsafe { hipMemcpyDtoDAsync(memory + at, memory + 32 + at, 8, stream) });
        };
        let (one, other) = (stream(), stream());
        copy(one, 0);
        copy(one, 8);
        ok(hipStreamSynchronize(one));
        assert_eq!(
            fake_device_most_copies(),
            1,
            "a stream runs one copy at a time"
        );
        copy(one, 0);
        copy(other, 8);
        ok(hipStreamSynchronize(one));
        ok(hipStreamSynchronize(other));
        assert_eq!(fake_device_most_copies(), 2);
    });
}

#[test]
fn branches_of_a_graph_copy_at_once() {
    alone(&[("FAKE_DEVICE_COPY_US", "50000")], || {
        let memory = device_memory(64);
        let (origin, side) = (stream(), stream());
        let (mut fork, mut join, mut graph, mut executable) = (0, 0, 0, 0);
        ok(hipEventCreateWithFlags(Some(&mut fork), 2));
        ok(hipEventCreateWithFlags(Some(&mut join), 2));
        ok(hipStreamBeginCapture(origin, 1));
        ok(hipEventRecord(fork, origin));
        ok(hipStreamWaitEvent(side, fork, 0));
        // SAFETY: both sides are device memory, so no host pointer is used.
        unsafe {
            ok(hipMemcpyDtoDAsync(memory, memory + 32, 8, origin));
            ok(hipMemcpyDtoDAsync(memory + 8, memory + 40, 8, side));
        }
        ok(hipEventRecord(join, side));
        ok(hipStreamWaitEvent(origin, join, 0));
        ok(hipStreamEndCapture(origin, Some(&mut graph)));
        ok(hipGraphInstantiateWithFlags(
            Some(&mut executable),
            graph,
            0,
        ));
        assert_eq!(fake_device_most_copies(), 0, "captured, not run");
        ok(hipGraphLaunch(executable, origin));
        ok(hipStreamSynchronize(origin));
        assert_eq!(fake_device_most_copies(), 2);
        clean();
    });
}

#[test]
fn a_call_that_waits_is_refused_in_a_capture() {
    alone(&[], || {
        let origin = stream();
        ok(hipStreamBeginCapture(origin, 0));
        assert_eq!(hipMalloc(Some(&mut 0), 64), 900);
        violated("is invalidated by this call");
        assert_eq!(hipStreamEndCapture(origin, Some(&mut 0)), 901);
    });
}
