use super::*;
use proptest::prelude::*;

const GIB: u64 = 1 << 30;

fn bases(world: usize) -> Vec<DeviceAddress> {
    (1..=world as u64)
        .map(|rank| DeviceAddress(rank * GIB))
        .collect()
}

/// Calls `check` with the shape of every member, over allocations 1 GiB apart.
fn with_shapes(
    operation: CollectiveOperationCode,
    members: &[usize],
    root: usize,
    parts: PartLayout<'_>,
    in_place: bool,
    mut check: impl FnMut(Shape<'_>),
) {
    let bases = bases(members.iter().max().unwrap() + 1);
    let place = |offset| Range::Symmetric {
        bases: &bases,
        members,
        offset,
    };
    for rank in 0..members.len() {
        check(Shape {
            operation,
            rank,
            world: members.len(),
            root,
            destination: place(0),
            source: place(1 << 20),
            in_place,
            parts,
        });
    }
}

fn copies(shape: &Shape<'_>, algorithm: AlgorithmCode) -> Vec<Copy> {
    let mut copies = Vec::new();
    shape.moves(algorithm, 0, |copy| copies.push(copy));
    copies
}

/// Returns the member whose memory contains an address.
fn owner(address: DeviceAddress) -> u64 {
    address.0 / GIB - 1
}

proptest! {
    #[test]
    fn shares_cover_all_elements_once_and_differ_by_a_vector_at_most(
        count in 0u64..5000,
        element_bytes in prop::sample::select(&[1u64, 2, 4, 8][..]),
        world in 1usize..=MAX_RANKS,
    ) {
        let mut next = 0;
        let mut lengths = Vec::new();
        for member in 0..world {
            let (start, length) = share(count, element_bytes, world, member);
            prop_assert_eq!(start, next);
            prop_assert!(start == count || (start * element_bytes).is_multiple_of(VECTOR));
            next += length;
            lengths.push(length * element_bytes);
        }
        prop_assert_eq!(next, count);
        let most = lengths.iter().max().unwrap();
        let least = lengths.iter().min().unwrap();
        prop_assert!(most - least <= 2 * VECTOR, "{:?}", lengths);
    }
}

#[test]
fn parts_lie_one_behind_the_other() {
    let shares = PartLayout::Shares {
        count: 1003,
        element_bytes: 4,
        world: 3,
    };
    for (parts, all) in [
        (PartLayout::Equal(48), 3 * 48),
        (counted(&[3, 0, 9]), 12),
        (shares, 1003 * 4),
    ] {
        let mut next = 0;
        for member in 0..3 {
            assert_eq!(parts.offset(member), next, "{parts:?}");
            next += parts.bytes(member);
        }
        assert_eq!(next, all, "{parts:?}");
    }
}

#[test]
fn at_every_step_of_a_rotated_move_each_member_is_written_by_one_other() {
    use CollectiveOperationCode as O;
    for operation in [O::ALL_GATHER, O::ALL_TO_ALL] {
        for algorithm in [AlgorithmCode::PUSH, AlgorithmCode::PULL] {
            let parts = PartLayout::Equal(100);
            let mut steps = vec![Vec::new(); 5];
            with_shapes(operation, &[0, 1, 2, 3, 4], 0, parts, false, |shape| {
                for (step, Copy(to, from, _)) in copies(&shape, algorithm).into_iter().enumerate() {
                    let remote = if algorithm == AlgorithmCode::PUSH {
                        to
                    } else {
                        from
                    };
                    steps[step].push(owner(remote));
                }
            });
            for mut remotes in steps {
                remotes.sort_unstable();
                assert_eq!(remotes, [0, 1, 2, 3, 4]);
            }
        }
    }
}

#[test]
fn the_copy_to_oneself_comes_last() {
    let parts = PartLayout::Equal(8);
    let operation = CollectiveOperationCode::ALL_GATHER;
    with_shapes(operation, &[0, 1, 2, 3], 0, parts, false, |shape| {
        let last = *copies(&shape, AlgorithmCode::PUSH).last().unwrap();
        assert_eq!(owner(last.0), shape.rank as u64);
        assert_eq!(owner(last.1), shape.rank as u64);
    });
}

#[test]
fn in_place_each_member_gives_its_own_part_of_the_larger_range() {
    let parts = counted(&[3, 5, 9]);
    let operation = CollectiveOperationCode::ALL_GATHER_V;
    with_shapes(operation, &[0, 1, 2], 0, parts, true, |shape| {
        for Copy(to, from, bytes) in copies(&shape, AlgorithmCode::PULL) {
            // The same bytes of the same range, at another member.
            assert_eq!(to.0 % GIB, from.0 % GIB);
            assert_eq!(owner(to), shape.rank as u64);
            assert_eq!(bytes, parts.bytes(owner(from) as usize));
        }
    });
}

#[test]
fn where_a_member_gives_nothing_none_has_to_know_whether_another_is_in_place() {
    let parts = counted(&[3, 0, 9]);
    let operation = CollectiveOperationCode::ALL_GATHER_V;
    for in_place in [false, true] {
        with_shapes(operation, &[0, 1, 2], 0, parts, in_place, |shape| {
            for Copy(_, from, _) in copies(&shape, AlgorithmCode::PULL) {
                assert_eq!(owner(from), shape.rank as u64);
            }
        });
    }
}

#[test]
fn in_a_swap_every_byte_of_all_parts_but_the_own_changes_places_once() {
    for (world, bytes) in [(2, 1000), (3, 16), (5, 1), (4, 0)] {
        let parts = PartLayout::Equal(bytes);
        let members: Vec<usize> = (0..world).collect();
        let mut swapped = std::collections::HashMap::new();
        let operation = CollectiveOperationCode::ALL_TO_ALL;
        with_shapes(operation, &members, 0, parts, true, |shape| {
            for Copy(own, theirs, length) in copies(&shape, AlgorithmCode::SWAP) {
                assert_eq!(owner(own), shape.rank as u64);
                for byte in 0..length {
                    for (one, other) in [(own, theirs), (theirs, own)] {
                        let before = swapped.insert(one.0 + byte, other.0 + byte);
                        assert_eq!(before, None, "nobody else touches it");
                    }
                }
            }
        });
        for rank in 0..world as u64 {
            for peer in (0..world as u64).filter(|&peer| peer != rank) {
                for byte in 0..bytes {
                    let place = |at: u64, of: u64| (at + 1) * GIB + of * bytes + byte;
                    assert_eq!(swapped[&place(rank, peer)], place(peer, rank));
                }
            }
        }
    }
}

#[test]
fn a_group_addresses_its_members_and_nobody_else() {
    let parts = PartLayout::Equal(16);
    let members = [6, 2, 4];
    let operation = CollectiveOperationCode::ALL_TO_ALL;
    with_shapes(operation, &members, 0, parts, false, |shape| {
        let own = members[shape.rank] as u64;
        for (index, Copy(to, from, _)) in
            copies(&shape, AlgorithmCode::PUSH).into_iter().enumerate()
        {
            let peer = (shape.rank + 1 + index) % 3;
            assert_eq!(owner(to), members[peer] as u64);
            assert_eq!(owner(from), own);
            // This member's part at the peer, the peer's part here.
            assert_eq!(to.0 % GIB, 16 * shape.rank as u64);
            assert_eq!(from.0 % GIB - (1 << 20), 16 * peer as u64);
        }
    });
}

#[test]
fn only_the_root_of_a_reduction_gets_the_result() {
    let parts = PartLayout::Equal(1000 * 4);
    let operation = CollectiveOperationCode::REDUCE;
    for algorithm in [AlgorithmCode::ONE_SHOT, AlgorithmCode::TWO_SHOT] {
        let mut reduced = 0;
        with_shapes(operation, &[0, 1, 2], 1, parts, false, |shape| {
            let (element, sum) = (ElementTypeCode::F32, ReduceOpCode::SUM);
            let arguments = shape.reduce_arguments(&header(), algorithm, element, sum);
            reduced += arguments.count;
            for (member, address) in arguments.destinations.iter().enumerate() {
                let written = arguments.count > 0 && address.0 != 0;
                assert!(!written || member == 1, "{}", algorithm.name());
            }
        });
        assert_eq!(reduced, 1000, "{}", algorithm.name());
    }
}

#[test]
fn what_one_member_pushes_is_the_share_that_another_reduces() {
    use CollectiveOperationCode as O;
    const SIZE: u64 = 4;
    for operation in [O::ALL_REDUCE, O::REDUCE, O::REDUCE_SCATTER] {
        let scatters = operation == O::REDUCE_SCATTER;
        let parts = match scatters {
            true => PartLayout::Equal(33 * SIZE),
            false => PartLayout::Equal(1001 * SIZE),
        };
        let (element, sum) = (ElementTypeCode::F32, ReduceOpCode::SUM);
        let mut all = Vec::new();
        with_shapes(operation, &[0, 1, 2, 3], 2, parts, false, |shape| {
            all.push(shape.reduce_push_arguments(
                &header(),
                AlgorithmCode::PUSH,
                element,
                sum,
                None,
            ));
        });
        for (receiver, arguments) in all.iter().enumerate() {
            assert_eq!(arguments.barrier == 0, scatters, "{}", operation.name());
            for (sender, pushed) in all.iter().enumerate() {
                assert_eq!(pushed.counts[receiver], arguments.reduce.count);
                assert_eq!(
                    pushed.sources[receiver],
                    arguments.reduce.sources[sender],
                    "{} from {sender} to {receiver}",
                    operation.name()
                );
            }
        }
        let counts = all[0].counts.iter().sum::<u64>();
        assert_eq!(counts, if scatters { 4 * 33 } else { 1001 });
    }
}

/// By every kernel, an address of a part at a distance is that of the part side by side, and its distance more.
#[test]
fn parts_at_a_distance_are_moved_and_reduced_where_they_lie() {
    use CollectiveOperationCode as O;
    let element = ElementTypeCode::F32;
    let (sum, bytes, stride) = (ReduceOpCode::SUM, 4096, 10_000);
    let parts = [
        PartLayout::Equal(bytes),
        PartLayout::Strided { stride, bytes },
    ];
    let moved = |member: usize| DeviceAddress(member as u64 * (stride - bytes));
    for algorithm in [AlgorithmCode::PUSH, AlgorithmCode::PULL] {
        let copied = parts.map(|parts| {
            let mut all = Vec::new();
            with_shapes(O::ALL_GATHER, &[0, 1, 2], 0, parts, false, |shape| {
                all.extend(copies(&shape, algorithm));
            });
            all
        });
        assert_eq!(copied[0].len(), 9);
        for (near, far) in copied[0].iter().zip(&copied[1]) {
            let member = (near.0.0 % GIB / bytes) as usize;
            assert_eq!(far.0.0, near.0.0 + moved(member).0);
            assert_eq!((far.1, far.2), (near.1, near.2));
        }
    }
    let reduced = parts.map(|parts| {
        let mut all = Vec::new();
        with_shapes(O::REDUCE_SCATTER, &[0, 1, 2], 0, parts, false, |shape| {
            let pulled = shape.reduce_arguments(&header(), AlgorithmCode::ONE_SHOT, element, sum);
            let packets =
                shape.reduce_packet_arguments(&header(), AlgorithmCode::PACKETS, element, sum);
            let pushed =
                shape.reduce_push_arguments(&header(), AlgorithmCode::PUSH, element, sum, None);
            all.push((pulled, packets, pushed));
        });
        all
    });
    for (rank, (near, far)) in reduced[0].iter().zip(&reduced[1]).enumerate() {
        assert_eq!((near.0.count, near.1.counts), (far.0.count, far.1.counts));
        for peer in 0..3 {
            let apart = |near: DeviceAddress, far: DeviceAddress| DeviceAddress(far.0 - near.0);
            assert_eq!(
                apart(near.0.sources[peer], far.0.sources[peer]),
                moved(rank)
            );
            assert_eq!(
                apart(near.1.sources[peer], far.1.sources[peer]),
                moved(peer)
            );
            assert_eq!(
                apart(near.2.sources[peer], far.2.sources[peer]),
                moved(peer)
            );
        }
    }
}

#[test]
fn what_one_member_sends_in_packets_or_pieces_another_expects() {
    use CollectiveOperationCode as O;
    for operation in [
        O::ALL_GATHER_V,
        O::ALL_TO_ALL,
        O::BROADCAST,
        O::GATHER,
        O::SCATTER,
    ] {
        let parts = match operation {
            O::ALL_GATHER_V => counted(&[7, 0, 130, 5]),
            O::BROADCAST => PartLayout::Equal(77),
            _ => PartLayout::Equal(33),
        };
        let mut all = Vec::new();
        with_shapes(operation, &[0, 1, 2, 3], 2, parts, false, |shape| {
            all.push(shape.piece_arguments(&header(), None));
        });
        for sender in 0..4 {
            assert_eq!(all[sender].longest, all[0].longest);
            for receiver in 0..4 {
                assert!(all[sender].send_bytes[receiver] <= all[sender].longest);
                assert_eq!(
                    all[sender].send_bytes[receiver],
                    all[receiver].receive_bytes[sender],
                    "{} from {sender} to {receiver}",
                    operation.name()
                );
            }
        }
    }
}

#[test]
fn no_more_copies_are_under_way_at_once_than_there_are() {
    let parts = PartLayout::Equal(16);
    let operation = CollectiveOperationCode::ALL_GATHER;
    with_shapes(operation, &[0, 1, 2], 0, parts, false, |shape| {
        let concurrent = |asked| {
            shape
                .move_arguments(&header(), AlgorithmCode::PUSH, 0, asked)
                .concurrent
        };
        assert_eq!((concurrent(0), concurrent(2), concurrent(9)), (3, 2, 3));
    });
}

#[test]
fn memory_that_only_its_rank_knows_is_enough_for_packets_and_pieces() {
    use CollectiveOperationCode as O;
    let reduces = |operation| matches!(operation, O::ALL_REDUCE | O::REDUCE | O::REDUCE_SCATTER);
    let members = [4, 0, 2];
    for operation in [
        O::ALL_REDUCE,
        O::REDUCE,
        O::REDUCE_SCATTER,
        O::ALL_GATHER,
        O::BROADCAST,
        O::ALL_TO_ALL,
        O::GATHER,
        O::SCATTER,
    ] {
        for in_place in [false, true] {
            let parts = PartLayout::Equal(960);
            with_shapes(operation, &members, 1, parts, in_place, |shape| {
                let own = |range: Range<'_>| Range::Own {
                    member: shape.rank,
                    start: range.at(shape.rank, 0),
                };
                let only_own = Shape {
                    destination: own(shape.destination),
                    source: own(shape.source),
                    ..shape
                };
                let case = format!("{operation:?} {in_place} at {}", shape.rank);
                let header = header();
                if reduces(operation) {
                    for algorithm in [AlgorithmCode::PACKETS, AlgorithmCode::PACKETS_TWO_SHOT] {
                        let sum = |shape: &Shape<'_>| {
                            shape.reduce_packet_arguments(
                                &header,
                                algorithm,
                                ElementTypeCode::F32,
                                ReduceOpCode::SUM,
                            )
                        };
                        let (all, own) = (sum(&shape), sum(&only_own));
                        assert_eq!(all.sources, own.sources, "{case}");
                        assert_eq!(all.destinations, own.destinations, "{case}");
                    }
                    let by_pieces = |shape: &Shape<'_>| {
                        shape.reduce_push_arguments(
                            &header,
                            AlgorithmCode::PIECES,
                            ElementTypeCode::F32,
                            ReduceOpCode::SUM,
                            None,
                        )
                    };
                    let (all, own) = (by_pieces(&shape), by_pieces(&only_own));
                    assert_eq!(own.barrier, 0, "{case}");
                    assert_eq!(all.sources, own.sources, "{case}");
                    assert_eq!(all.reduce.destinations, own.reduce.destinations, "{case}");
                    let rank = shape.rank;
                    assert_eq!(all.reduce.sources[rank], own.reduce.sources[rank], "{case}");
                } else {
                    let by_pieces = |shape: &Shape<'_>| shape.piece_arguments(&header, None);
                    let (all, own) = (by_pieces(&shape), by_pieces(&only_own));
                    assert_eq!(all.sources, own.sources, "{case}");
                    assert_eq!(all.destinations, own.destinations, "{case}");
                }
            });
        }
    }
}

fn header() -> Header<'static> {
    header_with(crate::Dependents::WhenAnswered)
}

/// Returns a header whose channel has [`DependentsCode::ANSWERED`], as every channel has between calls.
fn header_with(dependents: crate::Dependents) -> Header<'static> {
    const CHANNEL: &CollectiveGroup = &CollectiveGroup {
        watch: Watch {
            abort: DeviceAddress::NULL,
            record: DeviceAddress::NULL,
            aborted: DeviceAddress::NULL,
            deadline_ns: 0,
            rank: 0,
            reserved: 0,
        },
        slots: [DeviceAddress::NULL; MAX_RANKS],
        packet_bytes: 0,
        dependents: DependentsCode::ANSWERED,
        rank: 0,
        world: 0,
        slot: 0,
        operation: CollectiveOperationCode::BARRIER,
        members: [0; MAX_RANKS],
    };
    Header {
        channel: CHANNEL,
        operation: CollectiveOperationCode::BARRIER,
        watch: CHANNEL.watch,
        dependents,
    }
}

fn counted(counts: &[usize]) -> PartLayout<'_> {
    PartLayout::Counted {
        counts,
        element_bytes: 1,
    }
}

/// The ways in which Lamport packets carry a call of two members.
const BY_LAMPORT: [(CollectiveOperationCode, AlgorithmCode); 3] = [
    (CollectiveOperationCode::ALL_REDUCE, AlgorithmCode::LAMPORT),
    (
        CollectiveOperationCode::ALL_REDUCE,
        AlgorithmCode::LAMPORT_TWO_SHOT,
    ),
    (CollectiveOperationCode::ALL_GATHER, AlgorithmCode::LAMPORT),
];

#[test]
fn launches_in_lamport_packets_cover_a_message_in_whole_vectors() {
    let inboxes = lamport_inboxes(1 << 20);
    // Two-shot, each of two members takes a share and the result of one.
    let most = [1 << 20, 1 << 20, MoveLamportArguments::capacity(1 << 20)];
    for ((operation, algorithm), most) in BY_LAMPORT.into_iter().zip(most) {
        for bytes in [1, 17, most, most + 1, 3 * most, 10_000_019] {
            let parts = PartLayout::Equal(bytes);
            with_shapes(operation, &[0, 1], 0, parts, false, |shape| {
                let all: Vec<_> = shape.lamport_launches(algorithm, &inboxes).collect();
                let mut end = 0;
                for &(offset, length) in &all {
                    assert!(offset == end && offset % 16 == 0, "{bytes}: {all:?}");
                    assert!((1..=most).contains(&length), "{bytes}: {all:?}");
                    end = offset + length;
                }
                assert_eq!((end, all.len() as u64), (bytes, bytes.div_ceil(most)));
            });
        }
    }
}

proptest! {
    #[test]
    fn launches_in_lamport_packets_carry_each_byte_once_and_fit_into_parts_of_any_size(
        // Parts are multiples of 128 bytes, and a move's lines have 512.
        part in (4u32..400).prop_map(|units| units * 128),
        bytes in 1u64..400_000,
        way in 0..BY_LAMPORT.len(),
    ) {
        let inboxes = lamport_inboxes(part);
        let (part, parts) = (u64::from(part), PartLayout::Equal(bytes));
        let (operation, algorithm) = BY_LAMPORT[way];
        let mut all = Vec::new();
        with_shapes(operation, &[0, 1], 0, parts, false, |shape| {
            all.push(shape.lamport_launches(algorithm, &inboxes).collect::<Vec<_>>());
        });
        prop_assert_eq!(&all[0], &all[1], "members launch alike");
        let mut end = 0;
        for &(offset, length) in &all[0] {
            prop_assert_eq!((offset, offset % 16), (end, 0));
            let taken = match (operation, algorithm) {
                (CollectiveOperationCode::ALL_GATHER, _) => MoveLamportArguments::taken_bytes(length),
                (_, AlgorithmCode::LAMPORT_TWO_SHOT) => 2 * length.div_ceil(2).next_multiple_of(16),
                _ => length,
            };
            prop_assert!(length > 0 && taken <= part, "{} of {}: {:?}", bytes, part, all[0]);
            end = offset + length;
        }
        prop_assert_eq!(end, bytes);
    }

    #[test]
    fn shares_in_lamport_packets_are_equal_but_for_the_last_and_are_all_of_the_elements(
        world in 2usize..=8,
        count in 1u64..5000,
    ) {
        let members: Vec<usize> = (0..world).collect();
        let inboxes = lamport_inboxes(1 << 20);
        with_shapes(CollectiveOperationCode::ALL_REDUCE, &members, 0, PartLayout::Equal(2 * count), false, |shape| {
            let header = header();
            let mut call = shape.reduce_lamport_arguments(
                &header, AlgorithmCode::LAMPORT_TWO_SHOT, ElementTypeCode::BF16, ReduceOpCode::SUM, &inboxes,
                (0, 2 * count),
            );
            let first = call.sources[0].0;
            call.group.world = world as u32;
            assert_eq!(call.check(), Ok(()));
            let mut end = 0;
            for member in 0..world {
                let share = call.share_of(member as u32);
                let expected = if share == 0 { 0 } else { first + end };
                assert_eq!(call.sources[member].0, expected);
                assert!(share == call.share_bytes || end + share == 2 * count);
                end += share;
            }
            assert_eq!(end, 2 * count);
        });
    }
}

/// Messages between a root and the others have bytes; all others say only that their sender has begun.
#[test]
fn operations_with_a_root_move_in_lamport_packets_from_or_to_it() {
    use CollectiveOperationCode as O;
    for operation in [O::BROADCAST, O::SCATTER, O::GATHER] {
        with_shapes(
            operation,
            &[0, 1, 2],
            1,
            PartLayout::Equal(32),
            false,
            |shape| {
                let header = header();
                let call = shape.move_lamport_arguments(&header, &lamport_inboxes(512), (16, 16));
                for from in 0..3 {
                    for to in 0..3 {
                        let has = match operation {
                            O::GATHER => to == 1,
                            _ => from == 1,
                        };
                        assert_eq!(call.bytes_between(from, to), if has { 16 } else { 0 });
                    }
                }
                let own = shape.rank as u32;
                for peer in 0..3u32 {
                    // Of what is not sent there is no address, not even one moved by the offset.
                    let sends = call.bytes_between(own, peer) != 0;
                    let receives = call.bytes_between(peer, own) != 0;
                    assert_eq!(
                        call.sources[peer as usize] != DeviceAddress::NULL,
                        sends,
                        "{operation:?}"
                    );
                    assert_eq!(
                        call.destinations[peer as usize] != DeviceAddress::NULL,
                        receives,
                        "{operation:?}"
                    );
                }
            },
        );
    }
}

fn lamport_inboxes(part_bytes: u32) -> LamportInboxes {
    LamportInboxes {
        addresses: [DeviceAddress::NULL; MAX_RANKS],
        counters: DeviceAddress::NULL,
        part_bytes,
    }
}

#[test]
fn the_kernels_of_every_family_are_told_when_dependents_may_start() {
    use crate::Dependents;
    use crate::collectives::multicast::{MulticastAddresses, meeting};
    let (element, sum) = (ElementTypeCode::F32, ReduceOpCode::SUM);
    let lamport = lamport_inboxes(1 << 20);
    let reach = MulticastAddresses::default();
    for (dependents, code) in [
        (Dependents::WhenAnswered, DependentsCode::ANSWERED),
        (Dependents::AtEnd, DependentsCode::ENDED),
        (Dependents::Never, DependentsCode::NEVER),
    ] {
        let header = header_with(dependents);
        let check = |family: &str, group: &CollectiveGroup| {
            assert_eq!(group.dependents, code, "{family}, {dependents:?}");
        };
        let parts = PartLayout::Equal(64);
        let gathers = CollectiveOperationCode::ALL_GATHER;
        with_shapes(gathers, &[0, 1], 0, parts, false, |shape| {
            let moved = shape.move_arguments(&header, AlgorithmCode::PUSH, 0, 0);
            check("move, swap", &moved.group);
            check("packets", &shape.packet_arguments(&header).group);
            check("pieces", &shape.piece_arguments(&header, None).group);
            let moved = shape.move_lamport_arguments(&header, &lamport, (0, 64));
            check("move_lamport", &moved.group);
            assert_eq!(moved.dependents, code, "beside the pair");
        });
        let reduces = CollectiveOperationCode::ALL_REDUCE;
        with_shapes(reduces, &[0, 1], 0, parts, false, |shape| {
            let reduced = shape.reduce_arguments(&header, AlgorithmCode::TWO_SHOT, element, sum);
            check("reduce", &reduced.group);
            let algorithm = AlgorithmCode::PUSH;
            let pushed = shape.reduce_push_arguments(&header, algorithm, element, sum, None);
            check("reduce_push", &pushed.reduce.group);
            let algorithm = AlgorithmCode::PACKETS;
            let packets = shape.reduce_packet_arguments(&header, algorithm, element, sum);
            check("reduce_packets", &packets.group);
            let reduced = shape.reduce_lamport_arguments(
                &header,
                AlgorithmCode::LAMPORT,
                element,
                sum,
                &lamport,
                (0, 64),
            );
            check("reduce_lamport", &reduced.group);
            assert_eq!(reduced.dependents, code, "beside the pair");
            let algorithm = AlgorithmCode::MULTICAST;
            let multicast = shape.multicast_arguments(&header, &reach, algorithm, element, sum);
            check("multicast", &multicast.group);
        });
        let barrier = meeting(&header, DeviceAddress::NULL);
        check("a barrier by multicast", &barrier.group);
    }
}
