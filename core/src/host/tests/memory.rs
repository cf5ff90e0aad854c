//! Memory that peers map. Miri has no memfd.

use super::*;
use crate::backend::Failure;
use rstest::rstest;
use rustix::fs::MemfdFlags;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// Does the work of a rendezvous: one side exports, the other imports, and each closes its descriptor.
pub(in super::super) fn hand_over(
    exporter: &HostBackend,
    allocation: RawAllocation,
    importer: &HostBackend,
) -> SharedMapping {
    // SAFETY: the allocation is live, and this function owns the descriptor.
    unsafe {
        let handle = exporter.export(allocation).unwrap();
        let _descriptor = OwnedFd::from_raw_fd(handle.descriptor);
        importer.import(&handle).unwrap()
    }
}

fn backend() -> HostBackend {
    HostBackend::open(&options(1)).unwrap()
}

fn allocate(backend: &HostBackend, bytes: u64) -> SharedAllocation {
    backend.allocate(ShareKindCode::MEMORY_FILE, bytes).unwrap()
}

fn refused<T>(result: Result<T, Failure>) -> Failure {
    result.err().expect("it was not refused")
}

#[rstest]
#[cfg_attr(miri, ignore = "no memfd")]
fn an_allocation_is_whole_pages_of_zeros(#[values(1, 4096, 100_000)] bytes: u64) {
    let backend = backend();
    let allocation = allocate(&backend, bytes);
    let granularity = backend.capabilities().unwrap().share_granularity;
    assert!(allocation.bytes >= bytes && allocation.bytes - bytes < granularity);
    assert!(allocation.address.0.is_multiple_of(granularity));
    for offset in (0..allocation.bytes).step_by(4) {
        assert_eq!(read(DeviceAddress(allocation.address.0 + offset)), 0);
    }
    // SAFETY: nothing uses the allocation.
    unsafe { backend.free(allocation.handle).unwrap() };
}

#[test]
#[cfg_attr(miri, ignore = "no memfd")]
fn a_peer_sees_what_the_owner_stores_and_the_other_way_round() {
    let (owner, peer) = (backend(), backend());
    let allocation = allocate(&owner, 4096);
    let mapping = hand_over(&owner, allocation.handle, &peer);
    assert_ne!(allocation.address, mapping.address);
    write(allocation.address, 7);
    assert_eq!(read(mapping.address), 7);
    write(mapping.address, 8);
    assert_eq!(read(allocation.address), 8);
    // SAFETY: nothing uses the allocation or the mapping after this.
    unsafe {
        owner.free(allocation.handle).unwrap();
        assert_eq!(
            read(mapping.address),
            8,
            "the peer's mapping outlives the owner's"
        );
        peer.unmap(mapping.handle).unwrap();
    }
}

#[test]
#[cfg_attr(miri, ignore = "no memfd")]
fn nobody_can_shrink_what_others_map() {
    let backend = backend();
    let allocation = allocate(&backend, 4096);
    // SAFETY: the allocation is live, and this function owns the descriptor.
    let file =
        unsafe { OwnedFd::from_raw_fd(backend.export(allocation.handle).unwrap().descriptor) };
    assert!(rustix::fs::ftruncate(&file, 0).is_err());
    assert!(rustix::fs::fcntl_add_seals(&file, rustix::fs::SealFlags::WRITE).is_err());
}

#[test]
#[cfg_attr(miri, ignore = "no memfd")]
fn a_range_of_an_allocation_can_be_registered_and_shared_at_its_offset() {
    let (owner, peer) = (backend(), backend());
    let allocation = allocate(&owner, 16 * 1024);
    let middle = DeviceAddress(allocation.address.0 + 5000);
    // SAFETY: the range stays allocated; each handle is given up once.
    unsafe {
        let range = owner
            .register(ShareKindCode::MEMORY_FILE, middle, 100)
            .unwrap();
        let mapping = hand_over(&owner, range.handle, &peer);
        write(middle, 3);
        assert_eq!(read(mapping.address), 3);
        owner.free(range.handle).unwrap();
        assert_eq!(read(middle), 3, "ending a registration frees nothing");
        peer.unmap(mapping.handle).unwrap();
    }
}

#[test]
#[cfg_attr(miri, ignore = "no memfd")]
fn private_memory_cannot_be_registered_and_the_reason_is_given() {
    let backend = backend();
    let allocation = allocate(&backend, 4096);
    let private = backend.host_allocate(4096).unwrap();
    let reaching_over = DeviceAddress(allocation.address.0 + 4000);
    for address in [private.device, reaching_over] {
        // SAFETY: the memory stays allocated.
        let failure =
            refused(unsafe { backend.register(ShareKindCode::MEMORY_FILE, address, 200) });
        assert_eq!(failure.status, Status::UNSUPPORTED);
        assert!(failure.message.contains("private memory"), "{failure}");
    }
}

#[test]
#[cfg_attr(miri, ignore = "no memfd")]
fn what_cannot_be_had_is_refused_with_its_reason() {
    let backend = backend();
    let status = |kind, bytes| refused(backend.allocate(kind, bytes)).status;
    assert_eq!(
        status(ShareKindCode::VMM_FILE_DESCRIPTOR, 1),
        Status::UNSUPPORTED
    );
    assert_eq!(
        status(ShareKindCode::MEMORY_FILE, 0),
        Status::INVALID_ARGUMENT
    );
    assert_eq!(
        status(ShareKindCode::MEMORY_FILE, 1 << 50),
        Status::OUT_OF_MEMORY
    );
    assert_eq!(
        status(ShareKindCode::MEMORY_FILE, u64::MAX),
        Status::OUT_OF_MEMORY
    );
}

#[test]
#[cfg_attr(miri, ignore = "no memfd")]
fn a_handle_that_is_not_a_peers_memory_is_refused() {
    let backend = backend();
    let allocation = allocate(&backend, 4096);
    // SAFETY: the allocation is live, and the test's descriptors stay open during the calls.
    unsafe {
        let good = backend.export(allocation.handle).unwrap();
        let _descriptor = OwnedFd::from_raw_fd(good.descriptor);
        let unsealed = rustix::fs::memfd_create("test", MemfdFlags::CLOEXEC).unwrap();
        rustix::fs::ftruncate(&unsealed, 4096).unwrap();
        let damaged = [
            ExportedHandle {
                descriptor: -1,
                ..good
            },
            ExportedHandle {
                bytes: 8192,
                ..good
            },
            ExportedHandle {
                offset: 4096,
                ..good
            },
            ExportedHandle { bytes: 0, ..good },
            ExportedHandle {
                descriptor: unsealed.as_raw_fd(),
                ..good
            },
        ];
        for handle in damaged {
            assert_eq!(
                refused(backend.import(&handle)).status,
                Status::INVALID_ARGUMENT
            );
        }
        let vendor = ExportedHandle {
            kind: ShareKindCode::LEGACY_IPC,
            ..good
        };
        assert_eq!(refused(backend.import(&vendor)).status, Status::UNSUPPORTED);
    }
}
