//! NCCL through the backend's table, between threads of one process, over the fake library.

use crate::support::{tell, tell_result};
use crate::world::{World, drain, read, write};
use std::time::{Duration, Instant};
use symmem_core::backend::abi::*;
use symmem_core::backend::{
    CallResult, Device, Failure, NcclCollectives, PluginBackend, RemoteAccess,
};

/// Elements of one rank's part; odd.
const COUNT: usize = 5001;
/// Offset of the results in each rank's memory.
const RESULT: u64 = 1 << 20;
/// Time after which a child counts as hung.
const LIMIT: Duration = Duration::from_secs(40);

/// One rank, with its communicator, stream and memory.
struct Rank<'a> {
    backend: &'a PluginBackend,
    rank: usize,
    world: usize,
    vendor: RawNccl,
    stream: RawStream,
    memory: u64,
    staging: HostMemory,
}

/// Work of a role at each rank once all have joined.
type Body = fn(&Rank) -> CallResult<()>;

/// Runs a role named `vendor …`.
pub fn role(words: &[&str]) {
    std::thread::spawn(|| {
        std::thread::sleep(LIMIT);
        eprintln!("the role hangs");
        std::process::exit(3);
    });
    match words {
        ["describe"] => tell_result(describe()),
        ["everything", world] => {
            tell_result(ranks(world.parse().expect("a number"), everything));
        }
        ["all-to-all"] => tell_result(ranks(2, |rank| rank.moves(ALL_TO_ALL))),
        ["register"] => tell_result(ranks(2, |rank| rank.window().map(drop))),
        ["never-joined"] => tell_result(never_joined()),
        ["abort-a-call"] => tell_result(ranks(2, abort_a_call)),
        ["abort-a-stream"] => tell_result(ranks(2, abort_a_stream)),
        ["leave-to-close"] => tell_result(leave_to_close()),
        _ => panic!("no such role: {words:?}"),
    }
}

fn describe() -> CallResult<()> {
    let world = World::open(0..1)?;
    let description = world.ranks[0].nccl_description()?;
    tell("version", description.version);
    tell("windows", description.flags & NCCL_WINDOWS != 0);
    tell("all-to-all", description.flags & NCCL_ALL_TO_ALL != 0);
    let identifier = world.ranks[0].nccl_unique_id()?;
    let vendor = world.ranks[0].nccl_create(&identifier, 0, 1)?;
    // SAFETY: the communicator was created just now, and is aborted or destroyed once.
    unsafe {
        ready(&world.ranks[0], vendor)?;
        world.ranks[0].nccl_destroy(vendor)
    }
}

/// Waits until the communicator has finished what it began.
///
/// # Safety
/// `vendor` is live.
unsafe fn ready(backend: &PluginBackend, vendor: RawNccl) -> CallResult<()> {
    let start = Instant::now();
    // SAFETY: the caller passes a live communicator.
    while !unsafe { backend.nccl_ready(vendor) }? {
        if start.elapsed() > Duration::from_secs(10) {
            return Err(Failure::new(Status::CALL_FAILED, "ready", "never ready"));
        }
        std::thread::sleep(Duration::from_micros(100));
    }
    Ok(())
}

/// Runs `count` ranks, each on its thread: they join, do their work, and release everything. Returns the first
/// failure by rank.
fn ranks(count: usize, body: Body) -> CallResult<()> {
    let mut world = World::open(0..count as u32)?;
    let mut kept = Vec::new();
    for rank in 0..count {
        let stream = world.stream(rank)?;
        let memory = world.allocate(rank, ShareKindCode::VMM_FILE_DESCRIPTOR, 2 * RESULT)?;
        let staging = world.host(rank, RESULT)?;
        kept.push((stream, memory.address.0, staging));
    }
    let identifier = world.ranks[0].nccl_unique_id()?;
    let result = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..count)
            .zip(&kept)
            .map(|(rank, &(stream, memory, staging))| {
                let (backend, identifier) = (&world.ranks[rank], &identifier);
                scope.spawn(move || {
                    let vendor = backend.nccl_create(identifier, rank as u32, count as u32)?;
                    let rank = Rank {
                        backend,
                        rank,
                        world: count,
                        vendor,
                        stream,
                        memory,
                        staging,
                    };
                    rank.run(body)
                })
            })
            .collect();
        let results = threads
            .into_iter()
            .map(|thread| thread.join().expect("no panic"));
        results.collect::<Vec<_>>().into_iter().collect()
    });
    let result: CallResult<()> = result;
    result.and(world.give_back())
}

/// An operation that only moves data, and what each rank has afterwards.
#[derive(Clone, Copy)]
struct Moved {
    operation: CollectiveOperationCode,
    /// Parts of a rank's input and output, by world size.
    given: fn(usize) -> usize,
    got: fn(usize) -> usize,
    /// The source rank and its part, for a rank and a place in its output.
    from: fn(usize, usize) -> (usize, usize),
    /// The only rank with an output, if there is just one.
    only: Option<usize>,
}

const ALL_TO_ALL: Moved = Moved {
    operation: CollectiveOperationCode::ALL_TO_ALL,
    given: |world| world,
    got: |world| world,
    from: |rank, place| (place, rank),
    only: None,
};

const MOVED: [Moved; 5] = [
    ALL_TO_ALL,
    Moved {
        operation: CollectiveOperationCode::ALL_GATHER,
        given: |_| 1,
        got: |world| world,
        from: |_, place| (place, 0),
        only: None,
    },
    Moved {
        operation: CollectiveOperationCode::BROADCAST,
        given: |_| 1,
        got: |_| 1,
        from: |_, _| (0, 0),
        only: None,
    },
    Moved {
        operation: CollectiveOperationCode::GATHER,
        given: |_| 1,
        got: |world| world,
        from: |_, place| (place, 0),
        only: Some(0),
    },
    Moved {
        operation: CollectiveOperationCode::SCATTER,
        given: |world| world,
        got: |_| 1,
        from: |rank, _| (0, rank),
        only: None,
    },
];

/// An input value: exact in every type, and different for each rank, part and place.
fn value(rank: usize, part: usize, index: usize) -> f32 {
    ((rank + 1) * (index % 7 + 1) + part) as f32
}

fn everything(rank: &Rank) -> CallResult<()> {
    for (operation, result) in [
        (ReduceOpCode::SUM, 0),
        (ReduceOpCode::AVERAGE, 1),
        (ReduceOpCode::MAXIMUM, 2),
        (ReduceOpCode::MINIMUM, 3),
        (ReduceOpCode::PRODUCT, 4),
    ] {
        rank.reduces(CollectiveOperationCode::ALL_REDUCE, operation, result)?;
    }
    rank.reduces(CollectiveOperationCode::REDUCE, ReduceOpCode::SUM, 0)?;
    rank.reduces(
        CollectiveOperationCode::REDUCE_SCATTER,
        ReduceOpCode::SUM,
        0,
    )?;
    for moved in MOVED {
        rank.moves(moved)?;
    }
    rank.sends_round()?;
    let window = rank.window()?;
    rank.reduces(CollectiveOperationCode::ALL_REDUCE, ReduceOpCode::SUM, 0)?;
    rank.replays()?;
    rank.is_refused()?;
    // SAFETY: the window was registered above, and no work uses it.
    unsafe { rank.backend.nccl_deregister(rank.vendor, window) }
}

impl Rank<'_> {
    fn run(&self, body: Body) -> CallResult<()> {
        // SAFETY: the caller created the communicator, and only this destroys it, once.
        unsafe {
            let done = ready(self.backend, self.vendor).and_then(|()| body(self));
            match done {
                Ok(()) => self.backend.nccl_destroy(self.vendor),
                Err(failure) => {
                    self.backend.nccl_abort(self.vendor)?;
                    Err(failure)
                }
            }
        }
    }

    fn call(&self, operation: CollectiveOperationCode, count: usize) -> NcclCall {
        NcclCall {
            source: DeviceAddress(self.memory),
            destination: DeviceAddress(self.memory + RESULT),
            count: count as u64,
            operation,
            element: ElementTypeCode::F32,
            reduce: ReduceOpCode::SUM,
            peer: 0,
        }
    }

    fn make(&self, call: &NcclCall) -> CallResult<()> {
        // SAFETY: the communicator is live and ready, and the memory is live until the stream is drained.
        unsafe { self.backend.nccl_call(self.vendor, call, self.stream) }
    }

    fn copy(&self, to: u64, from: u64, bytes: usize) -> CallResult<()> {
        let (to, from) = (DeviceAddress(to), DeviceAddress(from));
        let transfer = Transfer::by_engine(to, from, bytes as u64);
        // SAFETY: the memory is live until the stream is drained.
        unsafe { self.backend.transfer(&transfer, self.stream) }
    }

    /// Writes the inputs.
    fn give(&self, numbers: impl Iterator<Item = f32>) -> CallResult<()> {
        let bytes: Vec<u8> = numbers.flat_map(f32::to_ne_bytes).collect();
        write(&self.staging, |index| *bytes.get(index).unwrap_or(&0xee));
        self.copy(self.memory, self.staging.device.0, bytes.len())?;
        drain(self.backend, self.stream)?;
        // Overwrite the outputs, so that a missing result is noticed.
        write(&self.staging, |_| 0xee);
        self.copy(self.memory + RESULT, self.staging.device.0, RESULT as usize)
    }

    /// Returns the outputs once the stream has reached this point.
    fn results(&self, count: usize) -> CallResult<Vec<f32>> {
        self.copy(self.staging.device.0, self.memory + RESULT, 4 * count)?;
        drain(self.backend, self.stream)?;
        let bytes = read(&self.staging);
        let numbers = bytes[..4 * count].chunks_exact(4);
        Ok(numbers
            .map(|four| f32::from_ne_bytes(four.try_into().expect("four")))
            .collect())
    }

    fn expect(&self, what: &str, expected: impl Iterator<Item = f32>) -> CallResult<()> {
        let expected: Vec<f32> = expected.collect();
        let results = self.results(expected.len())?;
        let wrong = results
            .iter()
            .zip(&expected)
            .position(|(got, wanted)| got != wanted);
        match wrong {
            None => Ok(()),
            Some(index) => Err(Failure::new(
                Status::CALL_FAILED,
                what,
                format!(
                    "element {index} at rank {} is {}, not {}",
                    self.rank, results[index], expected[index]
                ),
            )),
        }
    }

    /// Reduces, and checks result `which` of [sum, average, maximum, minimum, product].
    fn reduces(
        &self,
        operation: CollectiveOperationCode,
        reduce: ReduceOpCode,
        which: usize,
    ) -> CallResult<()> {
        let scatters = operation == CollectiveOperationCode::REDUCE_SCATTER;
        let parts = if scatters { self.world } else { 1 };
        let all = (0..parts).flat_map(|part| (0..COUNT).map(move |index| (part, index)));
        self.give(all.map(|(part, index)| value(self.rank, part, index)))?;
        self.make(&NcclCall {
            reduce,
            ..self.call(operation, COUNT)
        })?;
        if operation == CollectiveOperationCode::REDUCE && self.rank != 0 {
            return self.nothing();
        }
        let part = if scatters { self.rank } else { 0 };
        let expected = (0..COUNT).map(|index| {
            let values = (0..self.world).map(|rank| value(rank, part, index));
            let sum: f32 = values.clone().sum();
            match which {
                0 => sum,
                1 => sum / self.world as f32,
                2 => values.fold(f32::MIN, f32::max),
                3 => values.fold(f32::MAX, f32::min),
                _ => values.product(),
            }
        });
        self.expect(operation.name(), expected)
    }

    fn moves(&self, moved: Moved) -> CallResult<()> {
        let parts = (moved.given)(self.world);
        let all = (0..parts).flat_map(|part| (0..COUNT).map(move |index| (part, index)));
        self.give(all.map(|(part, index)| value(self.rank, part, index)))?;
        self.make(&self.call(moved.operation, COUNT))?;
        if moved.only.is_some_and(|only| only != self.rank) {
            return self.nothing();
        }
        let places = (moved.got)(self.world);
        let expected = (0..places).flat_map(|place| {
            let (rank, part) = (moved.from)(self.rank, place);
            (0..COUNT).map(move |index| value(rank, part, index))
        });
        self.expect(moved.operation.name(), expected)
    }

    /// Checks that nothing was written.
    fn nothing(&self) -> CallResult<()> {
        let untouched = f32::from_ne_bytes([0xee; 4]);
        self.expect("nothing", std::iter::repeat_n(untouched, COUNT))
    }

    /// Sends to the right, receives from the left, in one group.
    fn sends_round(&self) -> CallResult<()> {
        let (right, left) = (
            (self.rank + 1) % self.world,
            (self.rank + self.world - 1) % self.world,
        );
        self.give((0..COUNT).map(|index| value(self.rank, 0, index)))?;
        let call = self.call(CollectiveOperationCode::EXCHANGE, COUNT);
        self.backend.nccl_group(true)?;
        let sent = self.make(&NcclCall {
            destination: DeviceAddress::NULL,
            peer: right as u32,
            ..call
        });
        let received = self.make(&NcclCall {
            source: DeviceAddress::NULL,
            peer: left as u32,
            ..call
        });
        let closed = self.backend.nccl_group(false);
        sent.and(received).and(closed)?;
        self.expect("EXCHANGE", (0..COUNT).map(|index| value(left, 0, index)))
    }

    fn window(&self) -> CallResult<u64> {
        // SAFETY: the communicator is live and ready, and the memory outlives it.
        unsafe {
            self.backend
                .nccl_register(self.vendor, DeviceAddress(self.memory), 2 * RESULT)
        }
    }

    /// Captures a call and launches it twice, so that it runs twice.
    fn replays(&self) -> CallResult<()> {
        let backend = self.backend;
        self.give((0..COUNT).map(|index| value(self.rank, 0, index)))?;
        drain(backend, self.stream)?;
        let call = NcclCall {
            destination: DeviceAddress(self.memory),
            ..self.call(CollectiveOperationCode::ALL_REDUCE, COUNT)
        };
        // SAFETY: stream, memory and graph are live until the stream is drained.
        unsafe {
            backend.capture_begin(self.stream)?;
            let made = self.make(&call);
            let graph = backend.capture_end(self.stream)?;
            let graph = backend.graph_instantiate(graph)?;
            let launch = || backend.graph_launch(graph, self.stream);
            let launched = made.and_then(|()| launch()).and_then(|()| launch());
            self.copy(self.memory + RESULT, self.memory, 4 * COUNT)?;
            drain(backend, self.stream)?;
            launched.and(backend.graph_destroy(graph))?;
        }
        let expected = (0..COUNT).map(|index| {
            let once: f32 = (0..self.world).map(|rank| value(rank, 0, index)).sum();
            once * self.world as f32
        });
        self.expect("a replay", expected)
    }

    /// Checks that operations that the library lacks are refused before anything is enqueued.
    fn is_refused(&self) -> CallResult<()> {
        let call = self.call(CollectiveOperationCode::ALL_REDUCE, COUNT);
        for (wrong, status) in [
            (
                NcclCall {
                    element: ElementTypeCode::I16,
                    ..call
                },
                Status::UNSUPPORTED,
            ),
            (
                NcclCall {
                    reduce: ReduceOpCode(99),
                    ..call
                },
                Status::UNSUPPORTED,
            ),
            (
                NcclCall {
                    operation: CollectiveOperationCode::BROADCAST,
                    peer: self.world as u32,
                    ..call
                },
                Status::INVALID_ARGUMENT,
            ),
            (
                NcclCall {
                    operation: CollectiveOperationCode::EXCHANGE,
                    ..call
                },
                Status::INVALID_ARGUMENT,
            ),
            (
                NcclCall {
                    operation: CollectiveOperationCode::BARRIER,
                    ..call
                },
                Status::UNSUPPORTED,
            ),
        ] {
            let refused = self.make(&wrong).expect_err("it is refused");
            assert_eq!(refused.status, status, "{refused}");
        }
        Ok(())
    }
}

/// Only one of two ranks joins.
fn never_joined() -> CallResult<()> {
    let world = World::open(0..1)?;
    let backend = &world.ranks[0];
    let identifier = backend.nccl_unique_id()?;
    let vendor = backend.nccl_create(&identifier, 0, 2)?;
    std::thread::sleep(Duration::from_millis(50));
    // SAFETY: the communicator was created just now; after its end only calls follow that a late thread might make.
    unsafe {
        tell("ready", backend.nccl_ready(vendor)?);
        backend.nccl_abort(vendor)?;
        let late = backend.nccl_ready(vendor).expect_err("it has ended");
        tell("late", late.message);
        backend.nccl_abort(vendor)
    }
}

/// Rank 1 hangs in its first call, for which rank 0 waits; both are aborted from outside.
fn abort_a_call(rank: &Rank) -> CallResult<()> {
    let start = Instant::now();
    let failure = std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(Duration::from_millis(100));
            // SAFETY: the communicator is live, and its abort ends the call in progress.
            unsafe { rank.backend.nccl_abort(rank.vendor) }.expect("an abort");
        });
        let call = rank.call(CollectiveOperationCode::ALL_REDUCE, COUNT);
        rank.make(&call).expect_err("rank 1 hangs")
    });
    assert!(failure.message.contains("aborted"), "{failure}");
    assert_eq!(failure.call, "ncclAllReduce");
    assert!(
        start.elapsed() < Duration::from_secs(1),
        "{:?}",
        start.elapsed()
    );
    Ok(())
}

/// Rank 1 omits the second call, so rank 0's stream waits until it is aborted.
fn abort_a_stream(rank: &Rank) -> CallResult<()> {
    let call = rank.call(CollectiveOperationCode::ALL_REDUCE, COUNT);
    rank.make(&call)?;
    drain(rank.backend, rank.stream)?;
    if rank.rank == 1 {
        std::thread::sleep(Duration::from_millis(100));
        // SAFETY: the communicator is live.
        return unsafe { rank.backend.nccl_abort(rank.vendor) };
    }
    rank.make(&call)?;
    std::thread::sleep(Duration::from_millis(100));
    // SAFETY: the communicator is live.
    unsafe {
        let waits = !rank.backend.stream_idle(rank.stream)?;
        tell("waits", waits);
        rank.backend.nccl_abort(rank.vendor)?;
    }
    drain(rank.backend, rank.stream)
}

/// Leaves a communicator to be aborted when the device is closed.
fn leave_to_close() -> CallResult<()> {
    let world = World::open(0..1)?;
    let identifier = world.ranks[0].nccl_unique_id()?;
    world.ranks[0].nccl_create(&identifier, 0, 1).map(drop)
}
