//! Multicast objects that processes share.

use std::fs::File;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::time::Duration;

use symmem_fake_cuda::devices::cuInit;
use symmem_fake_cuda::driver::Kind;
use symmem_fake_cuda::multicast::*;
use symmem_fake_cuda::vmm::*;

use crate::multicast_support::{HARDWARE, UNIT, memory, object};
use crate::support::*;

#[track_caller]
pub fn exported(handle: u64) -> OwnedFd {
    let mut descriptor = -1;
    let export = cuMemExportToShareableHandle(Some(&mut descriptor), handle, 1, 0);
    ok(export);
    // SAFETY: the driver has just returned this descriptor, which nothing else owns.
    unsafe { OwnedFd::from_raw_fd(descriptor) }
}

pub fn import(descriptor: &OwnedFd) -> Result<u64, i32> {
    let mut handle = 0;
    let number = descriptor.as_raw_fd() as usize as *mut std::ffi::c_void;
    // SAFETY: the descriptor is open during the call.
    match unsafe { cuMemImportFromShareableHandle(Some(&mut handle), number, 1) } {
        0 => Ok(handle),
        code => Err(code),
    }
}

/// Opens the descriptor that the peer exported, as SCM_RIGHTS would pass it.
pub fn heard_descriptor(peer: &mut Peer) -> OwnedFd {
    let number = peer.hear();
    descriptor_of(&peer.id().to_string(), &number)
}

/// Opens a descriptor of another process in this process.
pub fn descriptor_of(process: &str, number: &str) -> OwnedFd {
    let path = format!("/proc/{process}/fd/{number}");
    let mut options = File::options();
    let file = options.read(true).write(true).open(path);
    file.expect("the peer's descriptor").into()
}

#[test]
fn processes_add_bind_and_unbind_each_its_own() {
    alone(&[HARDWARE], || {
        if is_peer() {
            ok(cuInit(0));
            let (object, part) = (object(2), memory(0, 1));
            ok(cuMulticastAddDevice(object, 0));
            let descriptor = exported(object);
            let binding = std::thread::spawn(move || {
                ok(cuMulticastBindMem(object, 0, part, 0, UNIT, 0));
            });
            std::thread::sleep(Duration::from_millis(50));
            assert!(!binding.is_finished(), "a device has not been added");
            say_and_wait(&descriptor.as_raw_fd().to_string());
            binding.join().expect("the other process added its device");
            ok(cuMulticastUnbind(object, 0, 0, UNIT));
            ok(cuMemRelease(object));
            ok(cuMemRelease(part));
            return clean();
        }
        let mut peer = Peer::start(&[]);
        ok(cuInit(0));
        let descriptor = heard_descriptor(&mut peer);
        let object = import(&descriptor).expect("an object");
        drop(descriptor);
        assert_eq!(live(Kind::MulticastHandle), 1);
        assert_eq!(cuMulticastAddDevice(object, 0), 1);
        violated(&format!(
            "device 0 was added before, by process {}",
            peer.id()
        ));
        ok(cuMulticastAddDevice(object, 1));
        let part = memory(1, 1);
        ok(cuMulticastBindMem(object, 0, part, 0, UNIT, 0));
        assert_eq!(cuMulticastUnbind(object, 0, 0, UNIT), 1);
        violated("are not what this process bound");
        peer.release();
        ok(cuMulticastUnbind(object, 1, 0, UNIT));
        ok(cuMemRelease(object));
        ok(cuMemRelease(part));
        clean();
    });
}

#[test]
fn what_a_killed_process_added_stays_and_nobody_is_locked_out() {
    alone(&[HARDWARE], || {
        if is_peer() {
            ok(cuInit(0));
            let object = object(2);
            ok(cuMulticastAddDevice(object, 0));
            let descriptor = exported(object);
            // The process is killed at any time, also while it has the state locked.
            std::thread::spawn(move || {
                loop {
                    let _ = cuMulticastAddDevice(object, 0);
                }
            });
            return say_and_wait(&descriptor.as_raw_fd().to_string());
        }
        for _ in 0..20 {
            let mut peer = Peer::start(&[]);
            ok(cuInit(0));
            let object = import(&heard_descriptor(&mut peer)).expect("an object");
            let id = peer.id();
            peer.kill();
            assert_eq!(cuMulticastAddDevice(object, 0), 1);
            violated(&format!("device 0 was added before, by process {id}"));
            ok(cuMulticastAddDevice(object, 1));
            let part = memory(1, 1);
            ok(cuMulticastBindMem(object, 0, part, 0, UNIT, 0));
            ok(cuMulticastUnbind(object, 1, 0, UNIT));
            ok(cuMemRelease(object));
            ok(cuMemRelease(part));
        }
        clean();
    });
}

#[test]
fn a_call_that_waits_for_a_dead_process_waits_for_ever() {
    alone(&[HARDWARE], || {
        if is_peer() {
            ok(cuInit(0));
            let object = object(2);
            return say_and_wait(&exported(object).as_raw_fd().to_string());
        }
        let mut peer = Peer::start(&[]);
        ok(cuInit(0));
        let object = import(&heard_descriptor(&mut peer)).expect("an object");
        peer.kill();
        let part = memory(1, 1);
        ok(cuMulticastAddDevice(object, 1));
        let call = std::thread::spawn(move || cuMulticastBindMem(object, 0, part, 0, UNIT, 0));
        std::thread::sleep(Duration::from_millis(200));
        assert!(!call.is_finished());
        // The process can end although a thread still waits, as this test's process does now.
        clean();
    });
}

/// The driver frees an allocation once it is released and all of its shareable handles are closed.
#[test]
fn an_open_descriptor_keeps_an_object_that_all_have_released() {
    alone(&[HARDWARE], || {
        if is_peer() {
            ok(cuInit(0));
            let object = object(2);
            ok(cuMulticastAddDevice(object, 0));
            let descriptor = exported(object);
            ok(cuMemRelease(object));
            return say_and_wait(&descriptor.as_raw_fd().to_string());
        }
        let mut peer = Peer::start(&[]);
        ok(cuInit(0));
        let descriptor = heard_descriptor(&mut peer);
        peer.release();
        let object = import(&descriptor).expect("an object");
        drop(descriptor);
        assert_eq!(cuMulticastAddDevice(object, 0), 1);
        violated("device 0 was added before");
        ok(cuMulticastAddDevice(object, 1));
        ok(cuMemRelease(object));
        assert_eq!(live(Kind::MulticastHandle), 0);
        clean();
    });
}

#[test]
fn a_descriptor_outlives_the_process_that_exported_it() {
    alone(&[HARDWARE], || {
        if is_peer() {
            ok(cuInit(0));
            let object = object(1);
            return say_and_wait(&exported(object).as_raw_fd().to_string());
        }
        let mut peer = Peer::start(&[]);
        ok(cuInit(0));
        let descriptor = heard_descriptor(&mut peer);
        peer.kill();
        let (object, part) = (import(&descriptor).expect("an object"), memory(0, 1));
        ok(cuMulticastAddDevice(object, 0));
        ok(cuMulticastBindMem(object, 0, part, 0, UNIT, 0));
        ok(cuMulticastUnbind(object, 0, 0, UNIT));
        ok(cuMemRelease(object));
        ok(cuMemRelease(part));
        clean();
    });
}

/// Binds and unbinds a device's memory many times.
fn bind_often(object: u64, device: i32) {
    let part = memory(device, 1);
    for _ in 0..3000 {
        ok(cuMulticastBindMem(object, 0, part, 0, UNIT, 0));
        ok(cuMulticastUnbind(object, device, 0, UNIT));
    }
    ok(cuMemRelease(object));
    ok(cuMemRelease(part));
}

#[test]
fn what_processes_do_at_once_is_done_one_after_the_other() {
    alone(&[HARDWARE], || {
        if is_peer() {
            ok(cuInit(0));
            let object = object(2);
            ok(cuMulticastAddDevice(object, 0));
            let descriptor = exported(object);
            say(&descriptor.as_raw_fd().to_string());
            bind_often(object, 0);
            say_and_wait("done");
            return clean();
        }
        let mut peer = Peer::start(&[]);
        ok(cuInit(0));
        let object = import(&heard_descriptor(&mut peer)).expect("an object");
        ok(cuMulticastAddDevice(object, 1));
        bind_often(object, 1);
        assert_eq!(peer.hear(), "done");
        peer.release();
        clean();
    });
}

#[test]
fn slots_are_counted_over_the_processes_of_a_ledger_and_come_back_from_the_dead() {
    let ledger = std::env::temp_dir().join(format!("fake-cuda-slots-{}", std::process::id()));
    let path = ledger.to_string_lossy().into_owned();
    let parent = std::env::var_os(CHILD).is_none();
    let environment = [
        HARDWARE,
        ("FAKE_CUDA_MULTICAST_SLOTS", "1"),
        ("FAKE_DEVICE_LEDGER", &path),
    ];
    alone(&environment, || {
        if is_peer() {
            ok(cuInit(0));
            let (object, part) = (object(1), memory(0, 1));
            ok(cuMulticastAddDevice(object, 0));
            ok(cuMulticastBindMem(object, 0, part, 0, UNIT, 0));
            return say_and_wait(&exported(object).as_raw_fd().to_string());
        }
        let mut peer = Peer::start(&[]);
        ok(cuInit(0));
        let shared = import(&heard_descriptor(&mut peer)).expect("an object");
        let (own, part) = (object(1), memory(0, 1));
        ok(cuMulticastAddDevice(own, 0));
        assert_eq!(cuMulticastBindMem(own, 0, part, 0, UNIT, 0), 2);
        ok(cuMulticastBindMem(shared, UNIT, part, 0, UNIT, 0));
        ok(cuMulticastUnbind(shared, 0, UNIT, UNIT));
        ok(cuMemRelease(shared));
        assert_eq!(
            cuMulticastBindMem(own, 0, part, 0, UNIT, 0),
            2,
            "the peer has the slot"
        );
        peer.kill();
        ok(cuMulticastBindMem(own, 0, part, 0, UNIT, 0));
        clean();
    });
    if parent {
        std::fs::remove_file(ledger).expect("the ledger can be removed");
    }
}
