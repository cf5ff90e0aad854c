//! Streams, events, captures.

use std::time::Duration;

use symmem_fake_cuda::allocations::*;
use symmem_fake_cuda::capture::*;
use symmem_fake_cuda::contexts::*;
use symmem_fake_cuda::copies::*;
use symmem_fake_cuda::driver::Kind;
use symmem_fake_cuda::events::*;
use symmem_fake_cuda::graphs::*;
use symmem_fake_cuda::report;
use symmem_fake_cuda::streams::*;

use crate::support::*;

fn event(flags: u32) -> u64 {
    let mut event = 0;
    ok(cuEventCreate(Some(&mut event), flags));
    event
}

#[test]
fn a_wait_blocks_its_own_stream_only() {
    alone(&[], || {
        context(0);
        let (flag, memory) = (host_memory(64), device_memory(64));
        let (waiter, other) = (stream(), stream());
        ok(cuStreamWaitValue32_v2(waiter, flag, 5, 0));
        ok(cuMemsetD8Async(memory, 1, 1, waiter));
        ok(cuMemsetD8Async(memory + 1, 2, 1, other));
        ok(cuStreamSynchronize(other));
        assert_eq!(cuStreamQuery(waiter), 600);
        ok(cuStreamWriteValue32_v2(other, flag, 5, 0));
        ok(cuStreamSynchronize(waiter));
        assert_eq!(read(memory, 2), [1, 2]);
        clean();
    });
}

#[test]
fn events_order_streams_and_time_them() {
    alone(&[], || {
        context(0);
        let (flag, memory) = (host_memory(4), device_memory(4));
        let (one, two) = (stream(), stream());
        let (start, end) = (event(0), event(0));
        ok(cuEventQuery(start));
        ok(cuEventRecord(start, one));
        ok(cuStreamWaitValue32(one, flag, 1, 1));
        ok(cuMemsetD32Async(memory, 7, 1, one));
        ok(cuEventRecord(end, one));
        ok(cuStreamWaitEvent(two, end, 0));
        ok(cuMemsetD8Async(memory, 8, 1, two));
        assert_eq!(cuEventQuery(end), 600);
        ok(cuEventSynchronize(start));
        std::thread::sleep(Duration::from_millis(20));
        ok(cuStreamWriteValue32(stream(), flag, 1, 0));
        ok(cuStreamSynchronize(two));
        assert_eq!(read_word(memory), 8);
        let mut milliseconds = 0.0;
        ok(cuEventElapsedTime(Some(&mut milliseconds), start, end));
        assert!((20.0..10_000.0).contains(&milliseconds), "{milliseconds}");
        let untimed = event(2);
        ok(cuEventRecord(untimed, one));
        ok(cuEventSynchronize(untimed));
        assert_eq!(
            cuEventElapsedTime(Some(&mut milliseconds), start, untimed),
            400
        );
        clean();
    });
}

#[test]
fn the_legacy_stream_waits_for_blocking_streams() {
    alone(&[], || {
        context(0);
        let (flag, memory) = (host_memory(4), device_memory(4));
        let (mut blocking, free) = (0, stream());
        ok(cuStreamCreate(Some(&mut blocking), 0));
        ok(cuStreamWaitValue32(blocking, flag, 1, 1));
        ok(cuMemsetD32Async(memory, 1, 1, 0));
        ok(cuStreamQuery(free));
        assert_eq!(cuStreamQuery(0), 600);
        ok(cuStreamWriteValue32(free, flag, 1, 0));
        ok(cuStreamSynchronize(0));
        assert_eq!(read_word(memory), 1);
        clean();
    });
}

#[test]
fn freeing_what_is_in_use_is_reported() {
    alone(&[], || {
        context(0);
        let (flag, memory) = (host_memory(4), device_memory(64));
        let (waiter, other) = (stream(), stream());
        ok(cuStreamWaitValue32(waiter, flag, 1, 1));
        ok(cuMemsetD8Async(memory, 1, 64, waiter));
        let late = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(50));
            // Another process would set the word like this.
            // SAFETY: the word is live pinned memory, which the host may write.
            unsafe { (flag as *mut u32).write_volatile(1) };
        });
        ok(cuMemFree_v2(memory));
        late.join().expect("the writer");
        let text = report::text();
        assert!(text.contains("is freed while work on stream"), "{text}");
        assert!(text.contains("this call waits for stream"), "{text}");
        report::fake_device_clear_violations();
        ok(cuMemsetD8_v2(flag, 0, 4));
        ok(cuStreamWaitValue32(waiter, flag, 1, 1));
        ok(cuStreamDestroy_v2(waiter));
        violated("destroyed with unfinished work");
        assert_eq!(cuStreamQuery(waiter), 400);
        violated("was destroyed before");
        ok(cuStreamWriteValue32(other, flag, 1, 0));
        ok(cuStreamSynchronize(other));
    });
}

#[test]
fn captured_work_runs_when_it_is_launched() {
    alone(&[], || {
        context(0);
        let memory = device_memory(16);
        let (origin, side) = (stream(), stream());
        let (fork, join) = (event(2), event(2));
        let (mut graph, mut executable, mut state, mut nodes) = (0, 0, 0, 0);
        ok(cuStreamBeginCapture_v2(origin, 0));
        ok(cuStreamIsCapturing(origin, Some(&mut state)));
        assert_eq!(state, 1);
        ok(cuMemsetD32Async(memory, 1, 1, origin));
        ok(cuEventRecord(fork, origin));
        ok(cuStreamWaitEvent(side, fork, 0));
        // SAFETY: both sides are device memory, so no host pointer is used.
        ok(unsafe { cuMemcpyDtoDAsync_v2(memory + 4, memory, 4, side) });
        ok(cuEventRecord(join, side));
        ok(cuStreamWaitEvent(origin, join, 0));
        // SAFETY: both sides are device memory, so no host pointer is used.
        ok(unsafe { cuMemcpyAsync(memory + 8, memory + 4, 4, origin) });
        ok(cuStreamEndCapture(origin, Some(&mut graph)));
        ok(cuGraphGetNodes(graph, None, Some(&mut nodes)));
        assert_eq!(nodes, 3);
        assert_eq!(read_word(memory + 8), 0, "nothing has run yet");
        ok(cuGraphInstantiateWithFlags(Some(&mut executable), graph, 0));
        ok(cuGraphDestroy(graph));
        for _ in 0..2 {
            ok(cuMemsetD8_v2(memory, 0, 16));
            ok(cuGraphLaunch(executable, origin));
            ok(cuStreamSynchronize(origin));
            assert_eq!(read_word(memory + 8), 1);
        }
        ok(cuGraphExecDestroy(executable));
        assert_eq!(cuGraphLaunch(executable, origin), 400);
        violated("was destroyed before");
        assert_eq!(live(Kind::Graph) + live(Kind::GraphExec), 0);
    });
}

#[test]
fn branches_of_a_graph_run_beside_each_other() {
    alone(&[], || {
        context(0);
        let flag = host_memory(4);
        let (origin, side) = (stream(), stream());
        let (fork, join) = (event(2), event(2));
        let (mut graph, mut executable) = (0, 0);
        ok(cuStreamBeginCapture_v2(origin, 2));
        ok(cuEventRecord(fork, origin));
        ok(cuStreamWaitEvent(side, fork, 0));
        // The branch that waits is captured before the branch that it waits for.
        ok(cuStreamWaitValue32_v2(origin, flag, 3, 1));
        ok(cuStreamWriteValue32_v2(side, flag, 3, 0));
        ok(cuEventRecord(join, side));
        ok(cuStreamWaitEvent(origin, join, 0));
        ok(cuStreamEndCapture(origin, Some(&mut graph)));
        ok(cuGraphInstantiateWithFlags(Some(&mut executable), graph, 0));
        ok(cuGraphLaunch(executable, origin));
        ok(cuStreamSynchronize(origin));
        clean();
    });
}

/// Makes `call` during a capture, and returns the results of the call and of ending the capture.
fn spoilt_by(call: impl FnOnce(u64) -> i32) -> (i32, i32) {
    let (captured, mut graph) = (stream(), 0);
    ok(cuStreamBeginCapture_v2(captured, 0));
    let code = call(captured);
    let end = cuStreamEndCapture(captured, Some(&mut graph));
    report::fake_device_clear_violations();
    (code, end)
}

#[test]
fn a_capture_is_spoilt_by_what_cannot_be_captured() {
    alone(&[], || {
        context(0);
        let (other, mut address, mut blocking) = (stream(), 0, 0);
        let memory = device_memory(4);
        ok(cuStreamCreate(Some(&mut blocking), 0));
        assert_eq!(spoilt_by(|stream| cuStreamSynchronize(stream)), (900, 901));
        assert_eq!(spoilt_by(|stream| cuStreamQuery(stream)), (900, 901));
        assert_eq!(spoilt_by(|_| cuStreamQuery(other)), (900, 901));
        assert_eq!(
            spoilt_by(|_| cuMemAlloc_v2(Some(&mut address), 4)),
            (900, 901)
        );
        assert_eq!(spoilt_by(|_| cuCtxSynchronize()), (900, 901));
        assert_eq!(spoilt_by(|_| cuMemsetD32Async(memory, 1, 1, other)), (0, 0));
        let outside = event(0);
        ok(cuEventRecord(outside, other));
        assert_eq!(
            spoilt_by(|stream| cuStreamWaitEvent(stream, outside, 0)),
            (905, 901)
        );
        let inside = event(0);
        let query = |stream| {
            ok(cuEventRecord(inside, stream));
            cuEventQuery(inside)
        };
        assert_eq!(spoilt_by(query), (907, 901));
        // The legacy stream would wait for a blocking stream, which captures.
        ok(cuStreamBeginCapture_v2(blocking, 2));
        assert_eq!(cuMemsetD32Async(memory, 1, 1, 0), 906);
        let mut graph = 0;
        assert_eq!(cuStreamEndCapture(blocking, Some(&mut graph)), 901);
        report::fake_device_clear_violations();
        assert_eq!(cuStreamBeginCapture_v2(0, 0), 900);
        violated("the legacy stream cannot be captured");
    });
}

#[test]
fn a_joined_stream_is_joined_back() {
    alone(&[], || {
        context(0);
        let memory = device_memory(4);
        let (origin, side, fork, mut graph) = (stream(), stream(), event(2), 0);
        ok(cuStreamBeginCapture_v2(origin, 1));
        ok(cuEventRecord(fork, origin));
        ok(cuStreamWaitEvent(side, fork, 0));
        ok(cuMemsetD32Async(memory, 1, 1, side));
        assert_eq!(cuStreamEndCapture(side, Some(&mut graph)), 903);
        violated("was begun on stream");
        assert_eq!(cuStreamEndCapture(origin, Some(&mut graph)), 904);
        violated("not joined back");
    });
}
