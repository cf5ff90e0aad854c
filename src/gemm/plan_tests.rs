//! Checks plans against their rules, by running all ranks' plans on a model of streams.

use super::model::Model;
use super::*;
use crate::base::gemm_shape::GemmShape;
use crate::base::names::Sharding;
use crate::gemm::stream_model::Work;
use std::collections::HashSet;

const WAYS: [(GemmAlgorithm, GemmTransport); 7] = [
    (GemmAlgorithm::Baseline, GemmTransport::Automatic),
    (GemmAlgorithm::Pipeline, GemmTransport::Get),
    (GemmAlgorithm::Pipeline, GemmTransport::Put),
    (GemmAlgorithm::Pipeline, GemmTransport::Nccl),
    (GemmAlgorithm::Pull, GemmTransport::Kernel),
    (GemmAlgorithm::Push, GemmTransport::Put),
    (GemmAlgorithm::Push, GemmTransport::Kernel),
];

fn problem(rank: usize, world: usize, way: (GemmAlgorithm, GemmTransport)) -> Problem {
    with_shape(rank, world, way, &GemmShape::new(4 * world, 8, 16))
}

fn with_shape(
    rank: usize,
    world: usize,
    (algorithm, transport): (GemmAlgorithm, GemmTransport),
    shape: &GemmShape,
) -> Problem {
    let division = Division::new(shape, world);
    let chunk = division.rows(0).div_ceil(2);
    Problem {
        rank,
        world,
        division,
        algorithm,
        transport,
        streams: 2,
        ordered: true,
        fanout: 1,
        at_once: false,
        keep: false,
        chunk,
        chunks: division.rows(0).div_ceil(chunk) as u32,
    }
}

/// Calls `each` with every possible plan of all ranks of a world.
fn every_world(mut each: impl FnMut(&[Problem])) {
    for world in 1..=8 {
        for way in WAYS {
            let pipeline = way.0 == GemmAlgorithm::Pipeline;
            for streams in 1..=if pipeline { 9 } else { 1 } {
                // Fewer rows than ranks, so that some ranks have none; then a short last shard; then equal
                // shards.
                for m in [1, 4 * world - 1, 4 * world] {
                    for (sharding, ordered, fanout, keep) in [
                        (Sharding::Rows, true, 1, false),
                        (Sharding::Rows, false, 1, true),
                        (Sharding::Rows, true, 7, false),
                        (Sharding::Columns, true, 1, false),
                    ] {
                        let shape = GemmShape {
                            sharding,
                            ..GemmShape::new(m, 8, m)
                        };
                        let problems: Vec<_> = (0..world)
                            .map(|rank| Problem {
                                streams,
                                ordered,
                                fanout,
                                at_once: !ordered,
                                keep,
                                ..with_shape(rank, world, way, &shape)
                            })
                            .collect();
                        each(&problems);
                    }
                }
            }
        }
    }
}

#[test]
fn no_world_waits_for_ever_and_nothing_is_written_that_is_still_read() {
    let mut seed = 7;
    every_world(|problems| {
        seed += 1;
        Model::new(problems, 2, false).run(seed);
        // As on a backend that records one stream.
        Model::new(problems, 2, true).run(seed);
    });
}

#[test]
fn every_shard_is_multiplied_once_and_comes_once() {
    every_world(|problems| {
        for problem in problems {
            let steps = problem.steps();
            let count = |wanted: &dyn Fn(&GemmStep) -> bool| {
                steps.iter().filter(|step| wanted(step)).count()
            };
            let full = (0..problem.world).filter(|&rank| !problem.division.is_empty(rank));
            let full = full.count();
            let multiplied = count(&|step| matches!(step, GemmStep::Multiply { .. }));
            let whole = count(&|step| {
                matches!(
                    step,
                    GemmStep::Multiply {
                        part: GemmPart::Whole,
                        ..
                    }
                )
            });
            let kernels = count(&|step| matches!(step, GemmStep::Gathered { .. }));
            match problem.algorithm {
                _ if problem.world == 1 => assert_eq!((multiplied, kernels), (1, 0)),
                GemmAlgorithm::Pull | GemmAlgorithm::Push => {
                    assert_eq!((multiplied, kernels), (0, 1));
                }
                GemmAlgorithm::Pipeline if !problem.division.by_columns() => {
                    assert_eq!((multiplied, whole, kernels), (full, 0, 0));
                }
                _ => assert_eq!((multiplied, whole, kernels), (1, 1, 0)),
            }
            let puts: Vec<_> = steps
                .iter()
                .filter_map(|step| match step {
                    GemmStep::Put { peer, chunk, .. } => Some((*peer, *chunk)),
                    _ => None,
                })
                .collect();
            let distinct: HashSet<_> = puts.iter().collect();
            assert_eq!(distinct.len(), puts.len(), "{problem:?}");
            assert!(puts.iter().all(|&(peer, _)| peer != problem.rank));
        }
    });
}

#[test]
fn each_step_is_a_permutation_of_the_ranks() {
    for world in 2..=8 {
        for step in 1..world {
            let peers: Vec<_> = (0..world)
                .map(|rank| problem(rank, world, WAYS[1]).peers(step))
                .collect();
            let from: HashSet<_> = peers.iter().map(|peers| peers.0).collect();
            let to: HashSet<_> = peers.iter().map(|peers| peers.1).collect();
            assert_eq!((from.len(), to.len()), (world, world));
            for (rank, &(from, to)) in peers.iter().enumerate() {
                assert_eq!(peers[to].0, rank, "who gets a shard expects it then");
                assert_eq!(peers[from].1, rank);
            }
        }
    }
}

#[test]
fn a_grid_that_waits_comes_after_its_copies_and_needs_nothing_that_needs_a_compute_unit() {
    every_world(|problems| {
        for problem in problems {
            let steps = problem.steps();
            let grid = |step: &GemmStep| matches!(step, GemmStep::Gathered { .. });
            let Some(at) = steps.iter().position(grid) else {
                continue;
            };
            let at_once = GemmStep::Gathered {
                mode: GatherMode::PUSH_AT_ONCE,
            };
            if steps[at] == at_once {
                assert_eq!(steps, [at_once], "it is the whole call: {problem:?}");
                continue;
            }
            assert_eq!(steps[0], GemmStep::Start, "{problem:?}");
            let engine = |step: &GemmStep| {
                matches!(
                    step,
                    GemmStep::Start
                        | GemmStep::Fork { .. }
                        | GemmStep::Put { .. }
                        | GemmStep::Arrive { .. }
                        | GemmStep::Keep { .. }
                )
            };
            assert!(steps[..at].iter().all(engine), "{problem:?}");
            let after = |step: &GemmStep| matches!(step, GemmStep::Join { .. } | GemmStep::End);
            assert!(steps[at + 1..].iter().all(after), "{problem:?}");
        }
    });
}

#[test]
fn copies_of_a_pipeline_are_enqueued_before_its_products() {
    every_world(|problems| {
        for problem in problems {
            let steps = problem.steps();
            let copy = |step: &GemmStep| {
                matches!(
                    step,
                    GemmStep::Get { .. } | GemmStep::Put { .. } | GemmStep::Exchange { .. }
                )
            };
            let product = |step: &GemmStep| matches!(step, GemmStep::Multiply { .. });
            let first = steps.iter().position(product).unwrap_or(steps.len());
            let last = steps.iter().rposition(copy);
            assert!(last.is_none_or(|last| last < first), "{problem:?}");
        }
    });
}

#[test]
fn streams_that_fork_are_joined_and_a_peers_shard_is_read_between_two_barriers() {
    every_world(|problems| {
        for problem in problems {
            let steps = problem.steps();
            let streams = |join: bool| -> Vec<GemmStream> {
                let streams = steps.iter().filter_map(|step| match *step {
                    GemmStep::Fork { on } if !join => Some(on),
                    GemmStep::Join { on } if join => Some(on),
                    _ => None,
                });
                let mut streams: Vec<_> = streams.collect();
                streams.sort_unstable();
                streams
            };
            assert_eq!(streams(false), streams(true), "{problem:?}");
            let reads = |step: &GemmStep| {
                let pulls = GemmStep::Gathered {
                    mode: GatherMode::PULL,
                };
                *step == pulls || matches!(step, GemmStep::Get { .. })
            };
            if steps.iter().any(reads) {
                assert_eq!(steps.last(), Some(&GemmStep::End), "{problem:?}");
            }
            // A rank that has all rows reads from no peer, but peers may read from it.
            let ends = |problem: &Problem| problem.steps().contains(&GemmStep::End);
            assert!(problems.iter().all(|other| ends(other) == ends(problem)));
        }
    });
}

#[test]
fn ranks_keep_step_alike_where_links_are_shared() {
    every_world(|problems| {
        let turns = |problem: &Problem| {
            let steps = problem.steps();
            let turns = steps
                .iter()
                .filter(|step| matches!(step, GemmStep::Turn { .. }));
            turns.count()
        };
        let expected = match problems[0] {
            Problem {
                algorithm: GemmAlgorithm::Pipeline,
                transport: GemmTransport::Get | GemmTransport::Put,
                ordered: true,
                fanout: 1,
                world: world @ 3..,
                ..
            } => world - 2,
            _ => 0,
        };
        assert!(problems.iter().all(|problem| turns(problem) == expected));
    });
}

/// Plants faults, to show that the model finds them.
#[test]
fn the_model_finds_a_plan_without_a_barrier_and_one_that_waits_for_nobody() {
    let fails = |world: usize, way, fault: &dyn Fn(&mut Vec<Work<GemmStep>>)| {
        let problems: Vec<_> = (0..world).map(|rank| problem(rank, world, way)).collect();
        let run = || {
            for seed in 0..64 {
                let mut model = Model::new(&problems, 1, false);
                for streams in &mut model.streams.work {
                    for left in streams.values_mut() {
                        let mut work: Vec<_> = left.drain(..).collect();
                        fault(&mut work);
                        left.extend(work);
                    }
                }
                model.run(seed);
            }
        };
        let quiet = std::panic::AssertUnwindSafe(run);
        std::panic::catch_unwind(quiet).is_err()
    };
    let without = |unwanted: fn(&GemmStep) -> bool| {
        move |work: &mut Vec<Work<GemmStep>>| {
            work.retain(|work| !matches!(work, Work::Do(step) if unwanted(step)));
        }
    };
    assert!(!fails(3, WAYS[2], &|_| ()));
    assert!(fails(3, WAYS[2], &without(|step| *step == GemmStep::Start)));
    assert!(fails(
        3,
        WAYS[2],
        &without(|step| matches!(step, GemmStep::Receive { .. }))
    ));
    assert!(fails(
        3,
        WAYS[2],
        &without(|step| matches!(step, GemmStep::Give { .. }))
    ));
    assert!(fails(3, WAYS[1], &|work: &mut Vec<Work<GemmStep>>| {
        work.retain(|work| !matches!(work, Work::Pass(_)));
    }));
    assert!(fails(
        3,
        WAYS[5],
        &without(|step| matches!(step, GemmStep::Arrive { .. }))
    ));
}
