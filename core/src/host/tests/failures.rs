//! Deadlines, aborts, and invalid calls.

use super::*;
use crate::backend::{CollectiveKernels, Failure, RemoteAccess};

const SHORT: Duration = Duration::from_millis(3);

#[test]
fn a_wait_gives_up_at_its_deadline_says_why_and_the_stream_goes_on() {
    let ranks = world(2);
    let (me, peer) = (&ranks[0], &ranks[1]);
    let stream = me.stream();
    write(me.mine(WAIT_EPOCH), 6);
    write(me.wait(1, SHORT).word, 4);
    let start = Instant::now();
    me.await_signal(1, SHORT, stream);
    me.give(1, stream);
    me.synchronize(stream);
    assert!(start.elapsed() >= SHORT);
    let expected = WaitRecord {
        state: 2,
        kind: 1,
        rank: 0,
        peer: 1,
        slot: 5,
        expected: 7,
        seen: 4,
        reason: 1,
        elapsed_ns: me.record().elapsed_ns,
    };
    assert!(expected.elapsed_ns >= 1_000_000);
    assert_eq!(me.record(), expected);
    assert_eq!(read(peer.wait(0, LONG).word), 1);
    assert_eq!(
        read(me.mine(WAIT_EPOCH)),
        7,
        "a wait that gave up still counts"
    );
}

#[test]
fn the_abort_word_ends_waits_that_run_and_those_that_come() {
    let ranks = world(2);
    let me = &ranks[0];
    let stream = me.stream();
    me.await_signal(1, LONG, stream);
    // Long enough that the stream's thread sleeps on the word.
    std::thread::sleep(Duration::from_millis(5));
    let start = Instant::now();
    write(me.mine(ABORT), 1);
    // No caller polls: the stream's thread must see the abort word itself.
    while me.record().state != 2 {
        assert!(start.elapsed() < LONG);
        std::thread::yield_now();
    }
    assert_eq!((me.record().expected, me.record().reason), (1, 2));
    me.synchronize(stream);
    assert_eq!(
        (read(me.mine(ABORTED)), read(ranks[1].mine(ABORTED))),
        (1, 0),
        "the rank whose wait saw it notes it"
    );
    me.await_signal(1, LONG, stream);
    assert!(me.idle(stream), "later waits leave at once");
    assert_eq!(
        me.record().expected,
        1,
        "the first wait that gave up has the record"
    );
    let aborted_in = start.elapsed();
    assert!(aborted_in < Duration::from_secs(2), "{aborted_in:?}");
}

#[test]
fn a_barrier_names_the_peer_that_did_not_come() {
    let ranks = world(3);
    let stream = ranks[0].stream();
    // SAFETY: all memory outlives the streams.
    unsafe {
        ranks[1]
            .backend
            .barrier(&ranks[1].barrier(SHORT), RawStream::NULL)
            .unwrap();
        ranks[0]
            .backend
            .barrier(&ranks[0].barrier(SHORT), stream)
            .unwrap();
    }
    ranks[0].synchronize(stream);
    let record = ranks[0].record();
    assert_eq!((record.kind, record.peer, record.slot), (2, 2, 9));
    assert_eq!((record.expected, record.seen, record.reason), (1, 0, 1));
    ranks[1].synchronize(RawStream::NULL);
}

fn refused<T>(result: Result<T, Failure>, status: Status) {
    let failure = result.err().expect("it was not refused");
    assert_eq!(failure.status, status, "{failure}");
    assert!(
        !failure.call.is_empty() && failure.message.len() > 10,
        "{failure}"
    );
}

#[test]
fn calls_that_make_no_sense_are_refused() {
    let ranks = world(1);
    let me = &ranks[0];
    let backend = &me.backend;
    // SAFETY: every call is refused before it uses its arguments.
    unsafe {
        let far = OpenOptions {
            ordinal: 1,
            ..options(1)
        };
        refused(HostBackend::open(&far), Status::NO_DEVICE);
        refused(HostBackend::describe_device(3), Status::NO_DEVICE);
        let mut automatic = me.transfer(me.at(0, DATA), me.at(0, DATA + 64), 4);
        automatic.row.method = MethodCode::AUTOMATIC;
        refused(
            backend.transfer(&automatic, RawStream::NULL),
            Status::INVALID_ARGUMENT,
        );
        let crowd = Barrier {
            world: MAX_RANKS as u32 + 1,
            ..me.barrier(SHORT)
        };
        refused(
            backend.barrier(&crowd, RawStream::NULL),
            Status::INVALID_ARGUMENT,
        );
        refused(backend.event_done(RawEvent::NULL), Status::INVALID_ARGUMENT);
        refused(
            backend.stream_destroy(RawStream::NULL),
            Status::INVALID_ARGUMENT,
        );
        refused(backend.free(RawAllocation::NULL), Status::INVALID_ARGUMENT);
        refused(backend.host_allocate(0), Status::INVALID_ARGUMENT);
        refused(
            backend.host_register(me.own.host + 1, 4096),
            Status::INVALID_ARGUMENT,
        );
        refused(backend.module_load(&[]), Status::UNSUPPORTED);
        refused(backend.builtin_function("symmem_move"), Status::UNSUPPORTED);
    }
}
