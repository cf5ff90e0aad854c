//! The budget of blocks that wait for peers: how many collectives may be under way at once, which calls are refused,
//! and that all grids fit the device together. On the host backend, and on both vendors' backends over the fakes.

#[path = "../support/fakes.rs"]
#[allow(dead_code, reason = "these tests need the fake runtimes only")]
mod fakes;
#[path = "../support/hip.rs"]
#[allow(dead_code, reason = "as above")]
mod hip;
#[path = "../support/job.rs"]
mod job;
#[path = "../support/vendors.rs"]
#[allow(dead_code, reason = "as above")]
mod vendors;

use fakes::*;
use half::bf16;
use job::{job, rank};
use rstest::rstest;
use std::time::Duration;
use symmem::{
    Algorithm, Builder, CollectiveCall, CollectiveOperation, CollectiveOptions, Communicator,
    ElementType, Error, ErrorKind, GemmAlgorithm, GemmOptions, GemmShape, LaunchEnvironment,
    Matrix, Operands, Queue, ReduceOp, Result, Stream, SymmetricBuffer,
};
use vendors::{Vendor, ranks, role};

/// Much longer than any of these tests takes.
const PATIENCE: Duration = Duration::from_secs(60);

/// Runs `rank` as each rank of a world on the host backend.
fn on_host<T: Send>(world: u32, rank: impl Fn(Communicator) -> T + Sync) -> Vec<T> {
    on_host_within(world, PATIENCE, rank)
}

/// [`on_host`] with a setup deadline.
fn on_host_within<T: Send>(
    world: u32,
    setup: Duration,
    rank: impl Fn(Communicator) -> T + Sync,
) -> Vec<T> {
    let job = job("residency");
    std::thread::scope(|scope| {
        let ranks: Vec<_> = (0..world)
            .map(|number| {
                let (job, rank) = (job.clone(), &rank);
                scope.spawn(move || {
                    let launch = LaunchEnvironment::local(number, world, job).unwrap();
                    let builder = Builder::new().launch(launch).deadline(PATIENCE);
                    let host = symmem::backends::Selection::Named("host".into());
                    rank(builder.setup_deadline(setup).backend(host).build().unwrap())
                })
            })
            .collect();
        ranks.into_iter().map(|rank| rank.join().unwrap()).collect()
    })
}

fn sum(
    queue: &Queue,
    buffer: &SymmetricBuffer<u32>,
    options: &CollectiveOptions<'_>,
) -> Result<()> {
    let all = buffer.all();
    queue.with(options).all_reduce(all, all, ReduceOp::Sum)
}

/// Checks that a call was refused with a sentence that has all `words`.
#[track_caller]
fn refused(outcome: Result<()>, words: &[&str]) {
    let error = outcome.expect_err("the call is refused");
    assert!(matches!(error, Error::InvalidArgument { .. }), "{error:?}");
    let text = error.to_string();
    assert!(words.iter().all(|word| text.contains(word)), "{text}");
}

#[test]
fn a_second_channel_on_a_second_stream_needs_the_agreement_of_all_ranks() {
    on_host(2, |communicator| {
        // A number is kept once it was named.
        communicator.allow_concurrent_collectives(1).unwrap();
        let streams = [(); 2].map(|()| communicator.stream().unwrap());
        let buffers = [(); 2].map(|()| communicator.allocate::<u32>(&[8]).unwrap());
        let options = [0, 1].map(|channel| CollectiveOptions::new().channel(channel));
        let call = |at: usize| sum(&streams[at], &buffers[at], &options[at]);
        call(0).unwrap();
        let words = ["2 channels", "2 streams", "allow_concurrent_collectives(2)"];
        refused(call(1), &words);
        assert_eq!(communicator.concurrent_collectives(), 1);
        communicator.allow_concurrent_collectives(2).unwrap();
        assert_eq!(communicator.concurrent_collectives(), 2);
        // Each rank uses another order.
        let first = communicator.rank();
        call(first).unwrap();
        call(1 - first).unwrap();
        let third = communicator.stream().unwrap();
        let options = CollectiveOptions::new().channel(2);
        refused(
            sum(&third, &buffers[0], &options),
            &["3 channels", "3 streams"],
        );
        streams
            .iter()
            .for_each(|stream| stream.synchronize().unwrap());
        communicator.finalize().unwrap();
    });
}

#[test]
fn any_number_may_be_under_way_until_one_is_named() {
    on_host(2, |communicator| {
        let streams = [(); 2].map(|()| communicator.stream().unwrap());
        let buffers = [(); 2].map(|()| communicator.allocate::<u32>(&[8]).unwrap());
        for (channel, stream) in streams.iter().enumerate() {
            let options = CollectiveOptions::new().channel(channel as u32);
            sum(stream, &buffers[channel], &options).unwrap();
        }
        streams
            .iter()
            .for_each(|stream| stream.synchronize().unwrap());
        communicator.finalize().unwrap();
    });
}

#[test]
fn what_one_stream_or_one_channel_orders_is_never_refused() {
    on_host(2, |communicator| {
        let stream = communicator.stream().unwrap();
        let buffer = communicator.allocate::<u32>(&[8]).unwrap();
        let group = communicator.split(Some(0), 0).unwrap();
        for group in [None, group.as_ref()] {
            for channel in 0..symmem::COLLECTIVE_CHANNELS {
                let options = CollectiveOptions::new().channel(channel).group(group);
                sum(&stream, &buffer, &options).unwrap();
                stream.with(&options).barrier().unwrap();
            }
        }
        stream.synchronize().unwrap();
        // Nothing is in use behind this call.
        communicator.allow_concurrent_collectives(1).unwrap();
        let others = [(); 3].map(|()| communicator.stream().unwrap());
        for stream in &others {
            sum(stream, &buffer, &CollectiveOptions::new()).unwrap();
            stream.synchronize().unwrap();
        }
        communicator.finalize().unwrap();
    });
}

#[test]
fn dropped_streams_and_groups_do_not_count() {
    on_host(2, |communicator| {
        let buffer = communicator.allocate::<u32>(&[8]).unwrap();
        let on = |stream: &Stream, options: &CollectiveOptions<'_>| {
            sum(stream, &buffer, options)?;
            stream.synchronize()
        };
        for channel in 0..2 {
            let stream = communicator.stream().unwrap();
            on(&stream, &CollectiveOptions::new().channel(channel)).unwrap();
        }
        communicator.allow_concurrent_collectives(1).unwrap();
        let streams = [(); 3].map(|()| communicator.stream().unwrap());
        for stream in &streams {
            let group = communicator.split(Some(0), 0).unwrap();
            on(stream, &CollectiveOptions::new().group(group.as_ref())).unwrap();
        }
        communicator.finalize().unwrap();
    });
}

#[test]
fn a_captured_call_counts_on_the_stream_that_launches_its_graph() {
    on_host(2, |communicator| {
        // A number is kept once it was named.
        communicator.allow_concurrent_collectives(1).unwrap();
        let mut streams = [(); 2].map(|()| communicator.stream().unwrap());
        let buffers = [(); 2].map(|()| communicator.allocate::<u32>(&[8]).unwrap());
        let second = CollectiveOptions::new().channel(1);
        let graph = streams[1]
            .capture(|queue| sum(queue, &buffers[1], &second))
            .unwrap();
        sum(&streams[0], &buffers[0], &CollectiveOptions::new()).unwrap();
        refused(streams[1].launch_graph(&graph), &["2 channels"]);
        streams[0].launch_graph(&graph).unwrap();
        // A graph in a graph counts as well.
        let outer = streams[1]
            .capture(|queue| queue.launch_graph(&graph))
            .unwrap();
        refused(streams[1].launch_graph(&outer), &["2 channels"]);
        communicator.allow_concurrent_collectives(2).unwrap();
        streams[1].launch_graph(&outer).unwrap();
        sum(&streams[0], &buffers[0], &CollectiveOptions::new()).unwrap();
        streams
            .iter()
            .for_each(|stream| stream.synchronize().unwrap());
        drop((graph, outer));
        communicator.finalize().unwrap();
    });
}

#[test]
fn ranks_agree_on_the_number_or_keep_the_old_one() {
    on_host(2, |communicator| {
        let rank = communicator.rank() as u32;
        let mismatch = communicator.allow_concurrent_collectives(2 + rank);
        assert!(
            matches!(mismatch, Err(Error::Mismatch { .. })),
            "{mismatch:?}"
        );
        refused(
            communicator.allow_concurrent_collectives(0),
            &["at least 1"],
        );
        assert_eq!(communicator.concurrent_collectives(), 1);
        // The ranks are still in step.
        communicator.allow_concurrent_collectives(3).unwrap();
        assert_eq!(communicator.concurrent_collectives(), 3);
        communicator.finalize().unwrap();
    });
}

#[test]
fn a_collective_that_not_all_ranks_have_enqueued_yet_keeps_the_number() {
    let numbers = on_host_within(2, Duration::from_secs(20), |communicator| {
        let stream = communicator.stream().unwrap();
        let buffer = communicator.allocate::<u32>(&[8]).unwrap();
        if communicator.rank() == 0 {
            // Its grid was chosen by the old number; rank 1 would choose by the new one.
            sum(&stream, &buffer, &CollectiveOptions::new()).unwrap();
        }
        let outcome = communicator.allow_concurrent_collectives(2);
        // Which rank's deadline passes first depends on the machine.
        let error = outcome.expect_err("a stream is busy");
        let kinds = [ErrorKind::Timeout, ErrorKind::PeerFailed];
        assert!(kinds.contains(&error.kind()), "{error:?}");
        let number = communicator.concurrent_collectives();
        communicator.abort();
        number
    });
    assert_eq!(numbers, [1, 1]);
}

// ---- over the fakes ----

#[rstest]
#[case("grids_fit_the_device_together")]
#[case("grids_under_way_at_once_are_resident_together")]
#[case("alone_a_collective_has_the_grid_of_the_table")]
#[case("a_graph_with_grids_that_have_no_room_any_more_is_refused")]
#[case("an_operation_with_a_grid_that_has_no_room_any_more_is_refused")]
#[case("more_than_the_device_has_room_for_is_refused")]
fn over_the_fakes(#[values(Vendor::Cuda, Vendor::Hip)] vendor: Vendor, #[case] name: &str) {
    assert_eq!(role(vendor, name, vendor.libraries(), &[]), [""; 0]);
}

/// The driver, and not the number of SMs, says how many blocks are co-resident in clusters.
#[test]
fn devices_with_room_for_different_numbers_of_clusters() {
    let (vendor, name) = (
        Vendor::Cuda,
        "ranks_whose_drivers_count_clusters_otherwise_are_told",
    );
    let environment = [("FAKE_CUDA_SHORT_GPCS", "1")];
    assert_eq!(
        role(vendor, name, vendor.libraries(), &environment),
        [""; 0]
    );
}

#[test]
#[ignore = "run in a child process by the test above"]
fn ranks_whose_drivers_count_clusters_otherwise_are_told() {
    ranks(2, |communicator| {
        let options = GemmOptions {
            algorithm: GemmAlgorithm::Pull,
            ..GemmOptions::default()
        };
        let shape = GemmShape::new(256, 256, 256);
        let made = communicator.all_gather_gemm::<bf16>(&shape, &options);
        let error = made.map(drop).expect_err("the grids would differ");
        assert!(matches!(error, Error::Mismatch { .. }), "{error:?}");
        let text = error.to_string();
        let words = [
            "limits of the gathering kernel",
            "blocks: 132",
            "blocks: 116",
        ];
        assert!(words.iter().all(|word| text.contains(word)), "{text}");
        communicator.finalize().unwrap();
    });
}

const OPERATIONS: [CollectiveOperation; 10] = [
    CollectiveOperation::AllReduce,
    CollectiveOperation::Reduce,
    CollectiveOperation::ReduceScatter,
    CollectiveOperation::AllGather,
    CollectiveOperation::AllGatherV,
    CollectiveOperation::Broadcast,
    CollectiveOperation::AllToAll,
    CollectiveOperation::Gather,
    CollectiveOperation::Scatter,
    CollectiveOperation::Exchange,
];

/// Returns algorithm, blocks and threads of every call: all operations, algorithms and sizes, with the selector's
/// threads and with the most.
fn choices(communicator: &Communicator) -> Vec<(CollectiveOperation, u64, Algorithm, u32, u32)> {
    let mut all = Vec::new();
    for operation in OPERATIONS {
        let named = Algorithm::ALL.iter().map(|&algorithm| Some(algorithm));
        for algorithm in named.chain([None]) {
            for bytes in (8..33).map(|power| 1u64 << power) {
                for threads in [None, Some(1024)] {
                    let call = CollectiveCall::new(operation, bytes, ElementType::Bf16);
                    let options = CollectiveOptions::new()
                        .algorithm(algorithm)
                        .threads(threads);
                    // Not every operation has every algorithm.
                    if let Ok(explanation) = communicator.explain_call(&call, &options) {
                        let choice = explanation.choice().expect("all ranks are on one node");
                        let (by, blocks) = (choice.algorithm(), choice.blocks);
                        all.push((operation, bytes, by, blocks, choice.threads));
                    }
                }
            }
        }
    }
    assert!(all.len() > 1000, "{}", all.len());
    all
}

/// Returns the largest grid that waits for peers, of all calls.
fn largest(communicator: &Communicator) -> u32 {
    let all = choices(communicator);
    // In a move by copy engines a kernel may copy the own part, which waits for nobody.
    let waiting = all.iter().filter(|(operation, _, by, ..)| {
        *by != Algorithm::CopyEngine || *operation == CollectiveOperation::AllReduce
    });
    waiting.map(|(.., blocks, _)| *blocks).max().unwrap()
}

#[test]
#[ignore = "run in a child process by the test above"]
fn grids_fit_the_device_together() {
    ranks(2, |communicator| {
        let units = communicator.device().compute_units;
        let alone = largest(&communicator);
        for at_once in 2..=8 {
            communicator.allow_concurrent_collectives(at_once).unwrap();
            let grid = largest(&communicator);
            let blocks = at_once * grid;
            assert!(
                blocks <= units - units / 16,
                "{at_once}: {blocks} of {units}"
            );
            let is_used = grid == alone || blocks > units / 2;
            assert!(is_used, "{at_once}: {blocks} of {units}");
            // A grid that the caller asks for has the same limit.
            let options = CollectiveOptions::new().blocks(units / at_once + 1);
            let call =
                CollectiveCall::new(CollectiveOperation::AllReduce, 1 << 20, ElementType::F32);
            let outcome = communicator.explain_call(&call, &options.algorithm(Algorithm::TwoShot));
            refused(
                outcome.map(drop),
                &["co-resident", "may be under way at once"],
            );
        }
        communicator.finalize().unwrap();
    });
}

/// The fake devices report grids that wait for peers at the same time and exceed a device together.
#[test]
#[ignore = "run in a child process by the test above"]
fn grids_under_way_at_once_are_resident_together() {
    const AT_ONCE: usize = 3;
    ranks(2, |communicator| {
        communicator
            .allow_concurrent_collectives(AT_ONCE as u32)
            .unwrap();
        let streams = [(); AT_ONCE].map(|()| communicator.stream().unwrap());
        let buffers = [(); AT_ONCE].map(|()| communicator.allocate::<u32>(&[1 << 20]).unwrap());
        for (stream, buffer) in streams.iter().zip(&buffers) {
            buffer.write(stream, 0, &vec![1; buffer.len()]).unwrap();
        }
        communicator.host_barrier().unwrap();
        // As large as the kernel's blocks can be.
        let threads = match Vendor::of_role() {
            Vendor::Cuda => 1024,
            Vendor::Hip => 512,
        };
        let options = CollectiveOptions::new().algorithm(Algorithm::TwoShot);
        for round in 1..=3 {
            // One rank comes late, in another order, so that all of its peer's grids wait together.
            let late = communicator.rank() == round % 2;
            if late {
                std::thread::sleep(Duration::from_millis(300));
            }
            for turn in 0..AT_ONCE {
                let at = if late { AT_ONCE - 1 - turn } else { turn };
                let options = options.threads(threads).channel(at as u32);
                sum(&streams[at], &buffers[at], &options).unwrap();
            }
            for (stream, buffer) in streams.iter().zip(&buffers) {
                let mut seen = vec![0; buffer.len()];
                stream.read(buffer, &mut seen).unwrap();
                assert!(seen.iter().all(|&element| element == 1 << round));
            }
        }
        communicator.finalize().unwrap();
    });
}

#[test]
#[ignore = "run in a child process by the test above"]
fn alone_a_collective_has_the_grid_of_the_table() {
    ranks(2, |communicator| {
        let alone = choices(&communicator);
        if Vendor::of_role() == Vendor::Cuda {
            // From `backend-cuda/src/tuning/collectives.rs`.
            for (bytes, blocks, threads) in
                [(1 << 10, 1, 64), (1 << 16, 64, 64), (1 << 26, 96, 512)]
            {
                let operation = CollectiveOperation::AllReduce;
                let choice = communicator.explain(operation, bytes, ElementType::Bf16);
                let choice = choice.unwrap().choice().unwrap();
                assert_eq!((choice.blocks, choice.threads), (blocks, threads));
            }
        }
        communicator.allow_concurrent_collectives(16).unwrap();
        let most = alone.iter().map(|(.., blocks, _)| *blocks).max().unwrap();
        assert!(largest(&communicator) < most);
        communicator.allow_concurrent_collectives(1).unwrap();
        assert_eq!(choices(&communicator), alone);
        communicator.finalize().unwrap();
    });
}

#[test]
#[ignore = "run in a child process by the test above"]
fn a_graph_with_grids_that_have_no_room_any_more_is_refused() {
    ranks(2, |communicator| {
        let mut stream = communicator.stream().unwrap();
        let buffer = communicator.allocate::<u32>(&[1 << 18]).unwrap();
        let by = |blocks| {
            let options = CollectiveOptions::new().algorithm(Algorithm::TwoShot);
            options.blocks(blocks)
        };
        let large = stream
            .capture(|queue| sum(queue, &buffer, &by(60)))
            .unwrap();
        let small = stream.capture(|queue| sum(queue, &buffer, &by(4))).unwrap();
        let launch = |stream: &Stream, graph| {
            stream.launch_graph(graph)?;
            stream.synchronize()
        };
        launch(&stream, &large).unwrap();
        launch(&stream, &small).unwrap();
        communicator.allow_concurrent_collectives(8).unwrap();
        refused(
            launch(&stream, &large),
            &["graph launch", "capture it again"],
        );
        launch(&stream, &small).unwrap();
        // A graph in a graph as well.
        let outer = stream.capture(|queue| queue.launch_graph(&large));
        refused(outer.map(drop), &["capture it again"]);
        communicator.allow_concurrent_collectives(1).unwrap();
        launch(&stream, &large).unwrap();
        drop((large, small));
        communicator.finalize().unwrap();
    });
}

#[test]
#[ignore = "run in a child process by the test above"]
fn an_operation_with_a_grid_that_has_no_room_any_more_is_refused() {
    ranks(2, |communicator| {
        let stream = communicator.stream().unwrap();
        let shape = GemmShape::new(256, 256, 256);
        let options = GemmOptions {
            algorithm: GemmAlgorithm::Pull,
            ..GemmOptions::default()
        };
        let buffer = |elements| communicator.allocate::<bf16>(&[elements]).unwrap();
        let (a, b, c) = (buffer(128 * 256), buffer(256 * 256), buffer(256 * 256));
        for buffer in [&a, &b] {
            let ones = vec![bf16::ONE; buffer.len()];
            buffer.write(&stream, 0, &ones).unwrap();
        }
        let operands = Operands {
            a: a.all(),
            b: Matrix::of(&b, 256, 256).unwrap(),
            c: Matrix::of(&c, 256, 256).unwrap(),
            bias: None,
            scale: None,
            gathered: None,
        };
        let call = |operation| {
            stream.all_gather_gemm(operation, &operands)?;
            stream.synchronize()
        };
        let make = || {
            communicator
                .all_gather_gemm::<bf16>(&shape, &options)
                .unwrap()
        };
        let whole = make();
        call(&whole).unwrap();
        communicator.allow_concurrent_collectives(2).unwrap();
        refused(
            call(&whole),
            &["all_gather_gemm", "make the operation again"],
        );
        let shared = make();
        assert_eq!(shared.algorithm(), GemmAlgorithm::Pull);
        call(&shared).unwrap();
        let mut seen = vec![bf16::ZERO; 256 * 256];
        c.read(&stream, 0, &mut seen).unwrap();
        assert!(seen.iter().all(|&element| element == bf16::from_f32(256.0)));
        // A smaller grid always has room.
        communicator.allow_concurrent_collectives(1).unwrap();
        call(&shared).unwrap();
        call(&whole).unwrap();
        drop((whole, shared));
        communicator.finalize().unwrap();
    });
}

#[test]
#[ignore = "run in a child process by the test above"]
fn more_than_the_device_has_room_for_is_refused() {
    ranks(2, |communicator| {
        let most = (communicator.device().compute_units * 15).div_ceil(16);
        let outcome = communicator.allow_concurrent_collectives(most + 1);
        assert!(
            matches!(outcome, Err(Error::Unsupported { .. })),
            "{outcome:?}"
        );
        communicator.allow_concurrent_collectives(most).unwrap();
        assert_eq!(largest(&communicator), 1);
        communicator.finalize().unwrap();
    });
}
