//! IPC handles: the test binary runs itself as the peer.

use symmem_fake_hip::devices::hipSetDevice;
use symmem_fake_hip::memory::hipFree;
use symmem_fake_hip::sharing::*;

use crate::support::*;

fn export(address: u64) -> IpcHandle {
    let mut handle = IpcHandle::default();
    ok(hipIpcGetMemHandle(Some(&mut handle), address));
    handle
}

#[test]
fn a_handle_opens_at_the_base_of_the_allocation() {
    alone(&[], || {
        if is_peer() {
            let memory = device_memory(4096);
            write(memory, b"base");
            write(memory + 1024, b"part");
            say_and_wait(&hex(&export(memory + 1024).0));
            return ok(hipFree(memory));
        }
        let mut peer = Peer::start(&[]);
        ok(hipSetDevice(1));
        let handle = IpcHandle(unhex(&peer.hear()).try_into().expect("64 bytes"));
        let mut mapped = 0;
        for flags in [0, 2, 3] {
            assert_eq!(hipIpcOpenMemHandle(Some(&mut mapped), handle, flags), 1);
        }
        ok(hipIpcOpenMemHandle(Some(&mut mapped), handle, 1));
        assert_eq!(read(mapped, 4), b"base", "whichever part was exported");
        assert_eq!(read(mapped + 1024, 4), b"part");
        ok(hipIpcCloseMemHandle(mapped));
        peer.release();
        clean();
    });
}

#[test]
fn a_handle_is_for_other_processes() {
    alone(&[], || {
        let handle = export(device_memory(64));
        assert_eq!(hipIpcOpenMemHandle(Some(&mut 0), handle, 1), 201);
        violated("opened in the process that made it");
    });
}

#[test]
fn memory_stays_uncached_in_another_process() {
    alone(&[], || {
        if is_peer() {
            let memory = uncached_memory(64);
            return say_and_wait(&hex(&export(memory).0));
        }
        let mut peer = Peer::start(&[]);
        let handle = IpcHandle(unhex(&peer.hear()).try_into().expect("64 bytes"));
        let mut mapped = 0;
        ok(hipIpcOpenMemHandle(Some(&mut mapped), handle, 1));
        let waiter = stream();
        ok(symmem_fake_hip::streams::hipStreamWaitValue32(
            waiter,
            mapped,
            0,
            0,
            u32::MAX,
        ));
        ok(symmem_fake_hip::streams::hipStreamSynchronize(waiter));
        clean();
        ok(hipIpcCloseMemHandle(mapped));
        peer.release();
    });
}
