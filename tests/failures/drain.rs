//! A queue of calls that wait for a lost rank is over soon after the survivors know of the loss: the first wait that
//! sees the abort word tells the others of its device (`Watch::aborted`).
//!
//! On GPUs (`SYMMEM_TEST_DRIVER=system`) the collectives are of 64 MiB, and a queue must be over within a second.
//! `cargo test --release --test failures drain:: -- --test-threads=1 --nocapture` prints the times. `DRAIN_CALLS` and
//! `DRAIN_MIB` change the numbers.

use crate::support::{Member, Plan, SLACK, Setting, on_each_backend, system_driver};
use half::bf16;
use rstest::rstest;
use rstest_reuse::apply;
use std::time::{Duration, Instant};
use symmem::backend::abi::{RawStream, Transfer};
use symmem::backend::{Device, RemoteAccess};
use symmem::{
    Algorithm, AllGatherGemm, CollectiveOptions, Communicator, GemmAlgorithm, GemmOptions,
    GemmShape, GemmTransport, Matrix, Operands, ReduceOp, Result, Stream, SymmetricBuffer,
};

/// What the queue consists of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Queued {
    /// All-reduces, by each algorithm in turn.
    Reductions,
    /// Waits for signals, and barriers.
    Waits,
    /// All-gather + GEMM, by one kernel each.
    Products,
}

/// How rank 0, which makes none of the calls, is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Loss {
    Aborts,
    IsKilled,
}

fn on_gpus(setting: Setting) -> bool {
    setting.is_device() && system_driver()
}

fn number(name: &str) -> Option<usize> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().expect("a number"))
}

/// Returns the number of queued calls. More than 1000 launches fill the queue of a CUDA stream, and the host would wait.
fn calls() -> usize {
    number("DRAIN_CALLS").unwrap_or(200)
}

fn elements(setting: Setting) -> usize {
    let bytes = match (number("DRAIN_MIB"), on_gpus(setting)) {
        (Some(mib), _) => mib << 20,
        (None, true) => 64 << 20,
        (None, false) => 64 << 10,
    };
    bytes / size_of::<f32>()
}

/// Algorithms of an all-reduce; a backend may lack some.
const ALGORITHMS: [Algorithm; 6] = [
    Algorithm::TwoShot,
    Algorithm::OneShot,
    Algorithm::Push,
    Algorithm::CopyEngine,
    Algorithm::LlTwoShot,
    Algorithm::Lamport,
];

/// The calls of a queue.
enum Calls {
    Reductions(SymmetricBuffer<f32>, Vec<Algorithm>),
    Waits,
    Products(Box<AllGatherGemm<bf16>>, [SymmetricBuffer<bf16>; 3]),
}

impl Calls {
    /// Makes buffers, and one call of each kind, which loads what must be loaded. Every rank takes part.
    fn prepare(
        queued: Queued,
        member: &Member,
        communicator: &Communicator,
        stream: &Stream,
    ) -> Result<Self> {
        let mut calls = match queued {
            Queued::Waits => Self::Waits,
            Queued::Reductions => {
                let buffer = communicator.allocate(&[elements(member.setting)])?;
                Self::Reductions(buffer, Vec::new())
            }
            Queued::Products => {
                let shape = match on_gpus(member.setting) {
                    true => GemmShape::new(16384, 8192, 8192),
                    false => GemmShape::new(450, 8, 192),
                };
                // Which rows of A are a chunk follows from the shape, except on the fakes, whose shapes are small.
                let options = GemmOptions {
                    algorithm: GemmAlgorithm::Push,
                    transport: GemmTransport::Kernel,
                    chunk_rows: (!on_gpus(member.setting)).then_some(128),
                    ..GemmOptions::default()
                };
                let operation = communicator.all_gather_gemm(&shape, &options)?;
                let a = communicator.allocate(&[shape.shard_elements(member.world)])?;
                let b = communicator.allocate(&[shape.k * shape.n])?;
                let c = communicator.allocate(&[shape.m * shape.n])?;
                Self::Products(Box::new(operation), [a, b, c])
            }
        };
        if let Self::Reductions(buffer, algorithms) = &mut calls {
            for algorithm in ALGORITHMS {
                let options = CollectiveOptions::new().algorithm(algorithm);
                // An algorithm that this backend lacks, or that does not take so many bytes, is refused on all ranks.
                let made = stream
                    .with(&options)
                    .all_reduce(&*buffer, &*buffer, ReduceOp::Sum);
                if made.is_ok() {
                    algorithms.push(algorithm);
                }
            }
            assert!(!algorithms.is_empty(), "at least one algorithm");
        } else if let Self::Products(..) = &calls {
            calls.enqueue(0, stream)?;
        }
        stream.synchronize()?;
        Ok(calls)
    }

    fn enqueue(&self, index: usize, stream: &Stream) -> Result<()> {
        match self {
            Self::Reductions(buffer, algorithms) => {
                let options =
                    CollectiveOptions::new().algorithm(algorithms[index % algorithms.len()]);
                stream
                    .with(&options)
                    .all_reduce(buffer, buffer, ReduceOp::Sum)
            }
            Self::Waits if index.is_multiple_of(2) => stream.wait_signal(0, 1),
            Self::Waits => stream.barrier(),
            Self::Products(operation, [a, b, c]) => {
                let shape = operation.shape();
                let operands = Operands {
                    a: a.all(),
                    b: Matrix::of(b.all(), shape.k, shape.n)?,
                    c: Matrix::of(c.all(), shape.m, shape.n)?,
                    bias: None,
                    scale: None,
                    gathered: None,
                };
                stream.all_gather_gemm(operation, &operands)
            }
        }
    }
}

/// Returns whether a wait on this rank's device has seen an abort.
fn has_noted_abort(communicator: &Communicator, stream: &Stream) -> bool {
    // SAFETY: the calls below concern the stream's order and memory of their own. They go past the library, which makes
    // no calls after an abort.
    let backend = unsafe { communicator.backend() };
    let stream = RawStream(stream.raw());
    let word = communicator.watch(communicator.deadline()).aborted;
    let memory = backend.host_allocate(4096).expect("host memory");
    // SAFETY: both are live until the stream is idle.
    unsafe { backend.transfer(&Transfer::by_engine(memory.device, word, 4), stream) }
        .expect("copied");
    wait_until_idle(communicator, stream);
    // SAFETY: the copy is complete, and the memory is freed once, after its use.
    unsafe {
        let noted = (memory.host as *const u32).read_volatile();
        backend.host_free(memory).expect("freed");
        noted != 0
    }
}

fn wait_until_idle(communicator: &Communicator, stream: RawStream) {
    // SAFETY: the stream is live.
    let idle = || unsafe { communicator.backend().stream_idle(stream) };
    while !idle().expect("a wait that gives up is no failure of the stream") {
        std::thread::sleep(Duration::from_micros(200));
    }
}

pub fn role(role: &str, member: &Member) {
    let queued = match role {
        "Reductions" => Queued::Reductions,
        "Waits" => Queued::Waits,
        "Products" => Queued::Products,
        other => panic!("no such queue: {other}"),
    };
    let communicator = member.join();
    let stream = communicator.stream().expect("a stream");
    let calls_of_queue = Calls::prepare(queued, member, &communicator, &stream).expect("prepared");
    assert!(!has_noted_abort(&communicator, &stream));
    member.ready();
    if member.rank == 0 {
        member.wait_for_go();
        communicator.abort();
    } else {
        for index in 0..calls() {
            calls_of_queue.enqueue(index, &stream).expect("enqueued");
        }
        member.say("queued", "");
        while communicator.check().is_ok() {
            std::thread::sleep(Duration::from_micros(200));
        }
        let start = Instant::now();
        wait_until_idle(&communicator, RawStream(stream.raw()));
        member.say("drained", start.elapsed().as_micros());
        assert!(has_noted_abort(&communicator, &stream));
    }
    drop(calls_of_queue);
    drop(stream);
    if member.argument == "rebuild" {
        let rebuilt = communicator.rebuild().expect("the others live");
        let stream = rebuilt.stream().expect("a stream");
        assert!(!has_noted_abort(&rebuilt, &stream), "it is another word");
        drop(stream);
        rebuilt.finalize().expect("nobody else dies");
    } else {
        drop(communicator);
    }
    member.say("dropped", "");
}

/// Returns the number of ranks; on GPUs, a device for each.
fn ranks(setting: Setting) -> usize {
    match on_gpus(setting) {
        true => number("FAILURES_WORLD").unwrap_or(2),
        false => 3,
    }
}

#[apply(on_each_backend)]
fn a_queue_behind_a_lost_rank_is_over_at_once(
    setting: Setting,
    #[values(Queued::Reductions, Queued::Waits, Queued::Products)] queued: Queued,
    #[values(Loss::Aborts, Loss::IsKilled)] loss: Loss,
) {
    if crate::built::amount::sampled_out(3) {
        return;
    }
    let role = match queued {
        Queued::Reductions => "drain/Reductions",
        Queued::Waits => "drain/Waits",
        Queued::Products => "drain/Products",
    };
    let limit = match on_gpus(setting) {
        true => Duration::from_secs(1),
        false => SLACK,
    };
    let mut world = Plan::new(role, ranks(setting), setting)
        .env("NCCL_NVLS_ENABLE", 0)
        .argument(match loss {
            Loss::IsKilled => "rebuild",
            Loss::Aborts => "",
        })
        .start();
    world.ready().go();
    for rank in &mut world.ranks[1..] {
        rank.expect("queued");
    }
    // The first call of each queue waits by now, or will.
    std::thread::sleep(Duration::from_millis(60));
    let lost = match loss {
        Loss::Aborts => {
            world.ranks[0].go();
            None
        }
        Loss::IsKilled => {
            world.ranks[0].kill();
            Some(world.ranks.remove(0))
        }
    };
    for rank in &mut world.ranks {
        if rank.number > 0 {
            let (_, text) = rank.expect("drained");
            let drained = Duration::from_micros(text.parse().expect("microseconds"));
            println!(
                "{setting:?} {queued:?} {loss:?}: rank {} drained {} calls in {drained:?}",
                rank.number,
                calls()
            );
            assert!(drained < limit, "rank {}: {drained:?}", rank.number);
        }
        rank.expect("dropped");
    }
    world.ends_well();
    drop(lost);
}
