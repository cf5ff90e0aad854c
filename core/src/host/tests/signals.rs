//! Signals, waits and barriers among concurrent ranks.

use super::*;
use crate::backend::{CollectiveKernels, RemoteAccess};
use rstest::rstest;
use std::sync::atomic::AtomicU32;

fn rounds(many: u32) -> u32 {
    if cfg!(miri) { 5 } else { many }
}

/// Runs each rank in its own thread.
fn each(ranks: &[Rank], work: impl Fn(&Rank) + Sync) {
    std::thread::scope(|scope| {
        for rank in ranks {
            scope.spawn(|| work(rank));
        }
    });
}

#[test]
fn who_sees_the_signal_sees_the_data_across_the_wrap_of_the_epoch() {
    let ranks = world(2);
    let start = u32::MAX - 2;
    each(&ranks, |me| {
        write(me.mine(GIVE_EPOCH), start);
        write(me.mine(WAIT_EPOCH), start);
        write(me.wait(1 - me.rank, LONG).word, start);
    });
    each(&ranks, |me| {
        let peer = 1 - me.rank;
        let stream = me.stream();
        for round in 1..=rounds(2000) {
            write(me.mine(1024), round);
            let mut put = me.transfer(me.at(peer, DATA), me.mine(1024), 4);
            put.signal = me.target(peer);
            // SAFETY: all memory outlives the stream.
            unsafe { me.backend.transfer(&put, stream).unwrap() };
            me.await_signal(peer, LONG, stream);
            me.synchronize(stream);
            assert_eq!(read(me.at(me.rank, DATA)), round);
            // SAFETY: all memory outlives the stream. The barrier lets the peer put again only after this rank has
            // read.
            unsafe { me.backend.barrier(&me.barrier(LONG), stream).unwrap() };
            me.synchronize(stream);
        }
        assert_eq!(me.record().state, 0);
    });
}

#[rstest]
fn nobody_leaves_a_barrier_before_all_have_come(#[values(1, 2, 3, 8)] world_size: u32) {
    let ranks = world(world_size);
    let arrived = AtomicU32::new(0);
    let rounds = rounds(100);
    each(&ranks, |me| {
        let stream = me.stream();
        write(me.mine(BARRIER_EPOCH), 0);
        for round in 1..=rounds {
            arrived.fetch_add(1, Ordering::Relaxed);
            // SAFETY: all memory outlives the stream.
            unsafe { me.backend.barrier(&me.barrier(LONG), stream).unwrap() };
            me.synchronize(stream);
            assert!(arrived.load(Ordering::Relaxed) >= round * world_size);
        }
        assert_eq!(me.record().state, 0);
    });
}

#[rstest]
fn sixty_four_ranks_pass_on_few_processors(#[values(true, false)] block: bool) {
    if cfg!(miri) {
        return;
    }
    let ranks = world(64);
    let start = Instant::now();
    each(&ranks, |me| {
        let stream = me.stream();
        for _ in 0..20 {
            // SAFETY: all memory outlives the stream.
            unsafe {
                me.backend.barrier(&me.barrier(LONG), stream).unwrap();
                if block {
                    assert!(me.backend.stream_block(stream, LONG).unwrap());
                }
                while !me.backend.stream_idle(stream).unwrap() {}
            }
        }
        assert_eq!(me.record().state, 0);
    });
    let each = start.elapsed() / 20;
    println!("barrier of 64 ranks: {each:?}, block: {block}");
    assert!(each < Duration::from_millis(500), "{each:?} per barrier");
}

#[test]
fn streams_that_share_a_counter_never_take_a_signal_back() {
    let ranks = world(2);
    let (me, peer) = (&ranks[0], &ranks[1]);
    let rounds = rounds(5000);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let stream = me.stream();
                for _ in 0..rounds {
                    me.give(1, stream);
                }
            });
        }
        let mut last = 0;
        while last < 2 * rounds {
            let seen = read(peer.wait(0, LONG).word);
            assert!(seen >= last);
            last = seen;
            std::thread::yield_now();
        }
    });
}

#[test]
fn a_host_signal_carries_its_value_and_the_host_may_give_it() {
    let ranks = world(2);
    let (me, peer) = (&ranks[0], &ranks[1]);
    let stream = me.stream();
    let wait = SignalWait {
        word: me.wait(1, LONG).word,
        value: 41,
        ..SignalWait::default()
    };
    let target = SignalTarget {
        word: peer.target(0).word,
        value: 40,
        ..SignalTarget::default()
    };
    // SAFETY: all memory outlives the stream.
    unsafe {
        me.backend
            .signal_wait(&wait, SignalPlacementCode::HOST, stream)
            .unwrap();
        peer.backend
            .signal_give(&target, SignalPlacementCode::HOST, RawStream::NULL)
            .unwrap();
    }
    assert!(!me.idle(stream), "40 is before 41");
    write(wait.word, 42);
    me.synchronize(stream);
}
