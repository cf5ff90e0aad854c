//! The counts against the messages of every algorithm, one by one.

use super::schedule::{count, run, schedule};
use super::stages::{Class, stages};
use super::tests::{OPERATIONS, machine};
use super::{Hierarchical, LegAlgorithm, Machine, cost, traffic};
use crate::base::names::CollectiveOperation;

#[test]
fn every_algorithm_that_has_a_cost_has_messages_that_do_what_it_says() {
    for operation in OPERATIONS {
        for leg in LegAlgorithm::ALL {
            for n in 2..=9 {
                let known = traffic(operation, leg, n, 1.0).is_some();
                let schedule = schedule(operation, leg, n as usize);
                assert_eq!(schedule.is_some(), known, "{operation:?} {leg:?}");
                if let Some(schedule) = schedule {
                    run(operation, &schedule, n as usize);
                }
            }
        }
    }
}

#[test]
#[should_panic(expected = "a rank is added twice")]
fn a_message_that_is_sent_twice_is_found() {
    let mut planted = schedule(CollectiveOperation::AllReduce, LegAlgorithm::Ring, 3).unwrap();
    let again = planted[0].clone();
    planted.insert(0, again);
    run(CollectiveOperation::AllReduce, &planted, 3);
}

#[test]
fn steps_messages_and_bytes_are_those_of_the_messages() {
    for operation in OPERATIONS {
        for leg in LegAlgorithm::ALL {
            for n in 2..=9_u32 {
                let Some(schedule) = schedule(operation, leg, n as usize) else {
                    continue;
                };
                let bytes = 64 * n;
                let counted = count(&schedule, 64.0, 1, n as usize, |_, member| member);
                let by_formula = traffic(operation, leg, n, f64::from(bytes)).unwrap();
                assert_eq!(by_formula, counted, "{operation:?} {leg:?} of {n}");
            }
        }
    }
}

/// Counts the messages of all stages of a hierarchical collective, and adds the bytes of the busiest links.
fn messages(
    machine: &Machine,
    operation: CollectiveOperation,
    bytes: u64,
    algorithm: Hierarchical,
) -> Option<(u32, f64, f64)> {
    let (nodes, local) = (machine.nodes as usize, machine.ranks_per_node as usize);
    let per_rail = local.div_ceil(machine.rails as usize);
    let (mut steps, mut inside, mut between) = (0, 0.0, 0.0);
    for stage in stages(machine, operation, bytes as f64, algorithm)? {
        let members = stage.members as usize;
        let block = stage.bytes / f64::from(stage.members);
        let schedule = match members {
            1 => vec![],
            _ => schedule(stage.operation, stage.leg, members)?,
        };
        let counted = match stage.class {
            // One collective a node; each rank has a link of its own.
            Class::Inside => count(&schedule, block, nodes, nodes * local, |node, rank| {
                node * local + rank
            }),
            // One collective for each local rank that has a leg; neighbours share a rail.
            Class::Between => {
                let on_leader = algorithm.node == super::NodeStage::Leader;
                let legs = if on_leader { 1 } else { local };
                count(&schedule, block, legs, nodes * local, |rank, node| {
                    node * local + rank / per_rail
                })
            }
        };
        steps += counted.steps;
        match stage.class {
            Class::Inside => inside += counted.load.bytes,
            Class::Between => between += counted.load.bytes,
        }
    }
    Some((steps, inside, between))
}

#[test]
fn bytes_of_each_link_and_rail_are_those_of_the_messages() {
    let mut compared = 0;
    for (local, rails) in [
        (1, 1),
        (2, 1),
        (2, 2),
        (3, 2),
        (4, 1),
        (4, 2),
        (4, 4),
        (2, 8),
    ] {
        for nodes in 1..=9 {
            let machine = machine(nodes, local, rails);
            let bytes = 8 * u64::from(nodes * nodes * local * local);
            for operation in OPERATIONS {
                for algorithm in Hierarchical::all() {
                    let counted = messages(&machine, operation, bytes, algorithm);
                    let Some(cost) = cost(&machine, operation, bytes, algorithm, 1) else {
                        continue;
                    };
                    let formula = (
                        cost.steps,
                        cost.bytes_inside_per_link,
                        cost.bytes_between_per_rail,
                    );
                    assert_eq!(
                        Some(formula),
                        counted,
                        "{operation:?} {algorithm} {machine:?}"
                    );
                    compared += 1;
                }
            }
        }
    }
    assert!(compared > 2000, "{compared}");
}
