//! Capture and replay.

use super::*;
use crate::backend::{Failure, RemoteAccess};

/// Captures the work that `work` enqueues on a stream.
fn captured(me: &Rank, stream: RawStream, work: impl FnOnce()) -> RawGraphExec {
    // SAFETY: the stream is live, and the recording is given up once.
    unsafe {
        me.backend.capture_begin(stream).unwrap();
        assert!(me.backend.stream_capturing(stream).unwrap());
        work();
        let graph = me.backend.capture_end(stream).unwrap();
        assert!(!me.backend.stream_capturing(stream).unwrap());
        me.backend.graph_instantiate(graph).unwrap()
    }
}

fn launch(me: &Rank, graph: RawGraphExec, stream: RawStream) {
    // SAFETY: stream and graph are live, as is all memory of the tests.
    unsafe { me.backend.graph_launch(graph, stream).unwrap() };
}

#[test]
fn a_graph_runs_at_replay_only_in_order_and_its_epochs_go_on() {
    let ranks = world(2);
    let (me, peer) = (&ranks[0], &ranks[1]);
    let (stream, theirs) = (me.stream(), peer.stream());
    let inner = captured(peer, theirs, || peer.give(0, theirs));
    let reply = captured(peer, theirs, || {
        peer.await_signal(0, LONG, theirs);
        launch(peer, inner, theirs);
    });
    let graph = captured(me, stream, || {
        let mut put = me.transfer(me.at(1, DATA), me.mine(1024), 4);
        put.signal = me.target(1);
        // SAFETY: all memory outlives the stream.
        unsafe { me.backend.transfer(&put, stream).unwrap() };
        me.await_signal(1, LONG, stream);
    });
    assert!(me.idle(stream), "a recording runs nothing");
    assert_eq!(read(peer.at(1, DATA)), 0);
    for round in 1..=3 {
        write(me.mine(1024), round);
        launch(me, graph, stream);
        assert!(!me.idle(stream), "the peer has not replied");
        launch(peer, reply, theirs);
        me.synchronize(stream);
        assert_eq!(read(peer.at(1, DATA)), round);
        assert_eq!(read(me.wait(1, LONG).word), round);
    }
    // Launches queue up behind each other.
    launch(me, graph, stream);
    launch(me, graph, stream);
    launch(peer, reply, theirs);
    launch(peer, reply, theirs);
    me.synchronize(stream);
    assert_eq!(read(me.wait(1, LONG).word), 5);
    // SAFETY: none of the graphs is running.
    unsafe {
        me.backend.graph_destroy(graph).unwrap();
        peer.backend.graph_destroy(reply).unwrap();
        peer.backend.graph_destroy(inner).unwrap();
    }
}

#[test]
fn events_in_a_graph_are_reached_at_each_replay() {
    let ranks = world(1);
    let me = &ranks[0];
    let (stream, other) = (me.stream(), me.stream());
    let (start, end) = (
        me.backend.event_create().unwrap(),
        me.backend.event_create().unwrap(),
    );
    // SAFETY: streams and events are live.
    unsafe {
        me.backend.event_record(start, other).unwrap();
        let graph = captured(me, stream, || {
            me.backend.stream_wait_event(stream, start).unwrap();
            me.backend.event_record(end, stream).unwrap();
        });
        launch(me, graph, stream);
        let first = me.backend.event_elapsed(start, end).unwrap();
        std::thread::sleep(Duration::from_millis(1));
        launch(me, graph, stream);
        assert!(me.backend.event_elapsed(start, end).unwrap() >= first + 1_000_000);
    }
}

#[test]
fn what_cannot_be_captured_is_refused() {
    let ranks = world(2);
    let me = &ranks[0];
    let stream = me.stream();
    let refused = |result: Result<(), Failure>, status: Status| {
        assert_eq!(result.unwrap_err().status, status);
    };
    // SAFETY: streams and memory are live.
    unsafe {
        let backend = &me.backend;
        refused(
            backend.capture_begin(RawStream::NULL),
            Status::INVALID_ARGUMENT,
        );
        refused(
            backend.capture_end(stream).map(drop),
            Status::INVALID_ARGUMENT,
        );
        let graph = captured(me, stream, || {
            refused(backend.capture_begin(stream), Status::UNSUPPORTED);
            refused(backend.stream_idle(stream).map(drop), Status::UNSUPPORTED);
            let (host, device) = (SignalPlacementCode::HOST, SignalPlacementCode::DEVICE);
            let target = me.target(1);
            refused(
                backend.signal_give(&target, host, stream),
                Status::UNSUPPORTED,
            );
            let wait = me.wait(1, LONG);
            refused(
                backend.signal_wait(&wait, host, stream),
                Status::UNSUPPORTED,
            );
            let mut copy = me.transfer(me.at(1, DATA), me.at(0, DATA), 4);
            copy.row.method = MethodCode::COPY_ENGINE;
            copy.signal = SignalTarget {
                epoch: DeviceAddress::NULL,
                value: 1,
                ..target
            };
            refused(backend.transfer(&copy, stream), Status::UNSUPPORTED);
            backend.signal_give(&target, device, stream).unwrap();
        });
        launch(me, graph, stream);
        assert!(me.idle(stream), "the refused calls left no trace");
        assert_eq!(read(me.target(1).word), 1);
    }
}
