//! Short stories that bring their own buffers: all-gather + GEMM, registered memory, memory of one rank, user kernels, work of one
//! communicator that blocks beside drops of another, and host copies by two threads.

use crate::call::Id;
use crate::counts::Counts;
use crate::program::Scene;
use crate::rank::{DEADLINE, Failure, Rank, unexpected};
use half::bf16;
use symmem::backend::{Backend, SymmetricMemory};
use symmem::{
    DeviceAddress, ErrorKind, GemmAlgorithm, GemmOptions, GemmShape, Geometry, Handle, Matrix,
    Operands, Result, Stream, SymmetricBuffer,
};

/// The signal channel on which scenes wait.
pub const CHANNEL: u32 = 5;
/// Elements that a ring kernel moves.
const RING: usize = 64;

type Outcome = std::result::Result<(), Failure>;

/// Plays a scene on a stream. `dropped` is a buffer that is dropped in it, if it drops one.
pub fn play(
    rank: &mut Rank<'_>,
    on: usize,
    scene: Scene,
    stream: Id,
    dropped: Option<Id>,
) -> Outcome {
    let taken = rank.held.streams.remove(&stream);
    let mut taken = taken.expect("a plan's stream");
    let played = match scene {
        Scene::Gemm { m, n, k, algorithm } => gemm(rank, on, &mut taken, (m, n, k), algorithm),
        Scene::Registered { length } => registered(rank, on, &taken, length),
        Scene::Met { length } => met(rank, on, &mut taken, length),
        Scene::Kernel { launches } => kernel(rank, on, &mut taken, launches),
        Scene::Blocked { freed, .. } => blocked(rank, on, &taken, (dropped, freed)),
        Scene::Copies { length, times } => copies(rank, on, &taken, (length, times)),
    };
    rank.held.streams.insert(stream, taken);
    played
}

/// Fails at the first element that is not what the model says.
fn same<T: PartialEq + std::fmt::Debug>(counts: &Counts, seen: &[T], expected: &[T]) -> Outcome {
    counts.checked(size_of_val(expected));
    match seen
        .iter()
        .zip(expected)
        .position(|(seen, expected)| seen != expected)
    {
        None => Ok(()),
        Some(at) => Err(format!(
            "wrong bytes: element {at} is {:?}, not {:?}",
            seen[at], expected[at]
        )),
    }
}

fn gemm(
    rank: &Rank<'_>,
    on: usize,
    stream: &mut Stream,
    (m, n, k): (usize, usize, usize),
    algorithm: usize,
) -> Outcome {
    use GemmAlgorithm as A;
    let communicator = rank.held.communicator(on);
    let (own, world) = (rank.rank, rank.world);
    let shape = GemmShape::new(m, n, k);
    let algorithms = [A::Automatic, A::Baseline, A::Pipeline, A::Pull, A::Push];
    let options = GemmOptions {
        algorithm: algorithms[algorithm % algorithms.len()],
        deadline: Some(DEADLINE),
        ..GemmOptions::default()
    };
    let product = match communicator.all_gather_gemm::<bf16>(&shape, &options) {
        Ok(product) => product,
        Err(error) => {
            // The algorithm may have no kernel for the shape.
            let kinds = [ErrorKind::Unsupported, ErrorKind::InvalidArgument];
            return rank.expect(Err(error), &kinds, "all_gather_gemm");
        }
    };
    // Small integers, whose products are exact.
    let a = |row: usize, column: usize| ((row * 3 + column * 5) % 4) as f32;
    let b = |row: usize, column: usize| ((row + column * 2 + own) % 3) as f32;
    let first = own * m.div_ceil(world);
    let mine = (0..shape.shard_elements(world)).map(|at| (first + at / k, at % k));
    let mine: Vec<bf16> = mine
        .map(|(row, column)| bf16::from_f32(a(row, column)))
        .collect();
    let operand: Vec<bf16> = (0..k * n)
        .map(|at| bf16::from_f32(b(at / n, at % n)))
        .collect();
    let expected = |at: usize| (0..k).map(|i| a(at / n, i) * b(i, at % n)).sum::<f32>();
    let expected: Vec<bf16> = (0..m * n).map(|at| bf16::from_f32(expected(at))).collect();
    let mut seen = vec![bf16::ZERO; m * n];
    let run = || -> Result<()> {
        let shard = communicator.allocate::<bf16>(&[shape.shard_elements(world)])?;
        let b = communicator.allocate::<bf16>(&[k, n])?;
        let c = communicator.allocate::<bf16>(&[m, n])?;
        shard.write(stream, 0, &mine)?;
        b.write(stream, 0, &operand)?;
        let operands = Operands {
            a: shard.all(),
            b: Matrix::of(&b, k, n)?,
            c: Matrix::of(&c, m, n)?,
            bias: None,
            scale: None,
            gathered: None,
        };
        stream.all_gather_gemm(&product, &operands)?;
        if m.is_multiple_of(2) {
            let graph = stream.capture(|queue| queue.all_gather_gemm(&product, &operands))?;
            drop(product);
            stream.launch_graph(&graph)?;
        } else {
            drop(product);
        }
        drop(shard);
        drop(b);
        c.read(stream, 0, &mut seen)
    };
    run().map_err(unexpected("all-gather + GEMM"))?;
    same(rank.counts, &seen, &expected)
}

/// Registers memory of the application's, or stages it where peers cannot map it, and passes it to the next rank.
fn registered(rank: &Rank<'_>, on: usize, stream: &Stream, length: usize) -> Outcome {
    let communicator = rank.held.communicator(on);
    // SAFETY: one block is allocated here, and freed behind a barrier that follows the last use by any rank.
    let backend: &Backend = unsafe { communicator.backend() };
    let bytes = (length * size_of::<u32>()) as u64;
    let memory = backend.allocate(communicator.share_kind().into(), bytes);
    let memory = memory.map_err(|failure| format!("no memory to register: {failure}"))?;
    let mut seen = vec![0; length];
    let element = |rank: usize, at: usize| (rank * 1000 + at) as u32;
    let elements = |rank: usize| {
        (0..length)
            .map(|at| element(rank, at))
            .collect::<Vec<u32>>()
    };
    let (own, world) = (rank.rank, rank.world);
    let mut run = || -> Result<()> {
        // SAFETY: the memory was allocated above, and outlives the buffer.
        let made = unsafe { communicator.register::<u32>(memory.address, &[length]) };
        let buffer = match made {
            Err(error) if error.kind() == ErrorKind::NotShareable => {
                // SAFETY: the memory outlives the copy: the stream is synchronized below.
                unsafe { communicator.stage::<u32>(memory.address, &[length], stream)? }
            }
            made => made?,
        };
        let inbox = communicator.allocate::<u32>(&[length])?;
        buffer.write(stream, 0, &elements(own))?;
        stream.barrier_within(CHANNEL, DEADLINE)?;
        stream.put((own + 1) % world, &inbox, &buffer)?;
        stream.barrier_within(CHANNEL, DEADLINE)?;
        inbox.read(stream, 0, &mut seen)?;
        buffer.free()?;
        communicator.host_barrier()
    };
    let outcome = run().map_err(unexpected("registered memory"));
    if outcome.is_ok() {
        // SAFETY: the buffer is freed at all ranks.
        let freed = unsafe { backend.free(memory.handle) };
        freed.map_err(|failure| format!("free of registered memory: {failure}"))?;
    }
    outcome?;
    same(rank.counts, &seen, &elements((own + world - 1) % world))
}

/// Makes buffers of memory that each rank allocated alone, with sizes and offsets of its own, and passes one to the next
/// rank. The memory's handle, and the buffers but for the last, are dropped under the work on them; a graph holds one.
fn met(rank: &Rank<'_>, on: usize, stream: &mut Stream, length: usize) -> Outcome {
    let communicator = rank.held.communicator(on);
    let (own, world) = (rank.rank, rank.world);
    let element = |rank: usize, at: usize| (rank * 1000 + at) as u32;
    let elements = |rank: usize| -> Vec<u32> { (0..length).map(|at| element(rank, at)).collect() };
    let mut seen = vec![0; length];
    let mut run = || -> Result<()> {
        let bytes = length * size_of::<u32>();
        let (first, second) = (own * 64, (own + 2) * 64 + bytes.next_multiple_of(64));
        let memory = communicator.allocate_local(second + bytes)?;
        let unused = communicator.allocate_local(1 + own)?;
        let outbox = communicator.rendezvous::<u32>(&memory, first, &[length])?;
        let inbox = communicator.rendezvous::<u32>(&memory, second, &[length])?;
        outbox.write(stream, 0, &elements(own))?;
        stream.barrier_within(CHANNEL, DEADLINE)?;
        match length.is_multiple_of(2) {
            true => stream.put((own + 1) % world, &inbox, &outbox)?,
            false => {
                let graph =
                    stream.capture(|queue| queue.put((own + 1) % world, &inbox, &outbox))?;
                stream.launch_graph(&graph)?;
            }
        }
        drop((unused, memory, outbox));
        stream.barrier_within(CHANNEL, DEADLINE)?;
        inbox.read(stream, 0, &mut seen)
    };
    run().map_err(unexpected("memory that each rank allocated alone"))?;
    same(rank.counts, &seen, &elements((own + world - 1) % world))
}

/// The arguments of `symmem_example_ring` in `examples/kernels/ring.cu`.
#[repr(C)]
#[derive(Clone, Copy)]
struct RingArguments {
    inbox: Handle,
    outbox: DeviceAddress,
    result: DeviceAddress,
    count: u64,
}

/// Launches a kernel of a module, which is dropped under its work; the host backend must refuse to load it.
fn kernel(rank: &Rank<'_>, on: usize, stream: &mut Stream, launches: usize) -> Outcome {
    let communicator = rank.held.communicator(on);
    let (own, world) = (rank.rank, rank.world);
    let code: &[u8] = match communicator.device().architecture {
        // The fake runtime's.
        942 => include_bytes!("../../../examples/kernels/ring.gfx942.co"),
        _ => include_bytes!("../../../examples/kernels/ring.ptx"),
    };
    // SAFETY: this is the example's own code.
    let module = match unsafe { communicator.load_module(code) } {
        Ok(module) => module,
        Err(error) => return rank.expect(Err(error), &[ErrorKind::Unsupported], "load_module"),
    };
    let mut seen = vec![0; RING];
    let geometry = Geometry {
        blocks: [2, 1, 1],
        threads: [128, 1, 1],
        shared_memory: 0,
    };
    let run = || -> Result<()> {
        let function = module.function("symmem_example_ring")?;
        let buffers = (0..3).map(|_| communicator.allocate::<u32>(&[RING]));
        let buffers: Vec<SymmetricBuffer<u32>> = buffers.collect::<Result<_>>()?;
        buffers[1].write(stream, 0, &[own as u32 + 10; RING])?;
        communicator.host_barrier()?;
        let arguments = RingArguments {
            inbox: buffers[0].handle_within(CHANNEL, DEADLINE)?,
            outbox: buffers[1].local().address(),
            result: buffers[2].local().address(),
            count: RING as u64,
        };
        let graph = stream.capture(|queue| {
            // SAFETY: the kernel takes these arguments, and the buffers outlive the graph's launches.
            unsafe { queue.launch(&function, &geometry, &arguments) }?;
            queue.barrier_within(CHANNEL, DEADLINE)
        })?;
        // SAFETY: the kernel takes these arguments, and the buffers live until the stream is idle.
        unsafe { stream.launch(&function, &geometry, &arguments) }?;
        stream.barrier_within(CHANNEL, DEADLINE)?;
        drop((module, function));
        for _ in 0..launches {
            stream.launch_graph(&graph)?;
        }
        drop(graph);
        buffers[2].read(stream, 0, &mut seen)?;
        stream.synchronize()
    };
    run().map_err(unexpected("a user's kernel"))?;
    let expected = 2 * ((own + world - 1) % world + 10) as u32;
    same(rank.counts, &seen, &vec![expected; RING])
}

/// Two threads write and read buffers of their own. All copies pass through one piece of pinned memory.
fn copies(rank: &Rank<'_>, on: usize, stream: &Stream, (length, times): (usize, usize)) -> Outcome {
    let (communicator, counts) = (rank.held.communicator(on), rank.counts);
    let made = || -> Result<_> {
        let buffers = [(); 2].map(|()| communicator.allocate::<u32>(&[length]));
        let [first, second] = buffers;
        Ok((communicator.stream()?, first?, second?))
    };
    let (beside, first, second) = made().map_err(unexpected("what copies need"))?;
    let side = |stream: &Stream, buffer: &SymmetricBuffer<u32>, number: u32| -> Outcome {
        // Made beforehand, and compared as a whole, so that the threads do little but copy.
        let elements = [1, 2].map(|time| vec![0x1010_1010 * time + number; length]);
        let mut seen = vec![0; length];
        (0..times).try_for_each(|time| {
            let elements = &elements[time % 2];
            let copied = buffer.write(stream, 0, elements);
            let copied = copied.and_then(|()| buffer.read(stream, 0, &mut seen));
            copied.map_err(unexpected("copies of two threads"))?;
            if seen == *elements {
                counts.checked(size_of_val(&seen[..]));
                return Ok(());
            }
            same(counts, &seen, elements)
        })
    };
    std::thread::scope(|scope| {
        let other = scope.spawn(|| side(&beside, &second, 1));
        let own = side(stream, &first, 2);
        let other = other.join().map_err(|_| "a thread panicked".to_owned())?;
        own.and(other)
    })
}

/// A stream waits for this rank itself, while a buffer of another communicator is freed, or dropped and reclaimed.
fn blocked(
    rank: &mut Rank<'_>,
    on: usize,
    stream: &Stream,
    (dropped, freed): (Option<Id>, bool),
) -> Outcome {
    let buffer = dropped.and_then(|id| rank.held.buffers.remove(&id));
    let (own, communicators) = (rank.rank, rank.held.communicators.len());
    let communicator = rank.held.communicator(on);
    let neighbor = rank.held.communicator((on + 1) % communicators);
    let run = || -> Result<()> {
        let (other, aside) = (communicator.stream()?, neighbor.stream()?);
        let scratch = communicator.allocate::<u32>(&[2])?;
        stream.wait_signal_within(own, CHANNEL, DEADLINE)?;
        match buffer {
            Some(buffer) if freed => buffer.free()?,
            dropped => drop(dropped),
        }
        // Each synchronization reclaims what was dropped.
        if communicators > 1 {
            (0..3).try_for_each(|_| aside.synchronize())?;
        }
        let (one, two) = (scratch.slice(..1)?, scratch.slice(1..)?);
        other.put_signal(own, one, two, CHANNEL)?;
        other.synchronize()?;
        stream.synchronize()
    };
    run().map_err(unexpected("work that blocks beside a drop"))
}
