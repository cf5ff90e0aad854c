//! The streams that may use memory of a rank, and those of the other communicators of this process.
//!
//! Some frees wait for all work on the device, whoever enqueued it: `cudaFree`, `hipFree`, and closing an IPC handle. If
//! another communicator's stream waits for a peer then, the thread that frees waits too, and it may be the very thread
//! that the peer waits for. So such memory is released only while no communicator of this process has work on the
//! device. Work that begins right after the check is waited for all the same.

use crate::backend::abi::{DeviceDescription, RawEvent, RawStream};
use crate::base::lock::lock;
use std::sync::{
    Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard, Weak,
};
use symmem_core::tickets::Tickets;

/// A stream that may use memory of this rank.
#[derive(Clone, Copy)]
pub struct KnownStream {
    /// The backend's handle.
    pub raw: RawStream,
    /// Made by the library, which destroys it; else the caller's.
    pub owned: bool,
    /// The event of a side stream, destroyed with it.
    pub event: Option<RawEvent>,
    /// The period in which it last had a collective; 0 for never. See [`crate::rank::sequence::Admission`].
    pub admitted: u32,
}

/// The streams of one rank.
pub struct Streams {
    /// Calls that are enqueueing.
    pub tickets: Tickets,
    /// The device that frees wait for; `None` on the host, where no free waits.
    device: Option<[u8; 16]>,
    known: Mutex<Vec<KnownStream>>,
    /// Held exclusively while a capture begins, and shared by calls that would invalidate a capture.
    captures: RwLock<()>,
}

/// The streams of all communicators of this process.
static PROCESS: Mutex<Vec<Weak<Streams>>> = Mutex::new(Vec::new());

impl Streams {
    /// Makes an empty list of a rank's streams on a device, and lists it for the process.
    pub fn new(device: &DeviceDescription) -> Arc<Self> {
        // Only the host has no architecture.
        let on_gpu = device.architecture != 0;
        let streams = Arc::new(Self {
            tickets: Tickets::default(),
            device: on_gpu.then_some(device.uuid),
            known: Mutex::default(),
            captures: RwLock::default(),
        });
        let mut process = lock(&PROCESS);
        process.retain(|other| other.strong_count() > 0);
        process.push(Arc::downgrade(&streams));
        streams
    }

    /// Returns the locked list of streams: they stay live while it is locked.
    pub fn known(&self) -> MutexGuard<'_, Vec<KnownStream>> {
        lock(&self.known)
    }

    /// Keeps this communicator from beginning captures while the guard lives. A thread holds one guard at a time, and
    /// only for a call that does not wait.
    pub fn hold_captures(&self) -> RwLockReadGuard<'_, ()> {
        // The lock guards no data that a panic could leave half changed.
        self.captures.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for the guards of [`Streams::hold_captures`], and keeps others waiting while a capture begins.
    pub fn begin_capture(&self) -> RwLockWriteGuard<'_, ()> {
        self.captures
            .write()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Admits a stream to collectives in `period`, if `allowed` of the number of admitted streams, with this one,
    /// returns true.
    ///
    /// # Errors
    /// That number, if it is not allowed.
    pub fn admit(
        &self,
        raw: RawStream,
        period: u32,
        allowed: impl FnOnce(usize) -> bool,
    ) -> Result<(), usize> {
        let mut known = self.known();
        // A stream may be registered more than once, and its entries may be removed one by one.
        let admitted = known.iter().filter(|one| one.admitted == period);
        let mut admitted: Vec<u64> = admitted.map(|one| one.raw.0).chain([raw.0]).collect();
        admitted.sort_unstable();
        admitted.dedup();
        if !allowed(admitted.len()) {
            return Err(admitted.len());
        }
        for one in known.iter_mut().filter(|one| one.raw == raw) {
            one.admitted = period;
        }
        Ok(())
    }

    /// Returns the streams of the process's other communicators on the same device; none on the host backend.
    pub fn neighbors(self: &Arc<Self>) -> Vec<Arc<Self>> {
        if self.device.is_none() {
            return Vec::new();
        }
        let process = lock(&PROCESS);
        let others = process.iter().filter_map(Weak::upgrade);
        others
            .filter(|other| other.device == self.device && !Arc::ptr_eq(other, self))
            .collect()
    }
}
