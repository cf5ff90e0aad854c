//! Collectives that give up, wrap around, are captured, or run beside each other.

use super::collectives::*;
use super::*;
use crate::backend::CollectiveKernels;
use rstest::rstest;

const COUNT: u64 = 300;

fn sum(how: How, channel: u64) -> AllReduce {
    AllReduce {
        how,
        element: ElementTypeCode::F32,
        reduce: ReduceOpCode::SUM,
        count: COUNT,
        from: INPUT + channel * 8192,
        to: OUTPUT + channel * 8192,
        channel,
    }
}

/// Writes different input at every rank and returns the expected sum.
fn fill(ranks: &[Rank], call: &AllReduce, seed: u64) -> Vec<u8> {
    let inputs: Vec<_> = (0..)
        .zip(ranks)
        .map(|(number, rank)| {
            let input = elements(ElementTypeCode::F32, COUNT, 100 * seed + number)
                .chunks_exact(4)
                .flat_map(|bytes| [bytes[0], bytes[1], bytes[2], 0x3f])
                .collect::<Vec<u8>>();
            put_bytes(rank.at(rank.rank, call.from), &input);
            input
        })
        .collect();
    reference(call.element, call.reduce, &inputs)
}

fn check(ranks: &[Rank], call: &AllReduce, wanted: &[u8], what: impl std::fmt::Display) {
    for rank in ranks {
        let made = contents(rank.at(rank.rank, call.to), COUNT * 4);
        assert!(
            made == wanted,
            "{:?} at rank {}: {what}",
            call.how,
            rank.rank
        );
        assert_eq!(rank.record().state, 0, "{what}");
    }
}

const ALL: [How; 4] = [
    How::OneShot,
    How::TwoShot,
    How::Packets,
    How::PacketsTwoShot,
];

#[rstest]
fn epochs_and_uses_of_packets_go_on_across_their_wrap(#[values(2, 3)] world: u32) {
    let ranks = ranks(world);
    let start = u32::MAX - 4;
    // Sets counters and raised words as if `start` uses had passed.
    for rank in &ranks {
        for word in 0..GROUP_SLOTS / 4 {
            let word = rank.at(rank.rank, SLOTS + 4 * word);
            write(word, 0);
        }
        write(rank.at(rank.rank, SLOTS + SLOT_COUNTERS), start);
        write(rank.at(rank.rank, SLOTS + SLOT_COUNTERS + 4), start);
        for array in 0..3 {
            for peer in 0..u64::from(world) {
                let word = SLOT_BYTES + (array * MAX_RANKS as u64 + peer) * SIGNAL_STRIDE;
                write(rank.at(rank.rank, SLOTS + word), start);
            }
        }
    }
    for round in 0..12 {
        for how in ALL {
            let call = sum(how, 0);
            let wanted = fill(&ranks, &call, round);
            on_each(&ranks, |rank, stream| call.enqueue(rank, stream));
            check(&ranks, &call, &wanted, format!("round {round}"));
        }
    }
}

#[rstest]
fn calls_one_after_the_other_do_not_mix(
    #[values(2, 4)] world: u32,
    #[values(How::OneShot, How::TwoShot, How::Packets, How::PacketsTwoShot)] how: How,
) {
    let ranks = ranks(world);
    let call = sum(how, 0);
    for round in 0..3 {
        let wanted = fill(&ranks, &call, round);
        let again = if cfg!(miri) { 3 } else { 200 };
        // The ranks may be as many calls apart as are queued.
        on_each(&ranks, |rank, stream| {
            for _ in 0..again {
                call.enqueue(rank, stream);
            }
        });
        check(&ranks, &call, &wanted, format!("round {round}"));
    }
}

#[test]
fn streams_on_channels_of_their_own_do_not_wait_for_each_other() {
    let ranks = ranks(2);
    let calls = [
        sum(How::TwoShot, 0),
        sum(How::Packets, 1),
        sum(How::PacketsTwoShot, 2),
    ];
    let wanted = calls.each_ref().map(|call| fill(&ranks, call, 5));
    on_each(&ranks, |rank, _| {
        let streams = [(); 3].map(|()| rank.stream());
        for _ in 0..20 {
            // Each rank uses another order; if the calls waited for each other, this would deadlock.
            let mut order = [0, 1, 2];
            order.rotate_left(rank.rank as usize);
            for index in order {
                calls[index].enqueue(rank, streams[index]);
            }
        }
        for stream in streams {
            rank.synchronize(stream);
        }
    });
    for (call, wanted) in calls.iter().zip(&wanted) {
        check(&ranks, call, wanted, "several streams");
    }
}

#[test]
fn captured_calls_are_replayed_between_eager_ones() {
    let ranks = ranks(2);
    let calls = [
        sum(How::TwoShot, 0),
        sum(How::Packets, 1),
        sum(How::PacketsTwoShot, 2),
    ];
    let graphs: Vec<_> = ranks
        .iter()
        .map(|rank| {
            let stream = rank.stream();
            // SAFETY: the stream is live, and all memory outlives the graph.
            unsafe {
                rank.backend.capture_begin(stream).unwrap();
                for call in &calls {
                    call.enqueue(rank, stream);
                    call.enqueue(rank, stream);
                }
                let graph = rank.backend.capture_end(stream).unwrap();
                rank.backend.graph_instantiate(graph).unwrap()
            }
        })
        .collect();
    for round in 0..10 {
        let wanted = calls.each_ref().map(|call| fill(&ranks, call, round));
        on_each(&ranks, |rank, stream| {
            let graph = graphs[rank.rank as usize];
            for _ in 0..3 {
                calls[round as usize % 3].enqueue(rank, stream);
                // SAFETY: the graph and all memory outlive the stream.
                unsafe { rank.backend.graph_launch(graph, stream).unwrap() };
            }
        });
        for (call, wanted) in calls.iter().zip(&wanted) {
            check(&ranks, call, wanted, format!("replay {round}"));
        }
    }
}

#[rstest]
fn a_member_that_does_not_come_is_named_when_the_deadline_is_over(
    #[values(How::OneShot, How::Packets)] how: How,
    #[values(false, true)] aborted: bool,
) {
    let ranks = ranks(3);
    let limit = Duration::from_millis(if aborted { 10_000 } else { 60 });
    let both_have_come = &std::sync::Barrier::new(2);
    std::thread::scope(|scope| {
        for rank in &ranks[..2] {
            scope.spawn(move || {
                let stream = rank.stream();
                let start = Instant::now();
                sum(how, 0).enqueue_for(rank, stream, limit);
                if aborted {
                    both_have_come.wait();
                    std::thread::sleep(Duration::from_millis(30));
                    write(rank.mine(ABORT), 1);
                }
                rank.synchronize(stream);
                assert!(start.elapsed() < Duration::from_secs(5));
                let record = rank.record();
                let kind = WaitRecord::COLLECTIVE + CollectiveOperationCode::ALL_REDUCE.0;
                assert_eq!((record.state, record.kind), (2, kind));
                assert_eq!((record.rank, record.peer, record.slot), (rank.rank, 2, 0));
                assert_eq!((record.expected, record.seen), (1, 0));
                assert_eq!(record.reason, if aborted { 2 } else { 1 });
                assert!(aborted || record.elapsed_ns >= limit.as_nanos() as u64);
            });
        }
    });
}

#[test]
fn a_late_member_wakes_those_that_sleep() {
    let ranks = ranks(4);
    let call = sum(How::TwoShot, 0);
    let wanted = fill(&ranks, &call, 1);
    on_each(&ranks, |rank, stream| {
        std::thread::sleep(Duration::from_millis(40) * rank.rank);
        call.enqueue(rank, stream);
    });
    check(&ranks, &call, &wanted, "late");
    for rank in &ranks {
        for array in 0..5 {
            for peer in 0..4 {
                let word = SLOT_BYTES + (array * MAX_RANKS as u64 + peer) * SIGNAL_STRIDE;
                let sleepers = read(rank.at(rank.rank, SLOTS + word + 4));
                assert_eq!(sleepers, 0, "a sleeper is still counted");
            }
        }
    }
}

#[test]
fn numbers_out_of_range_are_refused() {
    let ranks = ranks(1);
    let rank = &ranks[0];
    let good = ReduceArguments {
        group: rank.group(0, CollectiveOperationCode::REDUCE),
        sources: NOWHERE,
        destinations: NOWHERE,
        count: 0,
        element: ElementTypeCode::I8,
        reduce: ReduceOpCode::SUM,
    };
    let refused = |change: &dyn Fn(&mut ReduceArguments)| {
        let mut arguments = good;
        change(&mut arguments);
        // SAFETY: all memory that the arguments name is live.
        let made = unsafe {
            rank.backend
                .collective_reduce(&arguments, &GEOMETRY, RawStream::NULL)
        };
        made.unwrap_err().status == Status::INVALID_ARGUMENT
    };
    assert!(refused(&|arguments| arguments.group.world = 0));
    assert!(refused(
        &|arguments| arguments.group.world = MAX_RANKS as u32 + 1
    ));
    assert!(refused(&|arguments| arguments.group.rank = 1));
    assert!(refused(&|arguments| arguments.element = ElementTypeCode(99)));
    assert!(refused(&|arguments| arguments.reduce = ReduceOpCode(0)));
    let packets = PacketArguments {
        group: CollectiveGroup {
            packet_bytes: 0,
            dependents: DependentsCode::ANSWERED,
            ..good.group
        },
        sources: NOWHERE,
        destinations: NOWHERE,
        send_bytes: [0; MAX_RANKS],
        receive_bytes: [0; MAX_RANKS],
    };
    // SAFETY: all memory that the arguments name is live.
    let made = unsafe {
        rank.backend
            .collective_packets(&packets, &GEOMETRY, RawStream::NULL)
    };
    assert!(made.unwrap_err().message.contains("too small"));
}
