use super::*;
use crate::group::families;
use crate::group::operations::takes_own_memory;

fn row(
    operation: CollectiveOperationCode,
    world: u32,
    bytes: u64,
    algorithm: AlgorithmCode,
) -> CollectiveRow {
    CollectiveRow {
        operation,
        world,
        bytes,
        algorithm,
        blocks: 24,
        threads: 256,
        concurrent: 2,
    }
}

/// A selector of a device on which 100 blocks of up to 512 threads are resident, or 50 blocks of more.
fn selector(rows: &[CollectiveRow]) -> Selector {
    let mut resident = [100; ASKED];
    resident[4..].fill(50);
    Selector {
        rows: rows.to_vec(),
        resident: vec![resident; FAMILIES],
        grids: true,
        copy_engine: true,
        inbox_bytes: 64 << 20,
        residency: Residency::new(132),
        multicast: MulticastStatus::default(),
    }
}

/// Returns constraints that name an algorithm.
fn named_only(algorithm: AlgorithmCode) -> Constraints {
    Constraints {
        algorithm,
        ..Constraints::default()
    }
}

fn query(operation: CollectiveOperationCode, bytes: u64) -> Query {
    Query {
        own_memory: false,
        operation,
        element: ElementTypeCode::BF16,
        reduce: ReduceOpCode::SUM,
        multicast: true,
        world: 4,
        bytes,
        in_place: false,
        nccl: false,
        push_channels: 1024,
        lamport_bytes: 1 << 20,
    }
}

const OPERATIONS: [CollectiveOperationCode; 12] = [
    CollectiveOperationCode::BARRIER,
    CollectiveOperationCode::BROADCAST,
    CollectiveOperationCode::ALL_GATHER,
    CollectiveOperationCode::ALL_GATHER_V,
    CollectiveOperationCode::REDUCE,
    CollectiveOperationCode::REDUCE_SCATTER,
    CollectiveOperationCode::ALL_REDUCE,
    CollectiveOperationCode::ALL_TO_ALL,
    CollectiveOperationCode::ALL_TO_ALL_V,
    CollectiveOperationCode::GATHER,
    CollectiveOperationCode::SCATTER,
    CollectiveOperationCode::EXCHANGE,
];

#[test]
fn the_first_row_that_fits_and_can_serve_wins() {
    use AlgorithmCode as A;
    let operation = CollectiveOperationCode::ALL_REDUCE;
    let selector = selector(&[
        row(operation, 2, u64::MAX, A::TWO_SHOT),
        row(operation, 8, 1000, A::PACKETS),
        row(operation, 8, 9000, A::VENDOR),
        row(operation, 8, 9000, A::ONE_SHOT),
        row(operation, 8, u64::MAX, A::PACKETS_TWO_SHOT),
    ]);
    let choose = |query| selector.choose(&query, &Constraints::default()).unwrap();
    let small = choose(query(operation, 1000));
    assert_eq!(
        small,
        Choice {
            algorithm: A::PACKETS,
            blocks: 24,
            threads: 256,
            concurrent: 2
        }
    );
    assert_eq!(choose(query(operation, 1001)).algorithm, A::ONE_SHOT);
    let in_place = Query {
        in_place: true,
        ..query(operation, 1001)
    };
    assert_eq!(choose(in_place).algorithm, A::PACKETS_TWO_SHOT);
    let nccl = Query {
        nccl: true,
        ..in_place
    };
    assert_eq!(choose(nccl).algorithm, A::VENDOR);
    let own = Constraints {
        provider: Provider::Symmem,
        ..Constraints::default()
    };
    assert_eq!(
        selector.choose(&nccl, &own).unwrap().algorithm,
        A::PACKETS_TWO_SHOT
    );
    assert_eq!(
        selector
            .choose(&nccl, &Constraints::default())
            .unwrap()
            .blocks,
        0,
        "no kernel of ours does it"
    );
}

#[test]
fn a_kernel_copies_the_own_part_of_a_move_by_copy_engines_only_if_a_row_says_so() {
    let operation = CollectiveOperationCode::ALL_GATHER;
    let by_engines = Constraints {
        algorithm: AlgorithmCode::COPY_ENGINE,
        ..Constraints::default()
    };
    let grid = |rows: &[CollectiveRow]| {
        let choice = selector(rows).choose(&query(operation, 1 << 30), &by_engines);
        let choice = choice.unwrap();
        (choice.blocks, choice.threads)
    };
    let with_kernel = row(operation, 8, u64::MAX, AlgorithmCode::COPY_ENGINE);
    assert_eq!(grid(&[with_kernel]), (24, 256));
    assert_eq!(grid(&[]).0, 0);
    let without_threads = CollectiveRow {
        threads: 0,
        ..with_kernel
    };
    assert_eq!(grid(&[without_threads]).0, 0);
}

#[test]
fn every_operation_can_be_done_without_a_row_in_place_or_not() {
    let selector = selector(&[]);
    for operation in OPERATIONS {
        for in_place in [false, true] {
            let query = Query {
                in_place,
                ..query(operation, 1 << 20)
            };
            let choice = selector.choose(&query, &Constraints::default()).unwrap();
            selector.serves(&query, choice.algorithm).unwrap();
            assert!(choice.blocks > 0, "{}", operation.name());
        }
    }
}

#[test]
fn a_grid_that_could_not_be_resident_is_refused_and_a_rows_is_made_smaller() {
    let operation = CollectiveOperationCode::ALL_GATHER;
    let push = row(operation, 8, u64::MAX, AlgorithmCode::PUSH);
    let mut selector = selector(&[push]);
    let with = |blocks, threads| Constraints {
        blocks,
        threads,
        ..Constraints::default()
    };
    let query = query(operation, 1 << 20);
    assert_eq!(
        selector
            .choose(&query, &with(Some(100), None))
            .unwrap()
            .blocks,
        100
    );
    let error = selector.choose(&query, &with(Some(101), None)).unwrap_err();
    assert!(error.contains("only 100"), "{error}");
    let error = selector
        .choose(&query, &with(Some(51), Some(1024)))
        .unwrap_err();
    assert!(error.contains("only 50"), "{error}");
    // Thread counts between two queried steps count as the larger.
    let error = selector
        .choose(&query, &with(Some(51), Some(544)))
        .unwrap_err();
    assert!(error.contains("only 50"), "{error}");
    // In a stage of a collective over nodes.
    let fewer = Constraints {
        fewer_blocks: true,
        ..with(Some(101), None)
    };
    assert_eq!(selector.choose(&query, &fewer).unwrap().blocks, 100);
    selector.choose(&query, &with(Some(0), None)).unwrap_err();
    selector.choose(&query, &with(None, Some(33))).unwrap_err();
    selector
        .choose(&query, &with(None, Some(2048)))
        .unwrap_err();
    selector.share_device(8);
    assert_eq!(
        selector
            .choose(&query, &Constraints::default())
            .unwrap()
            .blocks,
        12,
        "eight ranks share 100 blocks"
    );
}

#[test]
fn packets_have_as_many_blocks_as_regions() {
    let operation = CollectiveOperationCode::ALL_GATHER;
    let selector = selector(&[]);
    let wish = Constraints {
        algorithm: AlgorithmCode::PACKETS,
        blocks: Some(PACKET_BLOCKS + 1),
        ..Constraints::default()
    };
    let error = selector.choose(&query(operation, 1), &wish).unwrap_err();
    assert!(error.contains(&PACKET_BLOCKS.to_string()), "{error}");
}

#[test]
fn an_algorithm_that_cannot_serve_is_refused_with_those_that_can() {
    let selector = selector(&[]);
    let refuse =
        |query: &Query, algorithm| selector.choose(query, &named_only(algorithm)).unwrap_err();
    let all_to_all = Query {
        in_place: true,
        ..query(CollectiveOperationCode::ALL_TO_ALL, 64)
    };
    let error = refuse(&all_to_all, AlgorithmCode::COPY_ENGINE);
    assert!(
        error.ends_with("possible algorithms: PACKETS, SWAP, LAMPORT, PIECES"),
        "{error}"
    );
    let apart = Query {
        in_place: false,
        ..all_to_all
    };
    let error = refuse(&apart, AlgorithmCode::SWAP);
    assert!(
        error.contains("out of place")
            && error.ends_with(
                "possible algorithms: PACKETS, PUSH, PULL, COPY_ENGINE, LAMPORT, PIECES"
            ),
        "{error}"
    );
    let all_reduce = Query {
        in_place: true,
        ..query(CollectiveOperationCode::ALL_REDUCE, 64)
    };
    let error = refuse(&all_reduce, AlgorithmCode::ONE_SHOT);
    assert!(
        error.ends_with(
            "possible algorithms: PACKETS, PACKETS_TWO_SHOT, TWO_SHOT, PUSH, COPY_ENGINE, LAMPORT, \
             LAMPORT_TWO_SHOT, PIECES"
        ),
        "{error}"
    );
    let error = refuse(&all_reduce, AlgorithmCode::VENDOR);
    assert!(error.contains("open_nccl"), "{error}");
}

#[test]
fn a_named_algorithm_takes_its_geometry_from_its_own_rows() {
    let operation = CollectiveOperationCode::ALL_GATHER;
    let selector = selector(&[
        row(operation, 8, 100, AlgorithmCode::PACKETS),
        CollectiveRow {
            blocks: 7,
            ..row(operation, 8, 200, AlgorithmCode::PUSH)
        },
    ]);
    let named = Constraints {
        algorithm: AlgorithmCode::PUSH,
        ..Constraints::default()
    };
    for bytes in [1, 150, 1 << 30] {
        let choice = selector.choose(&query(operation, bytes), &named).unwrap();
        assert_eq!((choice.algorithm, choice.blocks), (AlgorithmCode::PUSH, 7));
    }
}

#[test]
fn families_of_kernels_are_numbered_as_they_are_read() {
    assert_eq!(families::all().count(), FAMILIES);
    for (number, (kernel, element)) in families::all().enumerate() {
        assert_eq!(families::index(kernel, element), Some(number));
    }
}

#[test]
fn a_row_of_the_callers_is_checked_before_it_is_gone_by() {
    let good = row(CollectiveOperationCode::SCATTER, 8, 1, AlgorithmCode::PULL);
    assert!(is_sound(&good, true));
    let bad = [
        CollectiveRow {
            threads: 33,
            ..good
        },
        CollectiveRow {
            blocks: SLOT_BLOCKS + 1,
            ..good
        },
        CollectiveRow {
            algorithm: AlgorithmCode::ONE_SHOT,
            ..good
        },
    ];
    assert!(bad.iter().all(|row| !is_sound(row, true)));
    assert!(is_sound(&bad[0], false), "the host has no grids");
}

#[test]
fn a_reduction_is_pushed_where_there_is_an_inbox_and_loaded_where_there_is_none() {
    use AlgorithmCode as A;
    let operation = CollectiveOperationCode::ALL_REDUCE;
    let mut selector = selector(&[
        row(operation, 8, u64::MAX, A::PUSH),
        row(operation, 8, u64::MAX, A::COPY_ENGINE),
    ]);
    let choose = |selector: &Selector, query: &Query, algorithm| {
        let wish = named_only(algorithm);
        selector.choose(query, &wish).unwrap()
    };
    let here = query(operation, 1 << 20);
    let elsewhere = Query {
        push_channels: 0,
        ..here
    };
    assert_eq!(choose(&selector, &here, A::AUTOMATIC).algorithm, A::PUSH);
    let passed_over = choose(&selector, &elsewhere, A::AUTOMATIC);
    assert_eq!(passed_over.algorithm, A::COPY_ENGINE);
    assert_eq!(choose(&selector, &here, A::PUSH).algorithm, A::PUSH);
    assert_eq!(
        choose(&selector, &elsewhere, A::PUSH).algorithm,
        A::TWO_SHOT
    );
    let scattered = Query {
        operation: CollectiveOperationCode::REDUCE_SCATTER,
        ..elsewhere
    };
    assert_eq!(
        choose(&selector, &scattered, A::PUSH).algorithm,
        A::ONE_SHOT
    );
    let family = families::index(CollectiveKernel::REDUCE_PUSH, here.element).unwrap();
    selector.resident[family].fill(0);
    assert_eq!(
        choose(&selector, &here, A::PUSH).algorithm,
        A::TWO_SHOT,
        "no kernel for these elements"
    );
}

#[test]
fn a_grid_is_cut_to_the_inbox_and_refused_if_it_was_named() {
    let operation = CollectiveOperationCode::ALL_REDUCE;
    let selector = selector(&[CollectiveRow {
        blocks: 40,
        threads: 1024,
        ..row(operation, 2, 1 << 20, AlgorithmCode::PUSH)
    }]);
    let query = Query {
        world: 2,
        push_channels: 256,
        ..query(operation, 1 << 20)
    };
    let choose = |blocks| {
        let wish = Constraints {
            algorithm: AlgorithmCode::PUSH,
            blocks,
            ..Constraints::default()
        };
        selector.choose(&query, &wish)
    };
    assert_eq!(choose(None).unwrap().blocks, 16);
    assert_eq!(choose(Some(16)).unwrap().blocks, 16);
    let refused = choose(Some(17)).unwrap_err();
    assert!(
        refused.contains("channels for 16") && refused.contains("tuning row"),
        "{refused}"
    );
}

#[test]
fn a_grid_that_pushes_has_a_channel_for_each_pair_of_its_warps() {
    let operation = CollectiveOperationCode::REDUCE_SCATTER;
    let selector = selector(&[]);
    let query = query(operation, 1 << 20);
    let choose = |threads, blocks| {
        let wish = Constraints {
            algorithm: AlgorithmCode::PUSH,
            threads: Some(threads),
            blocks,
            ..Constraints::default()
        };
        selector.choose(&query, &wish)
    };
    // 1024 channels, at most 50 blocks of 1024 threads resident, and 100 of 256.
    assert_eq!(choose(1024, Some(50)).unwrap().blocks, 50);
    assert!(choose(1024, Some(65)).is_err());
    assert_eq!(choose(256, Some(100)).unwrap().threads, 256);
    let refused = choose(96, None).unwrap_err();
    assert!(refused.contains("multiple of 128"), "{refused}");
    // As many channels as are asked for, but for a larger grid than is resident.
    assert_eq!(selector.inbox(4, 256).channels, 256);
    assert_eq!(selector.inbox(4, 4096).channels, 50 * 16);
    assert_eq!(selector.push_channels(None), 0);
    let none_needed = Selector {
        inbox_bytes: 0,
        ..selector
    };
    assert_eq!(none_needed.inbox(4, 256).channels, 0);
    assert_eq!(none_needed.push_channels(None), u32::MAX);
}

fn status(support: MulticastSupport) -> MulticastStatus {
    MulticastStatus {
        support,
        reason: Some("rank 1: it is off".into()),
    }
}

#[test]
fn multicast_is_chosen_by_itself_only_where_there_is_a_switch() {
    use AlgorithmCode as A;
    let operation = CollectiveOperationCode::ALL_REDUCE;
    let mut selector = selector(&[
        row(operation, 8, 1000, A::MULTICAST_ONE_SHOT),
        row(operation, 8, 1000, A::PACKETS),
        row(operation, 8, u64::MAX, A::MULTICAST),
        row(operation, 8, u64::MAX, A::TWO_SHOT),
    ]);
    for (support, small, in_place, large) in [
        (MulticastSupport::None, A::PACKETS, A::PACKETS, A::TWO_SHOT),
        (
            MulticastSupport::Emulated,
            A::PACKETS,
            A::PACKETS,
            A::TWO_SHOT,
        ),
        (
            MulticastSupport::Hardware,
            A::MULTICAST_ONE_SHOT,
            A::PACKETS,
            A::MULTICAST,
        ),
    ] {
        selector.set_multicast(status(support));
        let choose = |query| {
            selector
                .choose(&query, &Constraints::default())
                .unwrap()
                .algorithm
        };
        assert_eq!(choose(query(operation, 1000)), small, "{}", support.name());
        assert_eq!(choose(query(operation, 1001)), large);
        let same = Query {
            in_place: true,
            ..query(operation, 1000)
        };
        assert_eq!(choose(same), in_place);
        // Nor if multicast does not reach a range, or the switch lacks the reduction.
        for without in [
            Query {
                multicast: false,
                ..query(operation, 1001)
            },
            Query {
                reduce: ReduceOpCode::MAXIMUM,
                ..query(operation, 1001)
            },
        ] {
            assert_eq!(choose(without), A::TWO_SHOT);
        }
    }
}

#[test]
fn what_is_named_is_done_by_multicast_where_that_reaches_and_else_by_the_members_own_addresses() {
    use AlgorithmCode as A;
    use CollectiveOperationCode as O;
    let mut selector = selector(&[]);
    let by = |selector: &Selector, query, algorithm| {
        let wish = named_only(algorithm);
        selector
            .choose(&query, &wish)
            .map(|choice| choice.algorithm)
    };
    let refusal = by(&selector, query(O::ALL_REDUCE, 1), A::MULTICAST).unwrap_err();
    assert!(
        refusal.contains("it is not enabled")
            && !refusal.contains("possible algorithms: MULTICAST")
    );
    selector.set_multicast(status(MulticastSupport::None));
    let refusal = by(&selector, query(O::ALL_GATHER, 1), A::MULTICAST).unwrap_err();
    assert!(refusal.contains("rank 1: it is off"), "{refusal}");
    for support in [MulticastSupport::Emulated, MulticastSupport::Hardware] {
        selector.set_multicast(status(support));
        for (operation, algorithm, without) in [
            (O::ALL_REDUCE, A::MULTICAST, A::TWO_SHOT),
            (O::ALL_REDUCE, A::MULTICAST_ONE_SHOT, A::ONE_SHOT),
            (O::REDUCE_SCATTER, A::MULTICAST, A::ONE_SHOT),
            (O::ALL_GATHER, A::MULTICAST, A::PUSH),
            (O::BROADCAST, A::MULTICAST, A::PUSH),
            (O::BARRIER, A::MULTICAST, A::PUSH),
        ] {
            let reached = query(operation, 1);
            assert_eq!(by(&selector, reached, algorithm), Ok(algorithm));
            let split = Query {
                multicast: false,
                ..reached
            };
            assert_eq!(by(&selector, split, algorithm), Ok(without));
        }
        let in_place = Query {
            in_place: true,
            ..query(O::ALL_REDUCE, 1)
        };
        assert!(by(&selector, in_place, A::MULTICAST_ONE_SHOT).is_err());
        assert_eq!(by(&selector, in_place, A::MULTICAST), Ok(A::MULTICAST));
        assert!(by(&selector, query(O::ALL_TO_ALL, 1), A::MULTICAST).is_err());
    }
}

#[test]
fn floats_of_8_bits_go_by_multicast_only_where_it_is_named_and_has_their_kernels() {
    use AlgorithmCode as A;
    let operation = CollectiveOperationCode::ALL_REDUCE;
    let mut selector = selector(&[
        row(operation, 8, u64::MAX, A::MULTICAST),
        row(operation, 8, u64::MAX, A::PACKETS),
    ]);
    selector.set_multicast(status(MulticastSupport::Hardware));
    let choose = |selector: &Selector, element, algorithm| {
        let query = Query {
            element,
            ..query(operation, 1000)
        };
        let wish = named_only(algorithm);
        selector.choose(&query, &wish).unwrap().algorithm
    };
    for element in [ElementTypeCode::F8_E4M3, ElementTypeCode::F8_E5M2] {
        assert_eq!(choose(&selector, element, A::AUTOMATIC), A::PACKETS);
        assert_eq!(choose(&selector, element, A::MULTICAST), A::MULTICAST);
        // Residency is compared when ranks meet, so all choose alike.
        let before = (selector.describe(), selector.describe_multicast());
        let family = families::index(CollectiveKernel::MULTICAST_REDUCE, element).unwrap();
        selector.resident[family] = [0; ASKED];
        assert_eq!(selector.describe(), before.0);
        assert_ne!(selector.describe_multicast(), before.1);
        assert_eq!(choose(&selector, element, A::MULTICAST), A::TWO_SHOT);
    }
    assert_eq!(
        choose(&selector, ElementTypeCode::BF16, A::AUTOMATIC),
        A::MULTICAST
    );
    // Bytes that are moved may be of any type.
    let gather = CollectiveOperationCode::ALL_GATHER;
    selector.rows = vec![row(gather, 8, u64::MAX, A::MULTICAST)];
    let moved = Query {
        element: ElementTypeCode::F8_E4M3,
        ..query(gather, 1000)
    };
    let chosen = selector.choose(&moved, &Constraints::default()).unwrap();
    assert_eq!(chosen.algorithm, A::MULTICAST);
}

#[test]
fn one_collective_at_a_time_has_the_grids_that_it_had_before_there_was_a_budget() {
    for sharers in [1, 2, 3] {
        let mut selector = selector(&[]);
        selector.share_device(sharers);
        for (kernel, element) in families::all() {
            for threads in (THREAD_STEP..=MOST_THREADS).step_by(THREAD_STEP as usize) {
                let alone = if threads <= 512 { 100 } else { 50 };
                let expected = (alone / sharers).min(most_blocks(kernel));
                assert_eq!(selector.most_resident(kernel, element, threads), expected);
            }
        }
    }
}

#[test]
fn collectives_at_once_have_together_as_many_blocks_as_the_device_has_units() {
    for (sharers, at_once) in [(1, 2), (1, 3), (1, 8), (2, 2), (3, 4)] {
        let mut selector = selector(&[]);
        selector.share_device(sharers);
        selector.residency().divide(at_once);
        let (most, residency) = (selector.residency().units(), selector.residency());
        for (kernel, element) in families::all() {
            for threads in [128, 512, 1024] {
                let blocks = selector.most_resident(kernel, element, threads);
                assert!(blocks > 0 && sharers * at_once * blocks <= most);
                assert!(
                    residency.fits(blocks) >= at_once,
                    "a graph of it stays valid"
                );
            }
        }
        assert!(
            residency
                .because_shared()
                .contains(&format!("where {at_once} collectives"))
        );
    }
    let without_grids = Residency::new(0);
    without_grids.divide(4);
    assert_eq!(
        (without_grids.limit(1), without_grids.fits(1)),
        (1, u32::MAX)
    );
}

#[test]
fn lamport_packets_carry_sums_of_floats_that_fit_and_ll_packets_the_rest() {
    use AlgorithmCode as A;
    let operation = CollectiveOperationCode::ALL_REDUCE;
    let selector = selector(&[
        row(operation, 8, 2 << 20, A::LAMPORT),
        row(operation, 8, u64::MAX, A::TWO_SHOT),
    ]);
    let named = named_only(A::LAMPORT);
    let chosen =
        |query: &Query, constraints| selector.choose(query, constraints).unwrap().algorithm;
    let free = Constraints::default();
    let small = query(operation, 1 << 20);
    let others = [
        query(operation, (1 << 20) + 1),
        query(operation, 0),
        Query {
            element: ElementTypeCode::I32,
            ..small
        },
        Query {
            element: ElementTypeCode::F64,
            ..small
        },
        Query {
            reduce: ReduceOpCode::MAXIMUM,
            ..small
        },
        Query {
            lamport_bytes: 0,
            ..small
        },
    ];
    assert_eq!(chosen(&small, &named), A::LAMPORT);
    assert_eq!(chosen(&small, &free), A::LAMPORT);
    for other in &others {
        assert_eq!(chosen(other, &named), A::PACKETS, "{other:?}");
        assert_eq!(chosen(other, &free), A::TWO_SHOT, "{other:?}");
    }
    // Of a reduce-scatter, only one share goes to each member.
    let scattered = query(CollectiveOperationCode::REDUCE_SCATTER, 4 << 20);
    assert_eq!(chosen(&scattered, &named), A::LAMPORT);
    // The root of a reduction gets all elements.
    let rooted = query(CollectiveOperationCode::REDUCE, 1 << 20);
    assert_eq!(chosen(&rooted, &named), A::LAMPORT);
    let larger = query(CollectiveOperationCode::REDUCE, 2 << 20);
    assert_eq!(chosen(&larger, &named), A::PACKETS);
}

#[test]
fn a_named_algorithm_takes_its_largest_row_of_the_groups_size_for_a_call_larger_than_all_rows() {
    use AlgorithmCode as A;
    let operation = CollectiveOperationCode::ALL_REDUCE;
    let of = |world, bytes, blocks| CollectiveRow {
        blocks,
        ..row(operation, world, bytes, A::LAMPORT)
    };
    let rows = [
        of(4, 1 << 10, 1),
        of(4, 1 << 17, 100),
        of(8, 1 << 10, 2),
        of(8, 1 << 16, 50),
    ];
    let named = named_only(A::LAMPORT);
    let blocks = |world| {
        let query = Query {
            world,
            ..query(operation, 1 << 20)
        };
        selector(&rows).choose(&query, &named).unwrap().blocks
    };
    assert_eq!((blocks(3), blocks(4), blocks(5)), (100, 100, 50));
}

#[test]
fn two_shot_lamport_packets_carry_as_many_shares_as_there_are_members_and_ll_packets_the_rest() {
    use AlgorithmCode as A;
    let selector = selector(&[]);
    let named = named_only(A::LAMPORT_TWO_SHOT);
    let operation = CollectiveOperationCode::ALL_REDUCE;
    let chosen = |query: &Query| selector.choose(query, &named).unwrap().algorithm;
    // Each of four members sends a share and a result.
    assert_eq!(chosen(&query(operation, 2 << 20)), A::LAMPORT_TWO_SHOT);
    let larger = query(operation, (2 << 20) + 4);
    let integers = Query {
        element: ElementTypeCode::I32,
        ..query(operation, 64)
    };
    for other in [larger, integers] {
        assert_eq!(chosen(&other), A::PACKETS_TWO_SHOT, "{other:?}");
    }
    let scattered = query(CollectiveOperationCode::REDUCE_SCATTER, 64);
    assert!(selector.choose(&scattered, &named).is_err());
}

#[test]
fn lamport_packets_move_any_type_as_far_as_the_channel_allows() {
    use AlgorithmCode as A;
    let selector = selector(&[]);
    let named = named_only(A::LAMPORT);
    let chosen = |query: &Query| selector.choose(query, &named).unwrap().algorithm;
    use CollectiveOperationCode as O;
    for operation in [
        O::ALL_GATHER,
        O::ALL_TO_ALL,
        O::BROADCAST,
        O::GATHER,
        O::SCATTER,
    ] {
        let most = match operation {
            O::BROADCAST => 1 << 20,
            _ => 4 << 20,
        };
        for element in [ElementTypeCode::I64, ElementTypeCode::BF16] {
            for in_place in [false, true] {
                let of = |bytes| Query {
                    element,
                    in_place,
                    ..query(operation, bytes)
                };
                let (fits, exceeds) = (of(most), of(most + 4));
                assert_eq!(chosen(&fits), A::LAMPORT, "{fits:?}");
                assert_eq!(chosen(&exceeds), A::PACKETS, "{exceeds:?}");
            }
        }
    }
    let parts = query(CollectiveOperationCode::ALL_GATHER_V, 64);
    assert!(selector.choose(&parts, &named).is_err());
}

#[test]
fn memory_that_only_its_rank_knows_goes_through_inboxes_whatever_the_rows_say() {
    use AlgorithmCode as A;
    let moved_or_reduced = OPERATIONS.into_iter().filter(|operation| {
        !matches!(
            *operation,
            CollectiveOperationCode::BARRIER
                | CollectiveOperationCode::EXCHANGE
                | CollectiveOperationCode::ALL_TO_ALL_V
        )
    });
    for operation in moved_or_reduced {
        for by in algorithms(operation) {
            let selector = selector(&[row(operation, 8, u64::MAX, *by)]);
            for (bytes, element, nccl) in [
                (1 << 10, ElementTypeCode::BF16, false),
                (64 << 20, ElementTypeCode::I64, false),
                (64 << 20, ElementTypeCode::I64, true),
            ] {
                let own = Query {
                    own_memory: true,
                    element,
                    nccl,
                    ..query(operation, bytes)
                };
                let chosen = selector.choose(&own, &Constraints::default()).unwrap();
                assert!(
                    takes_own_memory(chosen.algorithm),
                    "{operation:?} {by:?}: {chosen:?}"
                );
                let named = Constraints {
                    algorithm: *by,
                    ..Constraints::default()
                };
                let answer = selector.choose(&own, &named);
                // Only what has no room for the call is replaced.
                let served = takes_own_memory(*by) && (nccl || *by != A::VENDOR);
                assert_eq!(answer.is_ok(), served, "{operation:?} {by:?}: {answer:?}");
                if let Err(why) = answer {
                    assert!(why.contains("possible algorithms: "), "{why}");
                    let possible = why.split("possible algorithms: ").nth(1).unwrap();
                    assert!(!possible.contains(A::PUSH.name()), "{why}");
                }
            }
        }
    }
}

#[test]
fn a_call_that_only_packets_serve_has_a_thread_for_each_unit_as_far_as_blocks_have_regions() {
    let selector = selector(&[]);
    let blocks = |bytes| {
        let own = Query {
            own_memory: true,
            ..query(CollectiveOperationCode::ALL_GATHER, bytes)
        };
        let chosen = selector.choose(&own, &Constraints::default());
        chosen.expect("packets serve every call").blocks
    };
    assert_eq!(blocks(1), 16);
    assert_eq!(blocks(128 << 10), 32);
    assert_eq!(blocks(64 << 20), PACKET_BLOCKS);
}
