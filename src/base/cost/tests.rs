//! What the formula promises.

use super::{
    Constant, Cost, Hierarchical, LegAlgorithm, Link, MOST_CHUNKS, Machine, Measurement, NodeStage,
    Preset, best, best_of, cost, fastest_chunks, fit,
};
use crate::base::names::CollectiveOperation;

pub(super) const OPERATIONS: [CollectiveOperation; 8] = [
    CollectiveOperation::AllReduce,
    CollectiveOperation::AllGather,
    CollectiveOperation::ReduceScatter,
    CollectiveOperation::AllToAll,
    CollectiveOperation::Broadcast,
    CollectiveOperation::Reduce,
    CollectiveOperation::Gather,
    CollectiveOperation::Scatter,
];

pub(super) fn machine(nodes: u32, ranks_per_node: u32, rails: u32) -> Machine {
    Machine {
        nodes,
        ranks_per_node,
        rails,
        inside: Link {
            latency: 2e-6,
            bandwidth: 400e9,
            gap: 0.0,
        },
        between: Link {
            latency: 5e-6,
            bandwidth: 50e9,
            gap: 0.2e-6,
        },
        reduction: 2e12,
    }
}

const ALL_REDUCE: CollectiveOperation = CollectiveOperation::AllReduce;

fn of(node: NodeStage, leg: LegAlgorithm) -> Hierarchical {
    Hierarchical { node, leg }
}

fn sizes() -> impl Iterator<Item = u64> {
    (3..=34).map(|bits| 1 << bits)
}

#[test]
fn more_bytes_never_take_less_time() {
    for nodes in [1, 2, 3, 8, 100, 4096] {
        let machine = machine(nodes, 8, 8);
        for operation in OPERATIONS {
            let mut last = 0.0;
            for bytes in sizes().flat_map(|bytes| [bytes, bytes + bytes / 2]) {
                let (algorithm, chunks, cost) = best(&machine, operation, bytes).unwrap();
                assert!(
                    cost.seconds >= last,
                    "{operation:?} {bytes} {algorithm} in {chunks} on {nodes}: {} after {last}",
                    cost.seconds
                );
                last = cost.seconds;
            }
        }
    }
}

#[test]
fn small_calls_take_few_steps_and_large_ones_few_bytes() {
    let machine = machine(8, 8, 8);
    let seconds = |leg, bytes| {
        let algorithm = of(NodeStage::Sharded, leg);
        fastest_chunks(&machine, ALL_REDUCE, bytes, algorithm)
            .unwrap()
            .1
            .seconds
    };
    let [direct, ring, tree, halving] = LegAlgorithm::ALL;
    for few in [direct, tree, halving] {
        assert!(seconds(few, 1 << 10) < seconds(ring, 1 << 10), "{few:?}");
    }
    for many in [direct, tree] {
        assert!(seconds(ring, 1 << 30) < seconds(many, 1 << 30), "{many:?}");
    }
}

#[test]
fn a_program_gets_the_fastest_of_the_algorithms_that_it_has() {
    let machine = machine(8, 8, 8);
    let has = [LegAlgorithm::Tree, LegAlgorithm::Ring].map(|leg| of(NodeStage::Sharded, leg));
    let leg = |bytes| best_of(&machine, ALL_REDUCE, bytes, has).unwrap().0.leg;
    assert_eq!(leg(1 << 10), LegAlgorithm::Tree);
    assert_eq!(leg(1 << 30), LegAlgorithm::Ring);
    assert!(best_of(&machine, ALL_REDUCE, 8, []).is_none());
}

#[test]
fn two_nodes_exchange_directly() {
    for bytes in sizes().filter(|bytes| *bytes <= 64 << 20) {
        let (algorithm, ..) = best(&machine(2, 8, 8), ALL_REDUCE, bytes).unwrap();
        assert_eq!(algorithm.leg, LegAlgorithm::Direct, "{bytes}");
    }
}

#[test]
fn a_ring_moves_twice_a_rank_s_share_less_one_part_over_each_rail() {
    for nodes in [2_u32, 3, 4, 8, 64, 4096] {
        let bytes = (8 * u64::from(nodes)) << 20;
        let algorithm = of(NodeStage::Sharded, LegAlgorithm::Ring);
        let cost = cost(&machine(nodes, 8, 8), ALL_REDUCE, bytes, algorithm, 1).unwrap();
        let share = (bytes / 8) as f64;
        let n = f64::from(nodes);
        assert_eq!(cost.bytes_between_per_rail, 2.0 * (n - 1.0) / n * share);
        // Fewer rails carry more each.
        let shared = super::cost(&machine(nodes, 8, 2), ALL_REDUCE, bytes, algorithm, 1).unwrap();
        assert_eq!(
            shared.bytes_between_per_rail,
            4.0 * cost.bytes_between_per_rail
        );
    }
}

#[test]
fn halving_takes_the_fewest_steps_of_a_ring_s_bytes_for_any_number_of_nodes() {
    for nodes in [2_u32, 3, 4, 5, 7, 8, 16, 1000, 4096] {
        let on = |leg| {
            let algorithm = of(NodeStage::Sharded, leg);
            cost(&machine(nodes, 1, 1), ALL_REDUCE, 1 << 20, algorithm, 1).unwrap()
        };
        let (ring, halving) = (on(LegAlgorithm::Ring), on(LegAlgorithm::Halving));
        assert_eq!(ring.bytes_between_per_rail, halving.bytes_between_per_rail);
        assert_eq!(ring.steps, 2 * (nodes - 1));
        assert_eq!(halving.steps, 2 * nodes.next_power_of_two().ilog2());
    }
}

#[test]
fn a_single_node_has_no_legs_and_a_single_rank_takes_no_time() {
    for operation in OPERATIONS {
        for algorithm in Hierarchical::all() {
            for bytes in [8, 1 << 30] {
                let Some(node) = cost(&machine(1, 8, 8), operation, bytes, algorithm, 1) else {
                    continue;
                };
                assert_eq!(node.bytes_between_per_rail, 0.0);
                assert!(node.bytes_inside_per_link > 0.0 && node.seconds > 0.0);
                let alone = cost(&machine(1, 1, 1), operation, bytes, algorithm, 1).unwrap();
                let nothing = Cost {
                    seconds: 0.0,
                    bytes_inside_per_link: 0.0,
                    bytes_between_per_rail: 0.0,
                    steps: 0,
                };
                assert_eq!(alone, nothing, "{operation:?} {algorithm}");
            }
        }
    }
}

#[test]
fn numbers_that_are_zero_count_as_one_and_chunks_stay_in_their_range() {
    let algorithm = of(NodeStage::Sharded, LegAlgorithm::Direct);
    let with = |machine, chunks| cost(&machine, ALL_REDUCE, 1 << 20, algorithm, chunks).unwrap();
    assert_eq!(with(machine(0, 0, 0), 1), with(machine(1, 1, 1), 1));
    let four = machine(4, 8, 8);
    assert_eq!(with(four, 0), with(four, 1));
    assert_eq!(with(four, u32::MAX), with(four, MOST_CHUNKS));
}

#[test]
fn the_largest_machine_and_call_have_finite_costs() {
    let bytes = 16 << 30;
    for operation in OPERATIONS {
        for algorithm in Hierarchical::all() {
            // All ranks on one rail, too.
            for rails in [8, 1] {
                let machine = machine(4096, 8, rails);
                let Some((chunks, cost)) = fastest_chunks(&machine, operation, bytes, algorithm)
                else {
                    continue;
                };
                assert!(cost.seconds.is_finite() && cost.seconds > 0.0);
                assert!(cost.bytes_between_per_rail > 0.0);
                assert!((1..=MOST_CHUNKS).contains(&chunks));
            }
        }
    }
    let most = machine(u32::MAX, u32::MAX, 1);
    let (.., cost) = best(&most, CollectiveOperation::Broadcast, u64::MAX).unwrap();
    assert!(cost.seconds.is_finite());
}

#[test]
fn no_other_number_of_chunks_is_faster_than_the_one_that_is_found() {
    for nodes in [1, 2, 3, 16, 4096] {
        let machine = machine(nodes, 8, 8);
        for operation in OPERATIONS {
            for algorithm in Hierarchical::all() {
                for bytes in [8, 1 << 20, 1 << 26, 1 << 32] {
                    let Some((_, found)) = fastest_chunks(&machine, operation, bytes, algorithm)
                    else {
                        continue;
                    };
                    for chunks in 1..=MOST_CHUNKS {
                        let cost = cost(&machine, operation, bytes, algorithm, chunks).unwrap();
                        assert!(cost.seconds >= found.seconds * (1.0 - 1e-12));
                    }
                }
            }
        }
    }
}

/// Runs `chunks` chunks through a node's links, a rail and the links again. The links take first stages before last
/// ones.
fn pipeline(chunks: usize, [first, leg, last]: [f64; 3], rail: f64) -> f64 {
    let mut arrived = Vec::new();
    let mut rail_free: f64 = 0.0;
    for chunk in 1..=chunks {
        let start = rail_free.max(chunk as f64 * first);
        rail_free = start + rail;
        arrived.push(start + leg);
    }
    let links_free = chunks as f64 * first;
    arrived
        .iter()
        .fold(links_free, |free, at| free.max(*at) + last)
}

#[test]
fn chunks_that_go_through_the_stages_one_by_one_are_done_in_time() {
    let mut exact = 0;
    for nodes in [2, 4, 16] {
        for bytes in [1_u64 << 16, 1 << 24, 1 << 30] {
            for chunks in [1_u32, 2, 5, 32] {
                let machine = machine(nodes, 8, 8);
                let algorithm = of(NodeStage::Sharded, LegAlgorithm::Ring);
                let formula = cost(&machine, ALL_REDUCE, bytes, algorithm, chunks).unwrap();
                let (chunk, n) = (bytes as f64 / f64::from(chunks), f64::from(nodes));
                let moved = chunk * 7.0 / 8.0;
                let first = 2e-6 + moved / 400e9 + moved / 2e12;
                let last = 2e-6 + moved / 400e9;
                let part = chunk / 8.0 / n * (n - 1.0);
                let rail = 2.0 * (n - 1.0) * 0.2e-6 + 2.0 * part / 50e9;
                let leg = 2.0 * (n - 1.0) * 5e-6 + rail + part / 2e12;
                let simulated = pipeline(chunks as usize, [first, leg, last], rail);
                let late = formula.seconds - simulated;
                assert!(late > -1e-12, "the formula is never too early: {late}");
                assert!(
                    late <= first + leg + last,
                    "and at most one chunk too late: {late}"
                );
                // Exact for one chunk, and where the rail is busiest.
                if chunks == 1 || rail >= first + last {
                    assert!(late < 1e-12 + 1e-9 * simulated, "{late}");
                    exact += 1;
                }
            }
        }
    }
    assert!(exact >= 15, "{exact} of 36");
}

#[test]
fn operations_that_the_formula_does_not_know_have_no_cost() {
    for operation in [
        CollectiveOperation::Barrier,
        CollectiveOperation::AllGatherV,
        CollectiveOperation::Exchange,
    ] {
        assert!(best(&machine(2, 8, 8), operation, 1024).is_none());
    }
    let tree = of(NodeStage::Sharded, LegAlgorithm::Tree);
    assert!(
        cost(
            &machine(2, 8, 8),
            CollectiveOperation::AllToAll,
            1024,
            tree,
            1
        )
        .is_none()
    );
}

/// Calls on 2 x 2 and 3 x 2 ranks that take what the formula says for `truth`, each off by up to `noise`.
fn measured(truth: &Machine, noise: f64) -> Vec<Measurement> {
    let mut state = 1_u64;
    let mut off = move || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        1.0 + noise * ((state >> 33) as f64 / (1_u64 << 30) as f64 - 1.0)
    };
    let mut all = Vec::new();
    for nodes in [2, 3] {
        for operation in &OPERATIONS[..4] {
            for bytes in (10..=26).map(|bits| 1_u64 << bits) {
                let shape = Machine {
                    nodes,
                    ranks_per_node: 2,
                    rails: 2,
                    ..*truth
                };
                let (algorithm, chunks, cost) = best(&shape, *operation, bytes).unwrap();
                all.push(Measurement {
                    nodes,
                    ranks_per_node: 2,
                    rails: 2,
                    operation: *operation,
                    bytes,
                    seconds: cost.seconds * off(),
                    algorithm: Some(algorithm),
                    chunks: Some(chunks),
                });
            }
        }
    }
    all
}

fn truth() -> Machine {
    let mut truth = machine(1, 1, 1);
    truth.inside.latency = 1.3e-6;
    truth.inside.bandwidth = 222e9;
    truth.between.latency = 31e-6;
    truth.between.bandwidth = 1.1e9;
    truth.reduction = 30e9;
    truth
}

fn assert_near(found: &Machine, truth: &Machine, most: f64) {
    for constant in Constant::ALL {
        let (found, truth) = (found.constant(constant), truth.constant(constant));
        let off = (found - truth).abs() / truth.max(1e-30);
        assert!(
            found == truth || off < most,
            "{constant:?}: {found} for {truth}"
        );
    }
}

#[test]
fn a_fit_finds_the_constants_that_calls_were_made_with() {
    let truth = truth();
    let found = fit(&machine(1, 1, 1), &measured(&truth, 0.0)).unwrap();
    assert_near(&found.machine, &truth, 1e-6);
    assert!(found.largest_error < 1e-6, "{found:?}");
    assert_eq!((found.fitted.len(), found.used), (5, 136));
    // Times that vary by 10 % move the constants by less than that where many calls determine them.
    let noisy = fit(&machine(1, 1, 1), &measured(&truth, 0.1)).unwrap();
    assert!(
        noisy.mean_error > 0.01 && noisy.largest_error < 0.2,
        "{noisy:?}"
    );
    let between = noisy.machine.between;
    assert!((between.latency / 31e-6 - 1.0).abs() < 0.1, "{between:?}");
    assert!((between.bandwidth / 1.1e9 - 1.0).abs() < 0.1, "{between:?}");
}

#[test]
fn a_fit_without_names_of_algorithms_takes_those_that_the_formula_chooses() {
    let truth = truth();
    let mut calls = measured(&truth, 0.0);
    for call in &mut calls {
        (call.algorithm, call.chunks) = (None, None);
    }
    let found = fit(&machine(1, 1, 1), &calls).unwrap();
    assert!(found.mean_error < 0.05, "{found:?}");
}

#[test]
fn a_run_inside_one_node_leaves_the_links_between_nodes_as_they_were() {
    let start = machine(1, 1, 1);
    let mut calls = measured(&truth(), 0.0);
    for call in &mut calls {
        call.nodes = 1;
        call.algorithm = Some(of(NodeStage::Sharded, LegAlgorithm::Direct));
        let shape = Machine {
            nodes: 1,
            ranks_per_node: 2,
            ..truth()
        };
        let algorithm = call.algorithm.unwrap();
        call.seconds = cost(&shape, call.operation, call.bytes, algorithm, 1)
            .unwrap()
            .seconds;
        call.chunks = Some(1);
    }
    let found = fit(&start, &calls).unwrap();
    assert_eq!(found.machine.between, start.between);
    let fitted = [
        Constant::InsideLatency,
        Constant::InsideBandwidth,
        Constant::Reduction,
    ];
    assert_eq!(found.fitted, fitted);
    assert!(found.largest_error < 1e-6);
}

#[test]
fn times_that_say_nothing_make_no_constants() {
    let start = machine(1, 1, 1);
    assert!(fit(&start, &[]).is_none());
    let mut calls = measured(&truth(), 0.0);
    for (call, seconds) in calls
        .iter_mut()
        .zip([0.0, -1.0, f64::NAN, f64::INFINITY].into_iter().cycle())
    {
        call.seconds = seconds;
    }
    assert!(fit(&start, &calls).is_none());
    // One call determines one constant; the others keep their values and stay usable.
    let one = fit(&start, &measured(&truth(), 0.0)[..1]).unwrap();
    assert_eq!((one.fitted.len(), one.used), (1, 1));
    assert!(
        one.machine
            .factors()
            .iter()
            .all(|factor| factor.is_finite() && *factor >= 0.0)
    );
}

#[test]
fn every_preset_has_usable_constants_and_a_name_of_its_own() {
    for preset in Preset::ALL {
        assert_eq!(Preset::find(preset.name).unwrap().name, preset.name);
        for constant in Constant::ALL {
            let value = preset.machine.constant(constant);
            assert!(value.is_finite() && (value > 0.0 || !constant.is_rate()));
            assert!(!preset.origin(constant).parts().1.is_empty());
        }
        let machine = Machine {
            nodes: 4096,
            ..preset.machine
        };
        assert!(
            best(&machine, ALL_REDUCE, 16 << 30)
                .unwrap()
                .2
                .seconds
                .is_finite()
        );
    }
    assert!(Preset::find("b200").is_none());
}
