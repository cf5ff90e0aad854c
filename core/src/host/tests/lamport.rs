//! Sums in Lamport packets among threads as ranks.

use super::collectives::{GEOMETRY, NOWHERE, contents, elements, on_each, put_bytes, reference};
use super::*;
use crate::backend::CollectiveKernels;
use rstest::rstest;

/// Layout of each rank's shared memory: counters, inbox, input, outputs of several calls.
pub(super) const COUNTERS: u64 = 64 * 1024;
pub(super) const INBOX: u64 = COUNTERS + 128;
pub(super) const PART: u64 = 1 << 16;
pub(super) const INPUT: u64 = 8 << 20;
pub(super) const OUTPUT: u64 = INPUT + PART;
/// Where a move out of place goes: behind the messages to all members.
pub(super) const MOVED: u64 = OUTPUT + (2 << 20);

pub(super) fn call(
    rank: &Rank,
    element: ElementTypeCode,
    reduce: ReduceOpCode,
    count: u64,
    to: u64,
) -> ReduceLamportArguments {
    let world = rank.bases.len() as u32;
    let mut arguments = ReduceLamportArguments {
        group: rank.group(0, CollectiveOperationCode::ALL_REDUCE),
        inboxes: NOWHERE,
        sources: NOWHERE,
        destination: rank.at(rank.rank, to),
        count,
        counters: rank.at(rank.rank, COUNTERS),
        part_bytes: PART as u32,
        element,
        reduce,
        dependents: DependentsCode::ANSWERED,
        pair: LamportPair::default(),
        share_bytes: 0,
        receiver: EVERY_MEMBER,
        reserved: 0,
    };
    for member in 0..world {
        arguments.inboxes[member as usize] = rank.at(member, INBOX);
        arguments.sources[member as usize] = rank.at(rank.rank, INPUT);
    }
    arguments.pair = arguments.pair_of();
    arguments
}

/// Makes a call's result one member's. Addresses that this rank does not need are null.
pub(super) fn received_by(root: u32, every: ReduceLamportArguments) -> ReduceLamportArguments {
    let mut arguments = ReduceLamportArguments {
        receiver: root,
        sources: NOWHERE,
        ..every
    };
    arguments.sources[root as usize] = every.sources[root as usize];
    if every.group.rank != root {
        arguments.destination = DeviceAddress::NULL;
    }
    arguments.pair = arguments.pair_of();
    arguments
}

pub(super) fn enqueue(rank: &Rank, stream: RawStream, arguments: &ReduceLamportArguments) {
    // SAFETY: all memory outlives the test's streams.
    unsafe {
        rank.backend
            .collective_reduce_lamport(arguments, &GEOMETRY, stream)
    }
    .unwrap();
}

/// Asserts that all calls have emptied all places that were full.
pub(super) fn assert_inboxes_are_empty(ranks: &[Rank]) {
    let parts = LAMPORT_BUFFERS * (ranks.len() as u64 - 1);
    let looked_at = if cfg!(miri) { 256 } else { PART / 4 };
    for rank in ranks {
        for part in 0..parts {
            let full = contents(rank.at(rank.rank, INBOX + part * PART), looked_at);
            let full = full.iter().position(|&byte| byte != 0);
            assert_eq!(full, None, "part {part} of rank {}", rank.rank);
        }
    }
}

/// Clears the sign bit of words whose bits are all set, as packets do. The last word may be partial.
pub(super) fn as_carried(mut bytes: Vec<u8>) -> Vec<u8> {
    for word in bytes.chunks_exact_mut(4) {
        if *word == [0xff; 4] {
            word[3] = 0x7f;
        }
    }
    bytes
}

const CARRIED: [ElementTypeCode; 5] = [
    ElementTypeCode::F16,
    ElementTypeCode::BF16,
    ElementTypeCode::F32,
    ElementTypeCode::F8_E4M3,
    ElementTypeCode::F8_E5M2,
];

#[rstest]
fn calls_of_any_length_in_turn_reduce_what_every_member_sent(#[values(2, 3, 8)] world: u32) {
    let ranks = world_with(world, 16 << 20);
    // Lengths that grow and shrink, so that what is emptied is not what is received.
    let counts: &[u64] = if cfg!(miri) {
        &[1, 9, 2, 5]
    } else {
        &[1, 9000, 17, 16, 2500, 3, 1000, 4]
    };
    for (number, element) in CARRIED.into_iter().enumerate() {
        for reduce in [ReduceOpCode::SUM, ReduceOpCode::AVERAGE] {
            let most = counts.iter().copied().max().unwrap_or(0);
            let inputs: Vec<_> = (0..world)
                .map(|rank| elements(element, most, 100 * number as u64 + u64::from(rank)))
                .collect();
            for (rank, input) in ranks.iter().zip(&inputs) {
                put_bytes(rank.at(rank.rank, INPUT), input);
            }
            let to = |index: usize| OUTPUT + (index as u64) * PART + 4;
            on_each(&ranks, |rank, stream| {
                for (index, &count) in counts.iter().enumerate() {
                    enqueue(rank, stream, &call(rank, element, reduce, count, to(index)));
                }
            });
            for (index, &count) in counts.iter().enumerate() {
                let bytes = count * element.bytes();
                let sent: Vec<_> = inputs
                    .iter()
                    .map(|input| as_carried(input[..bytes as usize].to_vec()))
                    .collect();
                let wanted = contents(ranks[0].at(0, to(index)), bytes);
                for (place, rank) in ranks.iter().enumerate() {
                    let made = contents(rank.at(rank.rank, to(index)), bytes);
                    assert_eq!(made, wanted, "rank {place} has other bits than rank 0");
                    assert_eq!(rank.record().state, 0);
                }
                assert_same_numbers(element, &wanted, &reference(element, reduce, &sent));
            }
        }
    }
}

/// NaNs need not have the same payload.
pub(super) fn assert_same_numbers(element: ElementTypeCode, made: &[u8], wanted: &[u8]) {
    let width = element.bytes() as usize;
    for (index, (made, wanted)) in made.chunks(width).zip(wanted.chunks(width)).enumerate() {
        assert!(
            made == wanted || is_nan(element, made) && is_nan(element, wanted),
            "element {index}"
        );
    }
}

fn is_nan(element: ElementTypeCode, bytes: &[u8]) -> bool {
    match element {
        ElementTypeCode::F16 => half::f16::from_le_bytes([bytes[0], bytes[1]]).is_nan(),
        ElementTypeCode::BF16 => half::bf16::from_le_bytes([bytes[0], bytes[1]]).is_nan(),
        ElementTypeCode::F8_E4M3 => bytes[0] & 0x7f == 0x7f,
        ElementTypeCode::F8_E5M2 => bytes[0] & 0x7f > 0x7c,
        _ => f32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]).is_nan(),
    }
}

#[test]
#[cfg_attr(miri, ignore = "each of 65,536 patterns")]
fn every_pattern_of_16_bits_arrives_and_all_members_get_the_same_bits() {
    let ranks = world_with(2, 16 << 20);
    for element in [ElementTypeCode::F16, ElementTypeCode::BF16] {
        for half in 0..8u32 {
            // Runs of one pattern fill whole words; the other rank has negative zero, which adds nothing.
            let patterns: Vec<u8> = (0..8192u32)
                .flat_map(|index| {
                    let bits = ((half * 8192 + index) as u16).to_le_bytes();
                    [bits, bits].concat()
                })
                .collect();
            let zeros = [0x00, 0x80].repeat(patterns.len() / 2);
            put_bytes(ranks[0].at(0, INPUT), &patterns);
            put_bytes(ranks[1].at(1, INPUT), &zeros);
            let count = patterns.len() as u64 / 2;
            on_each(&ranks, |rank, stream| {
                enqueue(
                    rank,
                    stream,
                    &call(rank, element, ReduceOpCode::SUM, count, OUTPUT),
                );
            });
            let made = contents(ranks[0].at(0, OUTPUT), patterns.len() as u64);
            assert_eq!(
                made,
                contents(ranks[1].at(1, OUTPUT), patterns.len() as u64)
            );
            assert_same_numbers(element, &made, &patterns);
        }
    }
}

/// Makes a call two-shot, of elements at `from`, in the shortest shares.
pub(super) fn in_shares(
    rank: &Rank,
    from: u64,
    one_shot: ReduceLamportArguments,
) -> ReduceLamportArguments {
    let world = one_shot.group.world;
    let share_bytes = one_shot.bytes().div_ceil(world.into());
    let mut arguments = ReduceLamportArguments {
        share_bytes: share_bytes.next_multiple_of(16),
        ..one_shot
    };
    for member in 0..world {
        // A share without elements needs no address.
        arguments.sources[member as usize] = match arguments.share_of(member) {
            0 => DeviceAddress::NULL,
            _ => rank.at(rank.rank, from + u64::from(member) * arguments.share_bytes),
        };
    }
    arguments.pair = arguments.pair_of();
    arguments
}

#[rstest]
fn two_shot_calls_in_turn_give_every_member_the_same_bits(
    #[values(2, 3, 5)] world: u32,
    #[values(false, true)] in_place: bool,
) {
    const BEHIND: [u8; 32] = [0xa5; 32];
    let ranks = world_with(world, 16 << 20);
    // The last shares are often short or empty.
    let counts: &[u64] = if cfg!(miri) {
        &[1, 9, 2, 17]
    } else {
        &[1, 2501, 17, 16, 3, 1000, 4]
    };
    let from = |call: usize| OUTPUT + call as u64 * PART;
    let to = |call: usize| match in_place {
        true => from(call),
        false => MOVED + call as u64 * PART + 4,
    };
    for (number, element) in CARRIED.into_iter().enumerate() {
        let reduce = [ReduceOpCode::SUM, ReduceOpCode::AVERAGE][number % 2];
        let input = |rank: u32, call: usize| {
            let seed = 100 * number as u64 + 10 * call as u64 + u64::from(rank);
            elements(element, counts[call], seed)
        };
        for rank in &ranks {
            for call in 0..counts.len() {
                let input = input(rank.rank, call);
                put_bytes(rank.at(rank.rank, to(call) + input.len() as u64), &BEHIND);
                put_bytes(rank.at(rank.rank, from(call)), &input);
            }
        }
        on_each(&ranks, |rank, stream| {
            for (index, &count) in counts.iter().enumerate() {
                let one_shot = call(rank, element, reduce, count, to(index));
                enqueue(rank, stream, &in_shares(rank, from(index), one_shot));
            }
        });
        for (index, &count) in counts.iter().enumerate() {
            let bytes = count * element.bytes();
            let sent: Vec<_> = (0..world)
                .map(|rank| as_carried(input(rank, index)))
                .collect();
            let wanted = contents(ranks[0].at(0, to(index)), bytes);
            for (place, rank) in ranks.iter().enumerate() {
                let made = contents(rank.at(rank.rank, to(index)), bytes);
                assert_eq!(made, wanted, "rank {place} has other bits than rank 0");
                assert_eq!(
                    contents(rank.at(rank.rank, to(index) + bytes), 32),
                    BEHIND,
                    "rank {place} stored more than {count} elements"
                );
                assert_eq!(rank.record().state, 0);
            }
            assert_same_numbers(element, &wanted, &reference(element, reduce, &sent));
        }
        assert_inboxes_are_empty(&ranks);
    }
}

#[rstest]
#[cfg_attr(miri, ignore = "Miri chooses the bits of a NaN at random")]
fn words_of_all_bits_set_become_the_same_bits_on_every_member(
    #[values(ElementTypeCode::F16, ElementTypeCode::F32, ElementTypeCode::F8_E5M2)]
    element: ElementTypeCode,
    #[values(false, true)] two_shot: bool,
) {
    let ranks = world_with(2, 16 << 20);
    put_bytes(ranks[0].at(0, INPUT), &[0xff; 100]);
    put_bytes(ranks[1].at(1, INPUT), &[0; 100]);
    on_each(&ranks, |rank, stream| {
        let count = 100 / element.bytes();
        let mut arguments = call(rank, element, ReduceOpCode::SUM, count, OUTPUT);
        if two_shot {
            arguments = in_shares(rank, INPUT, arguments);
        }
        enqueue(rank, stream, &arguments);
    });
    let made = contents(ranks[0].at(0, OUTPUT), 100);
    assert_eq!(made, contents(ranks[1].at(1, OUTPUT), 100));
    assert_same_numbers(element, &made, &[0xff; 100]);
}

#[test]
fn a_member_that_sends_no_result_is_named_at_the_deadline_and_no_later_call_sends() {
    let ranks = world_with(3, 16 << 20);
    let short = Duration::from_millis(200);
    on_each(&ranks, |rank, stream| {
        // The last member sends words for each share, but then no result.
        let count = if rank.rank == 2 { 4 } else { 12 };
        let mut arguments = call(rank, ElementTypeCode::F32, ReduceOpCode::SUM, count, OUTPUT);
        if rank.rank != 2 {
            arguments = in_shares(rank, INPUT, arguments);
            arguments.group.watch = rank.watch(short);
        }
        enqueue(rank, stream, &arguments);
    });
    for rank in &ranks[..2] {
        let record = rank.record();
        assert_eq!((record.state, record.peer), (2, 2));
        assert!(record.elapsed_ns >= short.as_nanos() as u64);
    }
    assert_eq!(ranks[2].record().state, 0);
    on_each(&ranks[..2], |rank, stream| {
        let next = call(rank, ElementTypeCode::F32, ReduceOpCode::SUM, 4, OUTPUT);
        enqueue(rank, stream, &next);
    });
    let second_buffer = INBOX + 2 * PART;
    assert_eq!(read(ranks[2].at(2, second_buffer)), 0, "rank 0 has sent");
    assert_eq!(
        read(ranks[2].at(2, second_buffer + PART)),
        0,
        "rank 1 has sent"
    );
}

#[rstest]
fn a_member_that_does_not_come_is_named_at_the_deadline(#[values(false, true)] two_shot: bool) {
    let ranks = world_with(3, 16 << 20);
    let here = &ranks[..2];
    let short = Duration::from_millis(50);
    on_each(here, |rank, stream| {
        let mut arguments = call(rank, ElementTypeCode::F32, ReduceOpCode::SUM, 5, OUTPUT);
        if two_shot {
            arguments = in_shares(rank, INPUT, arguments);
        }
        arguments.group.watch = rank.watch(short);
        enqueue(rank, stream, &arguments);
    });
    for rank in here {
        let record = rank.record();
        assert_eq!((record.state, record.peer), (2, 2));
        assert!(record.elapsed_ns >= short.as_nanos() as u64);
    }
}

#[rstest]
#[case::an_integer(ElementTypeCode::I32, ReduceOpCode::SUM, 1, PART as u32)]
#[case::a_double(ElementTypeCode::F64, ReduceOpCode::SUM, 1, PART as u32)]
#[case::a_maximum(ElementTypeCode::F32, ReduceOpCode::MAXIMUM, 1, PART as u32)]
#[case::nothing(ElementTypeCode::F32, ReduceOpCode::SUM, 0, PART as u32)]
#[case::more_than_a_part(ElementTypeCode::F32, ReduceOpCode::SUM, 5, 16)]
#[case::an_odd_part(ElementTypeCode::F32, ReduceOpCode::SUM, 1, 20)]
fn what_packets_cannot_carry_is_refused(
    #[case] element: ElementTypeCode,
    #[case] reduce: ReduceOpCode,
    #[case] count: u64,
    #[case] part_bytes: u32,
) {
    let ranks = world_with(2, 16 << 20);
    let mut arguments = call(&ranks[0], element, reduce, count, OUTPUT);
    arguments.part_bytes = part_bytes;
    refused(&ranks[0], &arguments);
}

/// Returns why a call is refused.
fn refused(rank: &Rank, arguments: &ReduceLamportArguments) -> String {
    // SAFETY: the call is refused before it uses its arguments.
    let refused = unsafe {
        rank.backend
            .collective_reduce_lamport(arguments, &GEOMETRY, RawStream::NULL)
    };
    let failure = refused.unwrap_err();
    assert_eq!(failure.status, Status::INVALID_ARGUMENT);
    failure.message
}

#[rstest]
#[case::no_whole_vectors(24, 64, EVERY_MEMBER, "2 shares of 24 bytes")]
#[case::shares_that_do_not_hold_all(16, 64, EVERY_MEMBER, "2 shares of 16 bytes")]
#[case::no_room_for_two_shares(32, 48, EVERY_MEMBER, "40 bytes take 64 of a part of 48")]
#[case::shares_for_one_receiver(32, 64, 1, "receiver 1 of a two-shot")]
#[case::a_receiver_of_another_group(0, 64, 2, "receiver 2")]
fn shares_and_receivers_that_do_not_fit_are_refused(
    #[case] share_bytes: u64,
    #[case] part_bytes: u32,
    #[case] receiver: u32,
    #[case] why: &str,
) {
    let ranks = world_with(2, 16 << 20);
    let arguments = ReduceLamportArguments {
        share_bytes,
        part_bytes,
        receiver,
        ..call(
            &ranks[0],
            ElementTypeCode::F32,
            ReduceOpCode::SUM,
            10,
            OUTPUT,
        )
    };
    let said = refused(&ranks[0], &arguments);
    assert!(said.contains(why), "{said}");
}
