//! Two ranks as two processes: handles and descriptors travel over a Unix socket.

use crate::scenario::row;
use crate::world::{World, close, read, write};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use std::io::{IoSlice, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, IntoRawFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::time::{Duration, Instant};
use symmem_core::backend::abi::*;
use symmem_core::backend::{CallResult, Failure, RemoteAccess, Signals, SymmetricMemory};

const BYTES: u64 = 100_003;
const WORDS: u64 = 1 << 20;

/// Runs one rank: shares memory with the other, puts bytes there, and checks what arrived.
pub fn rank(rank: u32, kind: ShareKindCode, meeting: &str) -> CallResult<()> {
    let mut socket = meet(rank, meeting);
    let mut world = World::open(rank..rank + 1)?;
    let result = exchange(&mut world, rank, kind, &mut socket);
    result.and(world.give_back())
}

fn exchange(
    world: &mut World,
    rank: u32,
    kind: ShareKindCode,
    socket: &mut UnixStream,
) -> CallResult<()> {
    let own = 0;
    let memory = world.allocate(own, kind, 2 << 20)?;
    let (stream, staging, control) = (
        world.stream(own)?,
        world.host(own, 1 << 17)?,
        world.host(own, 4096)?,
    );
    // SAFETY: the allocation is live.
    let mine = unsafe { world.ranks[own].export(memory.handle) }?;
    let sent = send(socket, &mine);
    close(&mine);
    sent?;
    let theirs = receive(socket)?;
    assert_eq!(theirs.kind, kind);
    // SAFETY: the peer exported this handle, and waits for this rank before it frees the memory.
    let mapping = unsafe { world.ranks[own].import(&theirs) };
    close(&theirs);
    let mapping = mapping?;
    let link = Link {
        rank,
        local: memory.address.0,
        remote: mapping.address.0,
        stream,
        staging,
        control,
    };
    let result = talk(world, &link);
    let drained = world.drain(own, stream);
    // Unmap before the peer frees its memory.
    // SAFETY: the stream's work has ended.
    let unmapped = unsafe { world.ranks[own].unmap(mapping.handle) };
    let met = step(socket);
    result.and(drained).and(unmapped).and(met)
}

/// One rank's own memory, its peer's, and its stream and staging.
struct Link {
    rank: u32,
    local: u64,
    remote: u64,
    stream: RawStream,
    staging: HostMemory,
    control: HostMemory,
}

fn talk(world: &World, link: &Link) -> CallResult<()> {
    let own = 0;
    let &Link {
        rank,
        local,
        remote,
        stream,
        staging,
        control,
    } = link;
    write(&staging, |index| index as u8 ^ rank as u8);
    // The own bytes lie behind the words; the peer's arrive at the front.
    let outbox = local + WORDS + 4096;
    world.copy(own, outbox, staging.device.0, BYTES, stream)?;
    let signal = SignalTarget {
        word: DeviceAddress(remote + WORDS),
        epoch: DeviceAddress(local + WORDS + 128),
        arrivals: DeviceAddress(local + WORDS + 256),
        ..SignalTarget::default()
    };
    let transfer = Transfer {
        destination: DeviceAddress(remote + 1),
        source: DeviceAddress(outbox),
        bytes: BYTES,
        signal,
        direction: DirectionCode::PUT,
        row: row(MethodCode::VECTOR),
    };
    let wait = SignalWait {
        word: DeviceAddress(local + WORDS),
        epoch: DeviceAddress(local + WORDS + 384),
        watch: Watch {
            abort: control.device,
            record: DeviceAddress(control.device.0 + 128),
            aborted: DeviceAddress::NULL,
            deadline_ns: 2_000_000_000,
            rank,
            reserved: 0,
        },
        ..SignalWait::default()
    };
    // SAFETY: all memory is live until the stream is drained and the peer has met this rank.
    unsafe {
        world.ranks[own].transfer(&transfer, stream)?;
        world.ranks[own].signal_wait(&wait, SignalPlacementCode::DEVICE, stream)?;
    }
    world.copy(own, staging.device.0, local, BYTES + 2, stream)?;
    world.drain(own, stream)?;
    if read(&control)[128] != 0 {
        return Err(Failure::new(
            Status::CALL_FAILED,
            "peer",
            "its signal never came",
        ));
    }
    let seen = read(&staging);
    assert_eq!((seen[0], seen[BYTES as usize + 1]), (0, 0), "guard bytes");
    for (index, &byte) in seen[1..=BYTES as usize].iter().enumerate() {
        assert_eq!(byte, index as u8 ^ (1 - rank) as u8, "byte {index}");
    }
    Ok(())
}

fn meet(rank: u32, meeting: &str) -> UnixStream {
    let socket = if rank == 0 {
        let listener = UnixListener::bind(meeting).expect("a socket");
        listener.accept().expect("the peer").0
    } else {
        let start = Instant::now();
        loop {
            match UnixStream::connect(meeting) {
                Ok(socket) => break socket,
                Err(error) => assert!(start.elapsed() < Duration::from_secs(20), "{error}"),
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    };
    socket
        .set_read_timeout(Some(Duration::from_secs(30)))
        .expect("a positive time");
    socket
}

fn gone(error: impl std::fmt::Display) -> Failure {
    Failure::new(Status::CALL_FAILED, "peer", error.to_string())
}

/// Notifies the peer and waits for its notification.
fn step(socket: &mut UnixStream) -> CallResult<()> {
    socket.write_all(&[1]).map_err(gone)?;
    socket.read_exact(&mut [0]).map_err(gone)
}

const HANDLE_BYTES: usize = size_of::<ExportedHandle>();

fn send(socket: &UnixStream, handle: &ExportedHandle) -> CallResult<()> {
    // SAFETY: the struct is plain integers without padding.
    let bytes: [u8; HANDLE_BYTES] = unsafe { std::mem::transmute(*handle) };
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    // SAFETY: the descriptor is open until the caller closes it.
    let descriptor =
        (handle.descriptor >= 0).then(|| [unsafe { BorrowedFd::borrow_raw(handle.descriptor) }]);
    if let Some(descriptor) = &descriptor {
        assert!(ancillary.push(SendAncillaryMessage::ScmRights(descriptor)));
    }
    sendmsg(
        socket,
        &[IoSlice::new(&bytes)],
        &mut ancillary,
        SendFlags::NOSIGNAL,
    )
    .map(drop)
    .map_err(gone)
}

fn receive(socket: &UnixStream) -> CallResult<ExportedHandle> {
    let mut bytes = [0_u8; HANDLE_BYTES];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let received = recvmsg(
        socket,
        &mut [IoSliceMut::new(&mut bytes)],
        &mut ancillary,
        RecvFlags::CMSG_CLOEXEC,
    )
    .map_err(gone)?;
    if received.bytes != HANDLE_BYTES {
        return Err(gone("it ended before it had shared its memory"));
    }
    // SAFETY: the struct consists of plain integers, for which all bytes are valid.
    let mut handle: ExportedHandle = unsafe { std::mem::transmute(bytes) };
    handle.descriptor = -1;
    for message in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(descriptors) = message {
            for descriptor in descriptors {
                handle.descriptor = descriptor.into_raw_fd();
            }
        }
    }
    Ok(handle)
}
