//! Everything the backend does, once, between two ranks of one process.

use crate::world::{World, read, write};
use symmem_core::backend::abi::*;
use symmem_core::backend::{
    CallResult, CollectiveKernels, Device, Failure, RemoteAccess, Signals, argument_bytes,
};

const DATA_BYTES: u64 = 10_000;
/// Offset of the signal words in each rank's allocation; data comes before.
const SIGNALS: u64 = 1 << 20;
/// Offset of the slots, behind the words; the fake checks all of them.
const SLOTS: u64 = SIGNALS + 65536;
const DEADLINE_NS: u64 = 500_000_000;

/// A kernel of the program, which the fake knows.
const FILL: &str = "\
.version 8.0
.target sm_80
.address_size 64
.visible .entry symmem_test_fill(
    .param .u64 symmem_test_fill_param_0,
    .param .u64 symmem_test_fill_param_1,
    .param .u32 symmem_test_fill_param_2
)
{
    ret;
}
";

/// One rank: its own memory, its peer's, and its streams and words.
struct Side {
    rank: usize,
    own: u64,
    peer: u64,
    stream: RawStream,
    staging: HostMemory,
    watch: Watch,
}

impl Side {
    fn peer_rank(&self) -> usize {
        1 - self.rank
    }

    /// Returns the signal to the peer, counted on the device.
    fn signal(&self) -> SignalTarget {
        SignalTarget {
            word: DeviceAddress(self.peer + SIGNALS),
            epoch: DeviceAddress(self.own + SIGNALS + 128),
            arrivals: DeviceAddress(self.own + SIGNALS + 256),
            ..SignalTarget::default()
        }
    }

    /// Returns the wait for the peer's signal, counted on the device.
    fn wait(&self) -> SignalWait {
        SignalWait {
            word: DeviceAddress(self.own + SIGNALS),
            epoch: DeviceAddress(self.own + SIGNALS + 384),
            watch: self.watch,
            peer: self.peer_rank() as u32,
            ..SignalWait::default()
        }
    }

    fn barrier(&self) -> Barrier {
        let mut peers = [DeviceAddress::NULL; MAX_RANKS];
        let words = SIGNALS + 4096;
        peers[self.peer_rank()] =
            DeviceAddress(self.peer + words + self.rank as u64 * SIGNAL_STRIDE);
        Barrier {
            watch: self.watch,
            epoch: DeviceAddress(self.own + SIGNALS + 512),
            own: DeviceAddress(self.own + words),
            peers,
            world: 2,
            slot: 0,
        }
    }
}

pub fn row(method: MethodCode) -> TransferRow {
    let (blocks, threads, stages, stage_bytes) = match method {
        MethodCode::BULK => (1, 128, 4, 4096),
        MethodCode::UNROLLED => (1, 128, 0, 0),
        MethodCode::VECTOR => (4, 128, 0, 0),
        _ => (0, 0, 0, 0),
    };
    TransferRow {
        bytes: u64::MAX,
        method,
        blocks,
        threads,
        stages,
        stage_bytes,
        reserved: 0,
    }
}

/// Runs everything with memory shared by `kind`. Calls `closing` once everything but the open devices is released.
pub fn everything(kind: ShareKindCode, closing: impl FnOnce()) -> CallResult<()> {
    let mut world = World::open(0..2)?;
    let result = parts(&mut world, kind);
    let result = result.and(world.give_back());
    closing();
    drop(world);
    result
}

fn parts(world: &mut World, kind: ShareKindCode) -> CallResult<()> {
    let sides = connect(world, kind)?;
    for method in [
        MethodCode::VECTOR,
        MethodCode::UNROLLED,
        MethodCode::BULK,
        MethodCode::COPY_ENGINE,
    ] {
        for direction in [DirectionCode::PUT, DirectionCode::GET] {
            moves_bytes(world, &sides, method, direction)?;
        }
    }
    signals_counted_by_the_host(world, &sides)?;
    barrier_twice(world, &sides)?;
    collective_of_nothing(world, &sides)?;
    replays_a_graph(world, &sides)?;
    launches_a_kernel(world, &sides[0])?;
    measures_time(world, &sides[1])?;
    registers(world, kind)
}

fn connect(world: &mut World, kind: ShareKindCode) -> CallResult<[Side; 2]> {
    let mut allocations = Vec::new();
    for rank in 0..2 {
        let information = world.ranks[rank].memory_information()?;
        assert!(information.free <= information.total);
        allocations.push(world.allocate(rank, kind, SLOTS + SLOT_BLOCKS as u64 * SLOT_BYTES)?);
    }
    let mut side = |rank: usize| {
        let peer = 1 - rank;
        let mapping = world.map(peer, allocations[peer].handle, rank)?;
        let stream = world.stream(rank)?;
        let staging = world.host(rank, 64 << 10)?;
        assert!(read(&staging).iter().all(|&byte| byte == 0));
        let control = world.host(rank, 4096)?;
        Ok::<_, Failure>(Side {
            rank,
            own: allocations[rank].address.0,
            peer: mapping.address.0,
            stream,
            staging,
            watch: Watch {
                abort: control.device,
                record: DeviceAddress(control.device.0 + 128),
                aborted: DeviceAddress::NULL,
                deadline_ns: DEADLINE_NS,
                rank: rank as u32,
                reserved: 0,
            },
        })
    };
    Ok([side(0)?, side(1)?])
}

/// Checks that new shared memory reads as zero, and that rank 0's bytes reach rank 1 without changing bytes
/// beside them.
fn moves_bytes(
    world: &World,
    sides: &[Side; 2],
    method: MethodCode,
    direction: DirectionCode,
) -> CallResult<()> {
    let [from, to] = sides;
    let pattern = |index: usize| (index as u32).wrapping_mul(2_654_435_761) as u8 ^ method.0 as u8;
    let guard = 64;
    write(&from.staging, pattern);
    world.copy(0, from.own, from.staging.device.0, DATA_BYTES, from.stream)?;
    // Rank 1's data lies behind a guard of 64 bytes, which keeps its alignment for bulk copies.
    // SAFETY: the memory is live until the streams are drained.
    unsafe {
        let inbox = DeviceAddress(to.own);
        world.ranks[1].memory_set(inbox, 0xee, DATA_BYTES + 2 * guard, to.stream)
    }?;
    world.drain(0, from.stream)?;
    world.drain(1, to.stream)?;

    let by_put = direction == DirectionCode::PUT;
    let (rank, stream) = if by_put {
        (0, from.stream)
    } else {
        (1, to.stream)
    };
    let transfer = Transfer {
        destination: DeviceAddress(guard + if by_put { from.peer } else { to.own }),
        source: DeviceAddress(if by_put { from.own } else { to.peer }),
        bytes: DATA_BYTES,
        signal: if by_put {
            from.signal()
        } else {
            SignalTarget::default()
        },
        direction,
        row: row(method),
    };
    // SAFETY: all memory is live until the streams are drained.
    unsafe {
        world.ranks[rank].transfer(&transfer, stream)?;
        if by_put {
            world.ranks[1].signal_wait(&to.wait(), SignalPlacementCode::DEVICE, to.stream)?;
        }
    }
    let seen = DATA_BYTES + 2 * guard;
    world.copy(1, to.staging.device.0, to.own, seen, to.stream)?;
    world.drain(0, from.stream)?;
    world.drain(1, to.stream)?;
    for (index, &byte) in read(&to.staging)[..seen as usize].iter().enumerate() {
        let data = index.checked_sub(guard as usize);
        let data = data.filter(|&index| index < DATA_BYTES as usize);
        let expected = data.map_or(0xee, pattern);
        assert_eq!(
            byte,
            expected,
            "byte {index} of {} {direction:?}",
            method.name()
        );
    }
    Ok(())
}

/// Signals whose values the host counts: written by the stream, awaited by a kernel and by the stream.
fn signals_counted_by_the_host(world: &mut World, sides: &[Side; 2]) -> CallResult<()> {
    let [from, to] = sides;
    let offset = SIGNALS + 640;
    let target = SignalTarget {
        word: DeviceAddress(from.peer + offset),
        value: 7,
        ..SignalTarget::default()
    };
    let wait = SignalWait {
        word: DeviceAddress(to.own + offset),
        epoch: DeviceAddress::NULL,
        value: 7,
        ..to.wait()
    };
    let transfer = Transfer {
        destination: DeviceAddress(from.peer),
        source: DeviceAddress(from.own),
        bytes: 16,
        signal: target,
        direction: DirectionCode::PUT,
        row: row(MethodCode::COPY_ENGINE),
    };
    // Host memory registered at both ranks: memory that the program mapped itself, as between processes.
    let page = Box::leak(Box::new(Page([0; 4096])));
    let shared = world.host_register(0, std::ptr::from_mut(page) as u64, 4096)?;
    let host_target = SignalTarget {
        word: shared.device,
        value: 3,
        ..SignalTarget::default()
    };
    let host_wait = SignalWait {
        word: shared.device,
        epoch: DeviceAddress::NULL,
        value: 3,
        ..to.wait()
    };
    // SAFETY: all memory is live until the streams are drained. Each signal is raised before it is awaited, so
    // that a failure leaves no stream waiting.
    unsafe {
        world.ranks[0].transfer(&transfer, from.stream)?;
        world.ranks[0].signal_give(&from.signal(), SignalPlacementCode::DEVICE, from.stream)?;
        world.ranks[0].signal_give(&host_target, SignalPlacementCode::HOST, from.stream)?;
        world.ranks[1].signal_wait(&wait, SignalPlacementCode::DEVICE, to.stream)?;
        world.ranks[1].signal_wait(&to.wait(), SignalPlacementCode::DEVICE, to.stream)?;
        world.ranks[1].signal_wait(&host_wait, SignalPlacementCode::HOST, to.stream)?;
    }
    world.drain(0, from.stream)?;
    world.drain(1, to.stream)
}

#[repr(align(4096))]
struct Page(#[expect(dead_code, reason = "touched through the device only")] [u8; 4096]);

fn barrier_twice(world: &World, sides: &[Side; 2]) -> CallResult<()> {
    for _ in 0..2 {
        for side in sides {
            // SAFETY: all memory is live until the streams are drained.
            unsafe { world.ranks[side.rank].barrier(&side.barrier(), side.stream) }?;
        }
    }
    world.drain(0, sides[0].stream)?;
    world.drain(1, sides[1].stream)
}

/// A collective's two barriers without bytes between them, so that its launch can fail, too.
fn collective_of_nothing(world: &World, sides: &[Side; 2]) -> CallResult<()> {
    for side in sides {
        let mut group = CollectiveGroup {
            watch: side.watch,
            slots: [DeviceAddress::NULL; MAX_RANKS],
            packet_bytes: 0,
            dependents: DependentsCode::ANSWERED,
            rank: side.rank as u32,
            world: 2,
            slot: 0,
            operation: CollectiveOperationCode::BARRIER,
            members: [0; MAX_RANKS],
        };
        group.slots[side.rank] = DeviceAddress(side.own + SLOTS);
        group.slots[side.peer_rank()] = DeviceAddress(side.peer + SLOTS);
        group.members[1] = 1;
        let arguments = MoveArguments {
            group,
            destinations: [DeviceAddress::NULL; MAX_RANKS],
            sources: [DeviceAddress::NULL; MAX_RANKS],
            bytes: [0; MAX_RANKS],
            copies: 0,
            concurrent: 1,
        };
        let geometry = Geometry {
            blocks: [1; 3],
            threads: [128, 1, 1],
            shared_memory: 0,
        };
        // SAFETY: all memory is live until the streams are drained.
        unsafe { world.ranks[side.rank].collective_move(&arguments, &geometry, side.stream) }?;
    }
    world.drain(0, sides[0].stream)?;
    world.drain(1, sides[1].stream)
}

/// A captured put whose signal is counted on the device, replayed.
fn replays_a_graph(world: &mut World, sides: &[Side; 2]) -> CallResult<()> {
    let [from, to] = sides;
    let rank = from.rank;
    let capturing = |world: &World| unsafe {
        // SAFETY: the stream is live.
        world.ranks[rank].stream_capturing(from.stream)
    };
    let transfer = Transfer {
        destination: DeviceAddress(from.peer),
        source: DeviceAddress(from.own),
        bytes: 4096,
        signal: from.signal(),
        direction: DirectionCode::PUT,
        row: row(MethodCode::COPY_ENGINE),
    };
    assert!(!capturing(world)?);
    // SAFETY: the stream and the memory are live until the streams are drained.
    let captured = unsafe {
        world.ranks[rank].capture_begin(from.stream)?;
        let recorded = world.ranks[rank]
            .transfer(&transfer, from.stream)
            .and_then(|()| capturing(world))
            .map(|capturing| assert!(capturing));
        // A capture must be ended even if its work failed.
        let ended = world.ranks[rank].capture_end(from.stream);
        (recorded, ended)
    };
    let graph = captured.1.or_else(|failure| {
        // SAFETY: as above. Otherwise the stream would stay in capture and could not be drained.
        unsafe { world.ranks[rank].capture_end(from.stream) }
            .and_then(|graph| world.graph(rank, graph))?;
        Err(failure)
    });
    let executable = match graph {
        Ok(graph) => world.graph(rank, graph)?,
        Err(failure) => return Err(captured.0.err().unwrap_or(failure)),
    };
    captured.0?;
    for _ in 0..2 {
        // SAFETY: graph, streams and memory are live until the streams are drained.
        unsafe {
            world.ranks[rank].graph_launch(executable, from.stream)?;
            world.ranks[to.rank].signal_wait(&to.wait(), SignalPlacementCode::DEVICE, to.stream)?;
        }
    }
    world.drain(0, from.stream)?;
    world.drain(1, to.stream)
}

/// Launches a kernel with padding behind its arguments, which the driver refuses.
pub fn padded_launch() -> CallResult<()> {
    let mut world = World::open(0..1)?;
    let (module, stream) = (world.module(0, FILL.as_bytes())?, world.stream(0)?);
    let geometry = Geometry {
        blocks: [1; 3],
        threads: [32, 1, 1],
        shared_memory: 0,
    };
    let backend = &world.ranks[0];
    // SAFETY: module and stream are live, and the kernel does not run.
    let launched = unsafe {
        let function = backend.module_function(module, "symmem_test_fill")?;
        backend.launch(function, &geometry, argument_bytes(&[0_u64; 3]), stream)
    };
    world.give_back()?;
    launched
}

fn launches_a_kernel(world: &mut World, side: &Side) -> CallResult<()> {
    let module = world.module(side.rank, FILL.as_bytes())?;
    let backend = &world.ranks[side.rank];
    let name = "symmem_test_fill";
    let mut arguments = [0_u8; 20];
    arguments[..8].copy_from_slice(&side.own.to_le_bytes());
    arguments[8..16].copy_from_slice(&256_u64.to_le_bytes());
    arguments[16..].copy_from_slice(&0xfeed_f00d_u32.to_le_bytes());
    let geometry = Geometry {
        blocks: [1; 3],
        threads: [32, 1, 1],
        shared_memory: 64 << 10,
    };
    // SAFETY: the module is live, the arguments match the kernel, and the memory is live until the stream is drained.
    unsafe {
        let function = backend.module_function(module, name)?;
        assert_eq!(backend.function_parameter_bytes(function)?, Some(20));
        backend.launch(function, &geometry, argument_bytes(&arguments), side.stream)?;
    }
    backend.builtin_function("symmem_latency_packet")?;
    world.copy(
        side.rank,
        side.staging.device.0,
        side.own,
        1024,
        side.stream,
    )?;
    world.drain(side.rank, side.stream)?;
    let bytes = read(&side.staging);
    let mut words = bytes[..1024].chunks_exact(4);
    assert!(words.all(|word| word == 0xfeed_f00d_u32.to_le_bytes()));
    Ok(())
}

fn measures_time(world: &mut World, side: &Side) -> CallResult<()> {
    let (start, end) = (world.event(side.rank)?, world.event(side.rank)?);
    let other = world.stream(side.rank)?;
    let backend = &world.ranks[side.rank];
    // SAFETY: events, streams and memory are live until the streams are drained.
    unsafe {
        backend.event_record(start, side.stream)?;
        backend.memory_set(DeviceAddress(side.own), 0, 4096, side.stream)?;
        backend.event_record(end, side.stream)?;
        backend.stream_wait_event(other, end)?;
    }
    world.drain(side.rank, other)?;
    // SAFETY: both events are recorded, and have been reached, since `other` waited for the second.
    unsafe {
        assert!(backend.event_done(end)?);
        assert!(backend.event_elapsed(start, end)? < 10_000_000_000);
    }
    Ok(())
}

/// Registers memory of the caller: here, memory that another rank of the process allocated, from its middle on.
fn registers(world: &mut World, kind: ShareKindCode) -> CallResult<()> {
    let whole = world.allocate(0, kind, 4 << 20)?;
    let part = world.register(0, kind, whole.address.0 + 4096, 1 << 20)?;
    let mapping = world.map(0, part.handle, 1)?;
    let (probe, stream) = (world.host(1, 4096)?, world.stream(1)?);
    let (seen, owner) = (world.host(0, 4096)?, world.stream(0)?);
    write(&probe, |index| index as u8);
    world.copy(1, mapping.address.0, probe.device.0, 64, stream)?;
    world.drain(1, stream)?;
    world.copy(0, seen.device.0, part.address.0, 64, owner)?;
    world.drain(0, owner)?;
    assert_eq!(read(&seen)[..64], read(&probe)[..64]);
    Ok(())
}
