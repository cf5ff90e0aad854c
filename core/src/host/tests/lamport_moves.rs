//! Moves in Lamport packets among threads as ranks, between sums on the same inboxes.

use super::collectives::{GEOMETRY, NOWHERE, contents, on_each, put_bytes, reference};
use super::lamport::*;
use super::*;
use crate::backend::CollectiveKernels;
use rstest::rstest;

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
        sender: EVERY_MEMBER,
        receiver: EVERY_MEMBER,
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

/// Makes a move that of one sender or receiver. Addresses of peers' messages that this rank does not need are null.
fn between(sender: u32, receiver: u32, every: MoveLamportArguments) -> MoveLamportArguments {
    let mut arguments = MoveLamportArguments {
        sender,
        receiver,
        ..every
    };
    let own = every.group.rank;
    for member in (0..every.group.world).filter(|&member| member != own) {
        if arguments.bytes_between(own, member) == 0 {
            arguments.sources[member as usize] = DeviceAddress::NULL;
        }
        if arguments.bytes_between(member, own) == 0 {
            arguments.destinations[member as usize] = DeviceAddress::NULL;
        }
    }
    arguments.pair = arguments.pair_of();
    arguments
}

#[rstest]
#[case::a_scatter(1, EVERY_MEMBER)]
#[case::a_gather(EVERY_MEMBER, 1)]
#[case::one_message(0, 1)]
fn one_member_sends_or_receives_between_calls_of_every_member(
    #[case] sender: u32,
    #[case] receiver: u32,
    #[values(2, 3, 5)] world: u32,
    #[values(false, true)] in_place: bool,
) {
    const F32: ElementTypeCode = ElementTypeCode::F32;
    const SUM: ReduceOpCode = ReduceOpCode::SUM;
    const UNTOUCHED: [u8; 1] = [0xa5];
    let ranks = world_with(world, 16 << 20);
    let from = if in_place { INPUT } else { MOVED };
    let count = if cfg!(miri) { 13 } else { 701 };
    let sums = [0, 1, 2].map(|index| OUTPUT + (3 << 20) + index * PART);
    for (turn, bytes) in [700u64, 3, 496, 1001].into_iter().enumerate() {
        let root = turn as u32 % world;
        let length = (u64::from(world) * bytes).max(4 * count);
        let inputs: Vec<_> = (0..u64::from(world))
            .map(|rank| often_marked(length, 1 + rank))
            .collect();
        for (rank, input) in ranks.iter().zip(&inputs) {
            put_bytes(rank.at(rank.rank, INPUT), input);
            put_bytes(rank.at(rank.rank, INPUT + length), input);
            put_bytes(rank.at(rank.rank, MOVED), &UNTOUCHED.repeat(5 * 1001));
        }
        on_each(&ranks, |rank, stream| {
            let sum = |to| call(rank, F32, SUM, count, to);
            // The sums' elements are not those that are moved in place.
            let copied = |mut arguments: ReduceLamportArguments| {
                let own = rank.at(rank.rank, INPUT + length);
                arguments.sources[..world as usize].fill(own);
                arguments.pair = arguments.pair_of();
                arguments
            };
            // Each kind is the last in its buffer in some turn.
            for kind in (0..4).map(|kind| (turn + kind) % 4) {
                let arguments = match kind {
                    0 => {
                        let moved = exchange(rank, bytes, in_place);
                        enqueue_move(rank, stream, &between(sender, receiver, moved));
                        continue;
                    }
                    1 => received_by(root, copied(sum(sums[0]))),
                    2 => in_shares(rank, INPUT + length, sum(sums[1])),
                    _ => copied(sum(sums[2])),
                };
                enqueue(rank, stream, &arguments);
            }
        });
        let sent: Vec<_> = inputs
            .iter()
            .map(|input| as_carried(input[..4 * count as usize].to_vec()))
            .collect();
        let wanted = reference(F32, SUM, &sent);
        for rank in &ranks {
            let at = |offset, bytes| contents(rank.at(rank.rank, offset), bytes);
            let moved = between(sender, receiver, exchange(rank, bytes, in_place));
            for (member, input) in inputs.iter().enumerate() {
                let offset = member * bytes as usize;
                let wanted = if moved.bytes_between(member as u32, rank.rank) != 0 {
                    &input[rank.rank as usize * bytes as usize..][..bytes as usize]
                } else if in_place {
                    &inputs[rank.rank as usize][offset..][..bytes as usize]
                } else {
                    &UNTOUCHED.repeat(bytes as usize)
                };
                let made = at(from + offset as u64, bytes);
                assert!(made == wanted, "{bytes} from {member} at {}", rank.rank);
            }
            for (index, &to) in sums.iter().enumerate() {
                if index != 0 || rank.rank == root {
                    assert_same_numbers(F32, &at(to, 4 * count), &wanted);
                }
            }
            assert_eq!(rank.record().state, 0);
        }
        assert_inboxes_are_empty(&ranks);
    }
}

#[test]
fn a_member_without_data_sends_a_vector_of_zeros_or_a_line() {
    // Rank 0 alone enqueues a call, and gives up. So all that it has sent is still there.
    let sent_by = |enqueue: &(dyn Fn(&Rank, RawStream) + Sync)| {
        let ranks = world_with(3, 16 << 20);
        on_each(&ranks[..1], enqueue);
        let words_at = |rank: u32| {
            let words = (0..PART / 4).map(|index| read(ranks[0].at(rank, INBOX + 4 * index)));
            words.take_while(|&word| word != 0).collect::<Vec<_>>()
        };
        [words_at(1), words_at(2)]
    };
    let watch = |rank: &Rank| rank.watch(Duration::from_millis(5));
    let [none, all] = sent_by(&|rank, stream| {
        let every = call(rank, ElementTypeCode::F32, ReduceOpCode::SUM, 700, OUTPUT);
        let mut arguments = received_by(2, every);
        arguments.group.watch = watch(rank);
        enqueue(rank, stream, &arguments);
    });
    assert_eq!((none, all.len()), (vec![u32::MAX; 4], 700));
    let [none, all] = sent_by(&|rank, stream| {
        let mut arguments = between(EVERY_MEMBER, 2, exchange(rank, 700, false));
        arguments.group.watch = watch(rank);
        enqueue_move(rank, stream, &arguments);
    });
    let marks = vec![1 << 31; 4];
    assert_eq!(none, [vec![u32::MAX; 124], marks].concat());
    assert_eq!(all.len(), 256);
}

#[rstest]
fn a_broadcast_sends_the_same_bytes_to_every_member(#[values(false, true)] in_place: bool) {
    let ranks = world_with(3, 16 << 20);
    let message = often_marked(1000, 7);
    put_bytes(ranks[2].at(2, INPUT), &message);
    let to = if in_place { INPUT } else { MOVED };
    on_each(&ranks, |rank, stream| {
        let mut arguments = between(2, EVERY_MEMBER, exchange(rank, 1000, in_place));
        if rank.rank == 2 {
            arguments.sources[..3].fill(rank.at(2, INPUT));
        }
        arguments.destinations[2] = rank.at(rank.rank, to);
        enqueue_move(rank, stream, &arguments);
    });
    for rank in &ranks {
        assert_eq!(contents(rank.at(rank.rank, to), 1000), message);
    }
}

#[rstest]
#[case::nothing(0, PART as u32, EVERY_MEMBER, EVERY_MEMBER)]
#[case::no_room_for_the_marks(PART, PART as u32, EVERY_MEMBER, EVERY_MEMBER)]
#[case::an_odd_part(16, 1028, EVERY_MEMBER, EVERY_MEMBER)]
#[case::a_sender_of_another_group(16, PART as u32, 2, EVERY_MEMBER)]
#[case::a_receiver_of_another_group(16, PART as u32, 0, 2)]
fn a_move_that_a_part_cannot_hold_or_between_strangers_is_refused(
    #[case] bytes: u64,
    #[case] part_bytes: u32,
    #[case] sender: u32,
    #[case] receiver: u32,
) {
    let ranks = world_with(2, 16 << 20);
    let arguments = MoveLamportArguments {
        part_bytes,
        sender,
        receiver,
        ..exchange(&ranks[0], bytes, false)
    };
    // SAFETY: the call is refused before it uses its arguments.
    let refused = unsafe {
        ranks[0]
            .backend
            .collective_move_lamport(&arguments, &GEOMETRY, RawStream::NULL)
    };
    assert_eq!(refused.unwrap_err().status, Status::INVALID_ARGUMENT);
}
