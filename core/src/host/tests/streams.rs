//! Order of work, threads, polling callers, events.

use super::*;
use crate::backend::RemoteAccess;
use crate::host::Sleeper;
use crate::host::progress::LONGEST_SLEEP;
use rstest::rstest;
use std::cell::Cell;

#[rstest]
fn every_method_moves_the_bytes_and_no_others_in_the_caller(
    #[values(
        MethodCode::COPY_ENGINE,
        MethodCode::VECTOR,
        MethodCode::BULK,
        MethodCode::UNROLLED
    )]
    method: MethodCode,
    #[values((0, 1, 0), (3, 5, 1), (0, 0, 4096), (1, 2, 999))] shape: (u64, u64, u64),
) {
    let ranks = world(2);
    let me = &ranks[0];
    let (to, from, bytes) = shape;
    let stream = me.stream();
    // SAFETY: all memory outlives the stream.
    unsafe {
        me.backend
            .memory_set(me.at(0, DATA), 0xAB, 8192, stream)
            .unwrap();
        let mut transfer = me.transfer(me.at(1, DATA + 64 + to), me.at(0, DATA + from), bytes);
        transfer.row.method = method;
        me.backend.transfer(&transfer, stream).unwrap();
    }
    assert!(me.idle(stream) && !me.has_thread(stream));
    for offset in (0..8192).step_by(4) {
        let word = read(ranks[1].at(1, DATA + offset)).to_le_bytes();
        for (byte, value) in (offset..).zip(word) {
            let written = (64 + to..64 + to + bytes).contains(&byte);
            assert_eq!(value, if written { 0xAB } else { 0 }, "at {byte}");
        }
    }
}

#[test]
fn work_behind_a_wait_is_done_after_the_signal_and_not_before() {
    let ranks = world(2);
    let (me, peer) = (&ranks[0], &ranks[1]);
    let (stream, theirs) = (me.stream(), peer.stream());
    me.await_signal(1, LONG, stream);
    // SAFETY: all memory outlives the stream.
    unsafe {
        me.backend.memory_set(me.at(0, DATA), 1, 4, stream).unwrap();
        let copy = me.transfer(me.at(1, DATA), me.at(0, DATA), 4);
        me.backend.transfer(&copy, stream).unwrap();
    }
    assert!(!me.idle(stream) && me.has_thread(stream));
    assert_eq!(read(peer.at(1, DATA)), 0);
    peer.give(0, theirs);
    me.synchronize(stream);
    assert_eq!(read(peer.at(1, DATA)), 0x0101_0101);
}

#[test]
fn a_wait_that_is_satisfied_needs_no_thread() {
    let ranks = world(2);
    let (me, peer) = (&ranks[0], &ranks[1]);
    let stream = me.stream();
    peer.give(0, RawStream::NULL);
    me.await_signal(1, LONG, stream);
    assert!(me.idle(stream) && !me.has_thread(stream));
}

#[test]
fn queued_work_goes_on_although_nobody_polls() {
    let ranks = world(2);
    let (me, peer) = (&ranks[0], &ranks[1]);
    let (stream, reply) = (me.stream(), peer.wait(0, LONG).word);
    // The first round starts the stream's thread; the second has to wake it.
    for round in 1..=2 {
        me.await_signal(1, LONG, stream);
        me.give(1, stream);
        // Long enough that the thread sleeps on the word.
        std::thread::sleep(Duration::from_millis(30));
        assert_eq!(read(reply), round - 1);
        peer.give(0, RawStream::NULL);
        let start = Instant::now();
        while read(reply) != round {
            assert!(start.elapsed() < LONG, "no thread advanced the queue");
            std::thread::yield_now();
        }
        // Long enough that the thread comes to rest.
        std::thread::sleep(Duration::from_millis(30));
    }
    let sleepers = DeviceAddress(me.wait(1, LONG).word.0 + 4);
    assert_eq!(read(sleepers), 0, "a sleeper is still counted");
}

#[test]
fn memory_may_go_as_soon_as_a_poll_says_idle_although_the_thread_slept_on_it() {
    if cfg!(miri) {
        return;
    }
    let backend = HostBackend::open(&options(1)).unwrap();
    let stream = backend.stream_create().unwrap();
    for round in 0..20 {
        let memory = backend.allocate(ShareKindCode::MEMORY_FILE, 4096).unwrap();
        let wait = SignalWait {
            word: memory.address,
            value: 1,
            ..SignalWait::default()
        };
        // SAFETY: the word lives until the stream is idle.
        unsafe {
            backend
                .signal_wait(&wait, SignalPlacementCode::HOST, stream)
                .unwrap();
            std::thread::sleep(Duration::from_millis(round % 3));
            write(wait.word, 1);
            while !backend.stream_idle(stream).unwrap() {}
            backend.free(memory.handle).unwrap();
        }
    }
}

#[test]
fn a_stream_that_is_given_up_finishes_its_work() {
    let ranks = world(2);
    let (me, peer) = (&ranks[0], &ranks[1]);
    let stream = me.stream();
    me.await_signal(1, LONG, stream);
    me.give(1, stream);
    // SAFETY: the stream is not used again.
    unsafe { me.backend.stream_destroy(stream).unwrap() };
    peer.give(0, RawStream::NULL);
    let theirs = peer.stream();
    peer.await_signal(0, LONG, theirs);
    peer.synchronize(theirs);
    assert_eq!(peer.record().state, 0);
}

#[test]
fn blocking_on_a_stream_returns_when_it_is_idle_or_the_time_is_over() {
    let ranks = world(2);
    let (me, peer) = (&ranks[0], &ranks[1]);
    let stream = me.stream();
    me.await_signal(1, LONG, stream);
    // SAFETY: the stream is live.
    let block = |longest| unsafe { me.backend.stream_block(stream, longest).unwrap() };
    assert!(!block(Duration::from_millis(2)));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(Duration::from_millis(5));
            peer.give(0, RawStream::NULL);
        });
        assert!(block(LONG));
    });
    assert!(me.idle(stream));
}

/// Whether a run takes less than `limit`, of many: a busy machine makes some long.
fn is_ever_below(limit: Duration, run: impl FnMut() -> Duration) -> bool {
    std::iter::repeat_with(run)
        .take(1000)
        .any(|time| time < limit)
}

#[test]
#[cfg_attr(miri, ignore = "it takes times")]
fn a_pause_ends_after_the_time_at_the_signal_and_at_once_if_the_caller_moved_the_stream() {
    let ranks = world(2);
    let (me, peer) = (&ranks[0], &ranks[1]);
    let stream = me.stream();
    let pause = |longest| {
        let start = Instant::now();
        // SAFETY: the stream is live.
        let idle = unsafe { me.backend.stream_pause(stream, longest, None).unwrap() };
        (idle, start.elapsed())
    };
    me.await_signal(1, LONG, stream);
    let after_the_time = is_ever_below(LONGEST_SLEEP / 2, || {
        let (idle, waited) = pause(Duration::from_millis(1));
        assert!(!idle, "there is no signal");
        waited
    });
    assert!(after_the_time, "it sleeps on");
    let ends_below = |limit, ahead: bool| {
        is_ever_below(limit, || {
            me.await_signal(1, LONG, stream);
            // The stream's thread leaves the stream to a caller that polls.
            assert!(!me.idle(stream));
            std::thread::scope(|scope| {
                if ahead {
                    peer.give(0, RawStream::NULL);
                } else {
                    scope.spawn(|| {
                        std::thread::sleep(Duration::from_millis(1));
                        peer.give(0, RawStream::NULL);
                    });
                }
                // The last wait is still to come, so the stream is not idle.
                let (idle, waited) = pause(LONG);
                assert!(!idle, "a wait is left");
                waited
            })
        })
    };
    assert!(ends_below(LONGEST_SLEEP / 2, false), "no signal wakes it");
    assert!(
        ends_below(Duration::from_millis(1), true),
        "it sleeps first"
    );
    peer.give(0, RawStream::NULL);
    while !pause(LONG).0 {}
    assert!(me.idle(stream));
}

/// A sleeper that watches one word. Its sleep gives the peer's next signal.
struct Told<'r> {
    word: DeviceAddress,
    slept: Cell<u32>,
    left: Cell<u32>,
    give: &'r dyn Fn(),
}

impl Sleeper for Told<'_> {
    fn watches(&self, word: DeviceAddress) -> bool {
        word == self.word
    }

    fn sleep(&self, word: DeviceAddress, _seen: u32, longest: Duration) {
        assert!(word == self.word && longest <= LONG);
        self.slept.set(self.slept.get() + 1);
        (self.give)();
    }

    fn leave(&self) {
        self.left.set(self.left.get() + 1);
    }
}

#[test]
fn a_sleeper_sleeps_on_the_words_that_it_watches_and_on_no_others() {
    let ranks = world(2);
    let (me, peer) = (&ranks[0], &ranks[1]);
    let stream = me.stream();
    let give = || peer.give(0, RawStream::NULL);
    for watches in [true, false] {
        let word = match watches {
            true => me.wait(1, LONG).word,
            false => DeviceAddress::NULL,
        };
        let sleeper = Told {
            word,
            slept: Cell::new(0),
            left: Cell::new(0),
            give: &give,
        };
        me.await_signal(1, LONG, stream);
        let pause = |longest| {
            // SAFETY: the stream is live.
            unsafe { me.backend.stream_pause(stream, longest, Some(&sleeper)) }.unwrap()
        };
        assert!(!pause(Duration::from_millis(1)), "there was no signal");
        if !watches {
            give();
        }
        while !pause(LONG) {}
        assert_eq!(sleeper.slept.get(), u32::from(watches));
        assert_eq!(sleeper.left.get() > 0, !watches, "told before other sleeps");
    }
}

#[test]
fn work_from_many_threads_on_one_stream_is_all_done() {
    let ranks = world(1);
    let me = &ranks[0];
    let stream = me.stream();
    let rounds = if cfg!(miri) { 10 } else { 2000 };
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                for _ in 0..rounds {
                    me.give(0, stream);
                }
            });
        }
    });
    me.synchronize(stream);
    assert_eq!(read(me.target(0).word), 3 * rounds);
}

#[test]
fn an_event_is_done_when_the_work_before_it_is_and_has_a_time() {
    let ranks = world(2);
    let (me, peer) = (&ranks[0], &ranks[1]);
    let stream = me.stream();
    let (start, end) = (
        me.backend.event_create().unwrap(),
        me.backend.event_create().unwrap(),
    );
    // SAFETY: streams and events are live.
    unsafe {
        assert!(me.backend.event_done(end).unwrap(), "nothing was recorded");
        let unrecorded = me.backend.event_elapsed(start, end).unwrap_err();
        assert_eq!(unrecorded.status, Status::INVALID_ARGUMENT);
        me.backend.event_record(start, stream).unwrap();
        assert!(me.backend.event_done(start).unwrap());
        me.await_signal(1, LONG, stream);
        me.backend.event_record(end, stream).unwrap();
        assert!(!me.backend.event_done(end).unwrap());
        std::thread::sleep(Duration::from_millis(2));
        peer.give(0, RawStream::NULL);
        while !me.backend.event_done(end).unwrap() {
            std::thread::yield_now();
        }
        assert!(me.backend.event_elapsed(start, end).unwrap() >= 2_000_000);
        me.backend.event_destroy(start).unwrap();
        me.backend.event_destroy(end).unwrap();
    }
}

#[test]
fn a_stream_waits_for_another_streams_event() {
    let ranks = world(2);
    let (me, peer) = (&ranks[0], &ranks[1]);
    let (first, second) = (me.stream(), me.stream());
    let event = me.backend.event_create().unwrap();
    me.await_signal(1, LONG, first);
    // SAFETY: streams, event and memory are live; the event's queued uses own it.
    unsafe {
        me.backend.event_record(event, first).unwrap();
        me.backend.stream_wait_event(second, event).unwrap();
        me.backend.event_destroy(event).unwrap();
        me.backend.memory_set(me.at(0, DATA), 1, 4, second).unwrap();
    }
    std::thread::sleep(Duration::from_millis(20));
    assert!(!me.idle(second));
    assert_eq!(read(me.at(0, DATA)), 0);
    peer.give(0, RawStream::NULL);
    me.synchronize(second);
    assert_eq!(read(me.at(0, DATA)), 0x0101_0101);
}
