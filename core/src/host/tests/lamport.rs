//! Sums and moves in Lamport packets among threads as ranks.

use super::collectives::{GEOMETRY, NOWHERE, contents, elements, on_each, put_bytes, reference};
use super::*;
use crate::backend::CollectiveKernels;
use rstest::rstest;

/// Layout of each rank's shared memory: counters, inbox, input, outputs of several calls.
const COUNTERS: u64 = 64 * 1024;
const INBOX: u64 = COUNTERS + 128;
const PART: u64 = 1 << 16;
const INPUT: u64 = 8 << 20;
const OUTPUT: u64 = INPUT + PART;
/// Where a move out of place goes: behind the messages to all members.
const MOVED: u64 = OUTPUT + (2 << 20);

fn call(
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
    };
    for member in 0..world {
        arguments.inboxes[member as usize] = rank.at(member, INBOX);
        arguments.sources[member as usize] = rank.at(rank.rank, INPUT);
    }
    arguments.pair = arguments.pair_of();
    arguments
}

fn enqueue(rank: &Rank, stream: RawStream, arguments: &ReduceLamportArguments) {
    // SAFETY: all memory outlives the test's streams.
    unsafe {
        rank.backend
            .collective_reduce_lamport(arguments, &GEOMETRY, stream)
    }
    .unwrap();
}

/// Clears the sign bit of words whose bits are all set, as packets do. The last word may be partial.
fn as_carried(mut bytes: Vec<u8>) -> Vec<u8> {
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
fn assert_same_numbers(element: ElementTypeCode, made: &[u8], wanted: &[u8]) {
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

#[test]
fn a_member_that_does_not_come_is_named_at_the_deadline() {
    let ranks = world_with(3, 16 << 20);
    let here = &ranks[..2];
    let short = Duration::from_millis(50);
    on_each(here, |rank, stream| {
        let mut arguments = call(rank, ElementTypeCode::F32, ReduceOpCode::SUM, 5, OUTPUT);
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
    let stream = ranks[0].stream();
    let mut arguments = call(&ranks[0], element, reduce, count, OUTPUT);
    arguments.part_bytes = part_bytes;
    // SAFETY: nothing is enqueued.
    let refused = unsafe {
        ranks[0]
            .backend
            .collective_reduce_lamport(&arguments, &GEOMETRY, stream)
    };
    assert_eq!(refused.unwrap_err().status, Status::INVALID_ARGUMENT);
    // SAFETY: the stream is idle and not used again.
    unsafe { ranks[0].backend.stream_destroy(stream) }.unwrap();
}

/// An all-to-all of `bytes` from each member to each; to another place, or in place of what is sent.
fn exchange(rank: &Rank, bytes: u64, in_place: bool) -> MoveLamportArguments {
    let world = rank.bases.len() as u32;
    let mut arguments = MoveLamportArguments {
        group: rank.group(0, CollectiveOperationCode::ALL_TO_ALL),
        inboxes: NOWHERE,
        sources: NOWHERE,
        destinations: NOWHERE,
        bytes,
        counters: rank.at(rank.rank, COUNTERS),
        part_bytes: PART as u32,
        dependents: DependentsCode::ANSWERED,
        pair: MoveLamportPair::default(),
    };
    let to = if in_place { INPUT } else { MOVED };
    for member in 0..world {
        let offset = u64::from(member) * bytes;
        arguments.inboxes[member as usize] = rank.at(member, INBOX);
        arguments.sources[member as usize] = rank.at(rank.rank, INPUT + offset);
        arguments.destinations[member as usize] = rank.at(rank.rank, to + offset);
    }
    arguments.pair = arguments.pair_of();
    arguments
}

fn enqueue_move(rank: &Rank, stream: RawStream, arguments: &MoveLamportArguments) {
    // SAFETY: all memory outlives the test's streams.
    unsafe {
        rank.backend
            .collective_move_lamport(arguments, &GEOMETRY, stream)
    }
    .unwrap();
}

/// Bytes of which about every other word has all bits set, and of which some rows have nothing else.
fn often_marked(length: u64, seed: u64) -> Vec<u8> {
    let mut state = seed;
    let words = (0..length.div_ceil(4)).flat_map(|index| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        let marked = state >> 63 == 0 || index / 128 % 3 == 2;
        let word = if marked {
            u32::MAX
        } else {
            (state >> 32) as u32
        };
        word.to_le_bytes()
    });
    words.take(length as usize).collect()
}

#[rstest]
fn moves_of_any_bits_and_length_arrive_between_sums_on_the_same_inboxes(
    #[values(2, 3)] world: u32,
    #[values(false, true)] in_place: bool,
) {
    let ranks = world_with(world, 16 << 20);
    let most = MoveLamportArguments::capacity(PART);
    let lengths: &[u64] = if cfg!(miri) {
        &[3, 500]
    } else {
        &[1, most, 495, 496, 497, 16, 12345]
    };
    for &bytes in lengths {
        let inputs: Vec<_> = (0..u64::from(world))
            .map(|rank| often_marked(u64::from(world) * bytes, 1 + rank))
            .collect();
        for (rank, input) in ranks.iter().zip(&inputs) {
            put_bytes(rank.at(rank.rank, INPUT), input);
        }
        let after = OUTPUT + (4 << 20);
        on_each(&ranks, |rank, stream| {
            enqueue_move(rank, stream, &exchange(rank, bytes, in_place));
            let sum = call(rank, ElementTypeCode::F32, ReduceOpCode::SUM, 9, after);
            enqueue(rank, stream, &sum);
        });
        for rank in &ranks {
            let to = if in_place { INPUT } else { MOVED };
            for (member, input) in inputs.iter().enumerate() {
                let made = contents(rank.at(rank.rank, to + member as u64 * bytes), bytes);
                let sent = &input[(u64::from(rank.rank) * bytes) as usize..][..bytes as usize];
                assert!(made == sent, "{bytes} from {member} at {}", rank.rank);
            }
            assert_eq!(rank.record().state, 0);
        }
    }
}

#[rstest]
#[case::nothing(0, PART as u32)]
#[case::no_room_for_the_marks(PART, PART as u32)]
#[case::an_odd_part(16, 1028)]
fn a_move_that_a_part_cannot_hold_is_refused(#[case] bytes: u64, #[case] part_bytes: u32) {
    let ranks = world_with(2, 16 << 20);
    let stream = ranks[0].stream();
    let arguments = MoveLamportArguments {
        part_bytes,
        ..exchange(&ranks[0], bytes, false)
    };
    // SAFETY: nothing is enqueued.
    let refused = unsafe {
        ranks[0]
            .backend
            .collective_move_lamport(&arguments, &GEOMETRY, stream)
    };
    assert_eq!(refused.unwrap_err().status, Status::INVALID_ARGUMENT);
    // SAFETY: the stream is idle and not used again.
    unsafe { ranks[0].backend.stream_destroy(stream) }.unwrap();
}
