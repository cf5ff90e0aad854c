//! Strategies that generate programs.

use crate::program::*;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use proptest::strategy::ValueTree;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};

/// Most elements of a buffer, and of a part.
const LENGTH: usize = 700;
const PART: usize = 90;

/// A generated program that can be shrunk.
pub type Tree = Box<dyn ValueTree<Value = Program>>;

/// Returns the program of a seed.
pub fn tree(seed: u64) -> Tree {
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &bytes);
    let config = Config {
        failure_persistence: None,
        ..Config::default()
    };
    let mut runner = TestRunner::new_with_rng(config, rng);
    let made = program().boxed().new_tree(&mut runner);
    made.expect("no strategy here rejects a value")
}

fn program() -> impl Strategy<Value = Program> {
    (
        prop_oneof![1 => Just(1usize), 4 => Just(2), 3 => Just(3), 3 => Just(RANKS)],
        prop_oneof![2 => Just(1usize), 1 => Just(2)],
        vec(phase(), 1..3),
    )
        .prop_map(|(world, communicators, phases)| Program {
            world,
            communicators,
            phases,
        })
}

fn phase() -> impl Strategy<Value = Phase> {
    (
        prop::bool::weighted(0.15),
        vec(beginning(), 0..7),
        vec(steps(), 0..36),
        vec(ending(), 2),
        any::<u64>(),
    )
        .prop_map(|(checked, beginning, steps, endings, order)| Phase {
            checked,
            steps: [beginning, steps.concat()].concat(),
            endings,
            order,
        })
}

/// One step, or a few that follow what once freed memory under work.
fn steps() -> impl Strategy<Value = Vec<Step>> {
    prop_oneof![
        16 => step().prop_map(|step| vec![step]),
        1 => (0usize..2, motif()).prop_map(|(on, motif)| {
            motif.into_iter().map(|act| Step { on, act }).collect()
        }),
        // What the other communicator has, this one blocks beside, or is offered.
        2 => (0usize..2, scene(), foreign_refusal()).prop_map(|(on, scene, refusal)| {
            let other = Step { on: 1 - on, act: allocate() };
            let here = [
                allocate(),
                Act::Refused { refusal, stream: 0, buffer: LAST },
                Act::Scene { scene, stream: 0 },
            ];
            let here = here.map(|act| Step { on, act });
            [vec![other], here.to_vec()].concat()
        }),
    ]
}

fn allocate() -> Act {
    Act::Allocate {
        element: Element::U32,
        length: 300,
    }
}

/// A graph, perhaps in a graph, whose buffer is dropped or freed before it is launched.
fn motif() -> impl Strategy<Value = Vec<Act>> {
    (operation(), any::<bool>(), any::<bool>(), any::<u32>()).prop_map(
        |(operation, nested, freed, pattern)| {
            let used = Operation {
                from: LAST + 1,
                to: LAST,
                count: 40 + operation.count,
                in_place: false,
                ..operation
            };
            let launch = Operation {
                kind: Kind::Launch,
                number: LAST,
                ..Operation::plain()
            };
            let (stream, at, count) = (0, 0, 300);
            let mut acts = vec![
                allocate(),
                allocate(),
                Act::Write {
                    stream,
                    buffer: LAST + 1,
                    at,
                    count,
                    pattern,
                },
                Act::Capture {
                    stream,
                    operations: vec![used],
                },
            ];
            if nested {
                acts.push(Act::Capture {
                    stream,
                    operations: vec![launch],
                });
                acts.push(Act::DropGraph { graph: LAST + 1 });
            }
            acts.push(if freed {
                Act::Free { buffer: LAST + 1 }
            } else {
                Act::Drop {
                    buffer: LAST + 1,
                    ranks: 0xf,
                }
            });
            acts.extend([
                Act::Synchronize { stream },
                Act::Launch {
                    graph: LAST,
                    stream,
                },
                Act::Read {
                    stream,
                    buffer: LAST,
                    at,
                    count,
                },
            ]);
            acts
        },
    )
}

/// Buffers with something in them, so that most later steps have what they need.
fn beginning() -> impl Strategy<Value = Step> {
    let act = prop_oneof![
        2 => (element(), 40..=LENGTH).prop_map(|(element, length)| Act::Allocate { element, length }),
        1 => (0usize..6, 0..LENGTH, 0..=LENGTH, any::<u32>()).prop_map(|(buffer, at, count, pattern)| Act::Write {
            stream: 0,
            buffer,
            at,
            count,
            pattern,
        }),
    ];
    (0usize..2, act).prop_map(|(on, act)| Step { on, act })
}

fn step() -> impl Strategy<Value = Step> {
    (0usize..2, act()).prop_map(|(on, act)| Step { on, act })
}

fn act() -> impl Strategy<Value = Act> {
    let slot = || 0usize..6;
    let count = || prop_oneof![0usize..8, 0..=PART];
    prop_oneof![
        3 => (element(), prop_oneof![1 => 0usize..3, 5 => 1..=LENGTH])
            .prop_map(|(element, length)| Act::Allocate { element, length }),
        2 => (slot(), prop_oneof![2 => Just(0xf), 1 => 0u8..16])
            .prop_map(|(buffer, ranks)| Act::Drop { buffer, ranks }),
        1 => slot().prop_map(|buffer| Act::Free { buffer }),
        1 => Just(Act::Stream),
        1 => slot().prop_map(|stream| Act::DropStream { stream }),
        12 => (slot(), operation())
            .prop_map(|(stream, operation)| Act::Enqueue { stream, operation }),
        3 => (slot(), vec(operation(), 0..5))
            .prop_map(|(stream, operations)| Act::Capture { stream, operations }),
        4 => (slot(), slot()).prop_map(|(graph, stream)| Act::Launch { graph, stream }),
        1 => slot().prop_map(|graph| Act::DropGraph { graph }),
        4 => (slot(), slot(), 0..LENGTH, count(), any::<u32>())
            .prop_map(|(stream, buffer, at, count, pattern)| Act::Write { stream, buffer, at, count, pattern }),
        2 => (slot(), slot(), 0..LENGTH, count())
            .prop_map(|(stream, buffer, at, count)| Act::Read { stream, buffer, at, count }),
        1 => slot().prop_map(|stream| Act::Synchronize { stream }),
        1 => Just(Act::HostBarrier),
        1 => (0usize..300).prop_map(|bytes| Act::HostAllGather { bytes }),
        1 => (any::<[u8; RANKS]>(), any::<[u8; RANKS]>())
            .prop_map(|(colors, keys)| Act::Split { colors: colors.map(|color| color % 4), keys }),
        1 => slot().prop_map(|group| Act::DropGroup { group }),
        2 => (vec(operation(), 1..4), vec(operation(), 1..4), slot())
            .prop_map(|(first, second, dropped)| Act::Threads { first, second, dropped }),
        1 => (refusal(), slot(), slot())
            .prop_map(|(refusal, stream, buffer)| Act::Refused { refusal, stream, buffer }),
        1 => (scene(), slot()).prop_map(|(scene, stream)| Act::Scene { scene, stream }),
        1 => (disagreement(), 0..RANKS)
            .prop_map(|(disagreement, rank)| Act::Disagree { disagreement, rank }),
    ]
}

fn element() -> impl Strategy<Value = Element> {
    use Element::*;
    // Elements of a byte may start and end anywhere.
    select(vec![U8, U8, U8, U16, U32, U32, U64, F16, Bf16, F32, F64])
}

fn operation() -> impl Strategy<Value = Operation> {
    (
        (kind(), 0usize..6, 0usize..6, 0..LENGTH, 0..LENGTH),
        (
            prop_oneof![0usize..8, 0..=PART],
            0u32..8,
            prop_oneof![2 => Just(0usize), 1 => 1usize..4],
        ),
        (0usize..6, 0usize..6, any::<bool>()),
    )
        .prop_map(
            |(
                (kind, from, to, read_at, write_at),
                (count, channel, group),
                (number, algorithm, in_place),
            )| Operation {
                kind,
                from,
                to,
                read_at,
                write_at,
                count,
                channel,
                group,
                number,
                algorithm,
                in_place,
            },
        )
}

fn kind() -> impl Strategy<Value = Kind> {
    use Atomic as A;
    use Reduce as R;
    let reduce = || {
        select(vec![
            R::Sum,
            R::Sum,
            R::Average,
            R::Minimum,
            R::Maximum,
            R::Product,
        ])
    };
    prop_oneof![
        3 => reduce().prop_map(Kind::AllReduce),
        1 => reduce().prop_map(Kind::Reduce),
        2 => reduce().prop_map(Kind::ReduceScatter),
        2 => Just(Kind::AllGather),
        2 => Just(Kind::AllGatherV),
        2 => Just(Kind::Broadcast),
        2 => Just(Kind::AllToAll),
        2 => Just(Kind::AllToAllV),
        1 => Just(Kind::Gather),
        1 => Just(Kind::Scatter),
        2 => (1usize..4).prop_map(Kind::Exchange),
        1 => Just(Kind::SendRecv),
        1 => Just(Kind::Barrier),
        1 => Just(Kind::GroupBarrier),
        2 => Just(Kind::Put),
        2 => Just(Kind::Get),
        2 => Just(Kind::PutSignal),
        2 => select(vec![A::FetchAdd, A::Swap, A::CompareSwap, A::SignalAdd, A::SetAndWait])
            .prop_map(Kind::Atomic),
        2 => Just(Kind::Local),
        2 => Just(Kind::Launch),
    ]
}

fn refusal() -> impl Strategy<Value = Refusal> {
    use Refusal::*;
    select(vec![
        Root,
        Peer,
        Channel,
        BarrierChannel,
        Range,
        Overlap,
        Lengths,
        HostLength,
        OtherCommunicator,
        OtherCommunicator,
        EmptyWait,
        Algorithm,
    ])
}

fn foreign_refusal() -> impl Strategy<Value = Refusal> {
    prop_oneof![Just(Refusal::OtherCommunicator), refusal()]
}

fn scene() -> impl Strategy<Value = Scene> {
    prop_oneof![
        1 => (1usize..24, 1usize..17, 1usize..17, 0usize..5)
            .prop_map(|(m, n, k, algorithm)| Scene::Gemm { m, n, k, algorithm }),
        1 => (1usize..3000).prop_map(|length| match length % 3 {
            0 => Scene::Met { length },
            _ => Scene::Registered { length },
        }),
        1 => (0usize..3).prop_map(|launches| Scene::Kernel { launches }),
        2 => (0usize..6, any::<bool>()).prop_map(|(dropped, freed)| Scene::Blocked { dropped, freed }),
        2 => (1usize..60_000, 1usize..30).prop_map(|(length, times)| Scene::Copies { length, times }),
    ]
}

fn disagreement() -> impl Strategy<Value = Disagreement> {
    use Disagreement::*;
    select(vec![Length, Element, Call, Overflow, Free, Payload])
}

fn ending() -> impl Strategy<Value = Ending> {
    prop_oneof![
        4 => Just(Ending::Finalize),
        2 => Just(Ending::Drop),
        2 => (0..RANKS, any::<bool>()).prop_map(|(rank, busy)| Ending::Abort { rank, busy }),
        1 => (0..RANKS, any::<bool>()).prop_map(|(rank, barrier)| Ending::Missing { rank, barrier }),
        1 => (0..RANKS).prop_map(|rank| Ending::Size { rank }),
        2 => (0..RANKS, 0u8..8).prop_map(|(rank, delay)| Ending::ReceiveDropped { rank, delay }),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::plan;

    #[test]
    fn a_seed_names_a_program_which_survives_its_file() {
        for seed in 0..20 {
            let program = tree(seed).current();
            assert_eq!(program, tree(seed).current());
            let text = serde_json::to_string(&program).unwrap();
            assert_eq!(serde_json::from_str::<Program>(&text).unwrap(), program);
        }
        assert_ne!(tree(1).current(), tree(2).current());
    }

    #[test]
    fn every_program_has_a_plan_also_a_shrunk_one() {
        for seed in 0..200 {
            let mut tree = tree(seed);
            plan(&tree.current());
            for _ in 0..20 {
                tree.simplify();
                plan(&tree.current());
            }
        }
    }
}
