//! Memory shared between processes: the test binary runs itself as the peer.

use std::os::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd};

use symmem_fake_cuda::allocations::*;
use symmem_fake_cuda::contexts::*;
use symmem_fake_cuda::copies::*;
use symmem_fake_cuda::driver::Kind;
use symmem_fake_cuda::ipc::*;
use symmem_fake_cuda::streams::*;
use symmem_fake_cuda::vmm::*;

use crate::support::*;

const MIB2: usize = GRANULARITY as usize;

/// Exports an allocation of device 0 with `text` 16 bytes from its start.
fn export_legacy(text: &[u8]) -> (u64, IpcHandle) {
    let memory = device_memory(4096);
    write(memory + 16, text);
    let mut handle = IpcHandle::default();
    ok(cuIpcGetMemHandle(Some(&mut handle), memory + 16));
    (memory, handle)
}

fn heard_handle(peer: &mut Peer) -> IpcHandle {
    IpcHandle(unhex(&peer.hear()).try_into().expect("64 bytes"))
}

#[test]
fn a_legacy_handle_opens_in_another_process() {
    alone(&[], || {
        if is_peer() {
            context(0);
            let (memory, handle) = export_legacy(b"from the peer");
            say_and_wait(&hex(&handle.0));
            assert_eq!(read(memory + 16, 13), b"from us, too.");
            return ok(cuMemFree_v2(memory));
        }
        let mut peer = Peer::start(&[]);
        context(1);
        let handle = heard_handle(&mut peer);
        let (mut mapped, mut again) = (0, 0);
        assert_eq!(
            cuIpcOpenMemHandle_v2(Some(&mut mapped), handle, 0),
            1,
            "the flag is required"
        );
        ok(cuIpcOpenMemHandle_v2(Some(&mut mapped), handle, 1));
        ok(cuIpcOpenMemHandle(Some(&mut again), handle, 1));
        assert_eq!(mapped, again, "the second open is counted");
        assert_eq!(read(mapped + 16, 13), b"from the peer");
        write(mapped + 16, b"from us, too.");
        peer.release();
        ok(cuIpcCloseMemHandle(mapped));
        assert_eq!(live(Kind::IpcMapping), 1);
        ok(cuIpcCloseMemHandle(mapped));
        assert_eq!(cuIpcCloseMemHandle(mapped), 1);
        violated("is not, or no longer, an opened IPC handle");
        assert_eq!(
            cuIpcOpenMemHandle_v2(Some(&mut mapped), handle, 1),
            1,
            "the exporter is gone"
        );
        clean();
    });
}

#[test]
fn a_legacy_handle_is_for_other_processes_and_cu_mem_alloc() {
    alone(&[], || {
        context(0);
        let (_, mut handle) = export_legacy(b"");
        assert_eq!(cuIpcOpenMemHandle_v2(Some(&mut 0), handle, 1), 201);
        violated("opened in the process that made it");
        assert_eq!(cuIpcGetMemHandle(Some(&mut handle), host_memory(4)), 1);
        violated("is not an allocation");
        let mut out_of_nothing = 0;
        assert_eq!(
            cuIpcOpenMemHandle_v2(Some(&mut out_of_nothing), IpcHandle::default(), 1),
            1
        );
    });
}

/// Maps a handle's memory with access for device `access`.
fn map(handle: u64, access: i32) -> u64 {
    let mut base = 0;
    ok(cuMemAddressReserve(Some(&mut base), MIB2, MIB2, 0, 0));
    ok(cuMemMap(base, MIB2, 0, handle, 0));
    let access = Access {
        location: Location {
            kind: 1,
            id: access,
        },
        flags: 3,
    };
    // SAFETY: the array has one descriptor.
    ok(unsafe { cuMemSetAccess(base, MIB2, &access, 1) });
    base
}

/// Opens the peer's descriptor, as SCM_RIGHTS would pass it.
fn descriptor_of(peer: &Peer, number: i32) -> OwnedFd {
    let path = format!("/proc/{}/fd/{number}", peer.id());
    std::fs::File::options()
        .read(true)
        .write(true)
        .open(path)
        .expect("the peer's descriptor")
        .into()
}

fn import(descriptor: BorrowedFd<'_>) -> u64 {
    use std::os::fd::AsRawFd;
    let mut handle = 0;
    let number = descriptor.as_raw_fd() as usize as *mut std::ffi::c_void;
    // SAFETY: the descriptor is open during the call.
    ok(unsafe { cuMemImportFromShareableHandle(Some(&mut handle), number, 1) });
    handle
}

/// Exports 2 MiB with a text at the start, and prints the descriptor's number; called by the peer.
fn export_descriptor() -> (u64, OwnedFd) {
    context(0);
    let (mut handle, mut descriptor) = (0, -1);
    let location = Location { kind: 1, id: 0 };
    let properties = Properties {
        kind: 1,
        handle_types: 1,
        location,
        ..Default::default()
    };
    ok(cuMemCreate(Some(&mut handle), MIB2, Some(&properties), 0));
    let base = map(handle, 0);
    ok(cuMemRelease(handle));
    write(base, b"from the peer");
    // The released handle can be retained again from an address where its memory is mapped.
    ok(cuMemRetainAllocationHandle(Some(&mut handle), base));
    ok(cuMemExportToShareableHandle(
        Some(&mut descriptor),
        handle,
        1,
        0,
    ));
    ok(cuMemRelease(handle));
    // SAFETY: the driver has just returned this descriptor, which nothing else owns.
    (base, unsafe { OwnedFd::from_raw_fd(descriptor) })
}

#[test]
fn a_descriptor_maps_in_another_process_and_a_wait_sees_the_peers_write() {
    use std::os::fd::AsRawFd;
    alone(&[], || {
        if is_peer() {
            let (base, descriptor) = export_descriptor();
            let waiter = stream();
            ok(cuStreamWaitValue32_v2(waiter, base + 128, 42, 1));
            assert_eq!(cuStreamQuery(waiter), 600);
            say_and_wait(&descriptor.as_raw_fd().to_string());
            ok(cuStreamSynchronize(waiter));
            return clean();
        }
        let mut peer = Peer::start(&[]);
        context(1);
        let number = peer.hear().parse().expect("a number");
        let descriptor = descriptor_of(&peer, number);
        let handle = import(descriptor.as_fd());
        drop(descriptor);
        let base = map(handle, 1);
        ok(cuMemRelease(handle));
        assert_eq!(read(base, 13), b"from the peer");
        ok(cuMemsetD32_v2(base + 128, 42, 1));
        peer.release();
        ok(cuMemUnmap(base, MIB2));
        ok(cuMemAddressFree(base, MIB2));
        clean();
    });
}

#[test]
fn memory_outlives_a_killed_exporter_while_it_is_mapped() {
    use std::os::fd::AsRawFd;
    let ledger = std::env::temp_dir().join(format!("fake-cuda-ledger-{}", std::process::id()));
    let path = ledger.to_string_lossy().into_owned();
    let parent = std::env::var_os(CHILD).is_none();
    let bytes = (3 * MIB2).to_string();
    alone(
        &[
            ("FAKE_DEVICE_LEDGER", &path),
            ("FAKE_DEVICE_MEMORY_BYTES", &bytes),
        ],
        || {
            if is_peer() {
                let (_, descriptor) = export_descriptor();
                return say_and_wait(&descriptor.as_raw_fd().to_string());
            }
            let mut peer = Peer::start(&[]);
            context(0);
            let number = peer.hear().parse().expect("a number");
            let base = map(import(descriptor_of(&peer, number).as_fd()), 0);
            let (mut free, mut total) = (0, 0);
            ok(cuMemGetInfo_v2(Some(&mut free), Some(&mut total)));
            assert_eq!(free, 2 * MIB2, "the peer's allocations count here");
            peer.kill();
            assert_eq!(read(base, 13), b"from the peer");
            ok(cuMemGetInfo_v2(Some(&mut free), Some(&mut total)));
            assert_eq!(free, 3 * MIB2, "a dead process's memory is free again");
            ok(cuCtxSynchronize());
            clean();
        },
    );
    if parent {
        std::fs::remove_file(ledger).expect("the ledger can be removed");
    }
}

#[test]
fn threads_of_one_process_share_by_address() {
    alone(&[], || {
        let contexts = [context(0), context(1)];
        ok(cuCtxSetCurrent(contexts[0]));
        let (flag, memory) = (device_memory(4), device_memory(8));
        std::thread::scope(|scope| {
            scope.spawn(move || {
                ok(cuCtxSetCurrent(contexts[1]));
                ok(cuCtxEnablePeerAccess(contexts[0], 0));
                let stream = stream();
                ok(cuMemsetD32Async(memory, 6, 1, stream));
                ok(cuStreamWriteValue32_v2(stream, flag, 1, 0));
                ok(cuStreamSynchronize(stream));
                ok(cuStreamDestroy_v2(stream));
            });
            let stream = stream();
            ok(cuStreamWaitValue32_v2(stream, flag, 1, 0));
            ok(cuStreamSynchronize(stream));
            ok(cuStreamDestroy_v2(stream));
        });
        assert_eq!(read_word(memory), 6);
        ok(cuMemFree_v2(memory));
        ok(cuMemFree_v2(flag));
        ok(cuDevicePrimaryCtxRelease_v2(0));
        ok(cuDevicePrimaryCtxRelease_v2(1));
        clean();
    });
}
