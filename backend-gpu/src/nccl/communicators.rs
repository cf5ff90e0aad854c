//! Communicators of NCCL: created without waiting, and ended even while other threads are in a call.

use super::calls::Site;
use super::table::{Comm, Config, IN_PROGRESS, SUCCESS, UniqueId, WINDOW_SYMMETRIC};
use super::{GRACE, NcclApi, version_text};
use std::ffi::{c_int, c_void};
use std::ptr::{null_mut, with_exposed_provenance_mut};
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use symmem_core::backend::abi::*;
use symmem_core::backend::{CallResult, Failure};

/// Flag in [`Communicator::uses`]: the communicator has ended.
const ENDED: u32 = 1 << 31;
/// How long `destroy` waits for work and peers before it aborts.
const FAREWELL: Duration = Duration::from_secs(10);
/// Sleep between polls, after the first ones.
pub(super) const NAP: Duration = Duration::from_micros(50);
pub(super) const ASYNC_ERROR: &str = "ncclCommGetAsyncError";

/// A communicator of the library.
///
/// It lives as long as the backend that created it. A late caller can thus see that it has ended, and the
/// library can write `raw` again once it has connected.
pub(super) struct Communicator {
    raw: AtomicPtr<c_void>,
    /// Number of calls in progress, plus [`ENDED`].
    uses: AtomicU32,
    pub(super) rank: u32,
    pub(super) world: u32,
}

impl Communicator {
    /// Forbids further calls and waits at most [`GRACE`] for those in progress. Does not wait longer, because a
    /// call may be stuck behind the work that an abort ends, and the library makes its kernels leave before it
    /// frees anything. `None` if the communicator has ended before.
    fn end(&self) -> Option<Comm> {
        if self.uses.fetch_or(ENDED, Ordering::AcqRel) & ENDED != 0 {
            return None;
        }
        let start = Instant::now();
        while self.uses.load(Ordering::Acquire) != ENDED && start.elapsed() < GRACE {
            std::thread::sleep(NAP);
        }
        Some(self.raw.load(Ordering::Acquire)).filter(|comm| !comm.is_null())
    }
}

/// A call in progress or in an open group; keeps the communicator from being freed.
pub(super) struct Use {
    pub(super) communicator: Arc<Communicator>,
}

impl Use {
    fn begin(communicator: Arc<Communicator>, call: &str) -> CallResult<Self> {
        let before = communicator.uses.fetch_add(1, Ordering::AcqRel);
        let begun = Self { communicator };
        match before & ENDED {
            0 => Ok(begun),
            _ => Err(ended(call)),
        }
    }

    /// Adds a second use, even if the communicator has ended since.
    pub(super) fn again(&self) -> Self {
        self.communicator.uses.fetch_add(1, Ordering::AcqRel);
        Self {
            communicator: self.communicator.clone(),
        }
    }

    pub(super) fn raw(&self) -> Comm {
        self.communicator.raw.load(Ordering::Acquire)
    }

    pub(super) fn has_ended(&self) -> bool {
        self.communicator.uses.load(Ordering::Acquire) & ENDED != 0
    }
}

impl Drop for Use {
    fn drop(&mut self) {
        self.communicator.uses.fetch_sub(1, Ordering::AcqRel);
    }
}

pub(super) fn ended(call: &str) -> Failure {
    Failure::new(
        Status::CALL_FAILED,
        call,
        "another thread aborted or destroyed the communicator; create a new one",
    )
}

/// The communicators of one open device. Dropping it aborts those still live.
pub struct Communicators {
    library: &'static NcclApi,
    all: Mutex<Vec<Arc<Communicator>>>,
}

impl Communicators {
    /// Creates an empty list.
    pub fn new(library: &'static NcclApi) -> Self {
        Self {
            library,
            all: Mutex::default(),
        }
    }

    /// Begins to create a communicator, with the rank's device current. Does not wait for the other ranks;
    /// [`Communicators::ready`] tells when all have joined.
    ///
    /// # Errors
    /// The library's failure.
    pub fn create(&self, identifier: &NcclUniqueId, rank: u32, world: u32) -> CallResult<RawNccl> {
        let communicator = Arc::new(Communicator {
            raw: AtomicPtr::new(null_mut()),
            uses: AtomicU32::new(0),
            rank,
            world,
        });
        let mut config = Config::non_blocking();
        // SAFETY: the library writes the communicator to a place that lives as long as this list, and copies
        // the configuration before it returns.
        let code = unsafe {
            (self.library.table.ncclCommInitRankConfig)(
                communicator.raw.as_ptr(),
                world as c_int,
                UniqueId(identifier.bytes),
                rank as c_int,
                &raw mut config,
            )
        };
        if code != IN_PROGRESS {
            self.library.check("ncclCommInitRankConfig", code)?;
        }
        let raw = RawNccl(Arc::as_ptr(&communicator).expose_provenance() as u64);
        self.registry().push(communicator);
        Ok(raw)
    }

    fn registry(&self) -> std::sync::MutexGuard<'_, Vec<Arc<Communicator>>> {
        // A panic under the lock leaves a valid list of pointers.
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns whether the communicator has finished what it began. Does not block.
    ///
    /// # Errors
    /// A failure that the library reports of this or earlier work.
    ///
    /// # Safety
    /// `nccl` came from [`Communicators::create`] of this object.
    pub unsafe fn ready(&self, nccl: RawNccl) -> CallResult<bool> {
        // SAFETY: the caller passes a handle that this object created, and upholds this function's contract.
        let begun = unsafe { begin(nccl, ASYNC_ERROR) }?;
        Ok(self.library.state(begun.raw())? == SUCCESS)
    }

    /// Makes one call, or adds it to this thread's open group. `nccl` must be ready.
    ///
    /// Blocks until the work is on the stream; the head of the parent module says what that may wait for.
    ///
    /// # Errors
    /// `UNSUPPORTED` for an operation that the library lacks; the library's failure.
    ///
    /// # Safety
    /// As [`Communicators::ready`]; memory and stream are live until the stream has passed this point.
    pub unsafe fn call(&self, nccl: RawNccl, call: &NcclCall, stream: RawStream) -> CallResult<()> {
        let library = self.library;
        // SAFETY: the caller passes a handle that this object created, and upholds this function's contract.
        let begun = unsafe { begin(nccl, "nccl_call") }?;
        let site = Site {
            library,
            comm: begun.raw(),
            rank: begun.communicator.rank,
            world: begun.communicator.world,
            stream: with_exposed_provenance_mut(stream.0 as usize),
        };
        let in_parts = site.is_in_parts(call.operation);
        if in_parts {
            library.group_open()?;
        }
        let grouped = library.join_group(&begun);
        // SAFETY: the caller upholds the contract; a call in parts is within the group opened above.
        let made = unsafe { site.make(call) };
        if in_parts {
            return made.map(drop).and(library.group_close());
        }
        match made? {
            (name, IN_PROGRESS) if !grouped => library.settle(&begun, name),
            _ => Ok(()),
        }
    }

    /// Registers memory as a symmetric window. Collective: all ranks pass the same offset into memory of the
    /// same kind. Blocks until all ranks have.
    ///
    /// # Errors
    /// `UNSUPPORTED` if the library has no windows, or none for this memory and these devices; the library's failure.
    ///
    /// # Safety
    /// As [`Communicators::ready`]; the memory is live until it is deregistered.
    pub unsafe fn register(
        &self,
        nccl: RawNccl,
        address: DeviceAddress,
        bytes: u64,
    ) -> CallResult<u64> {
        const CALL: &str = "ncclCommWindowRegister";
        let Some(register) = self.library.table.ncclCommWindowRegister else {
            return Err(self.no_windows(CALL));
        };
        // SAFETY: the caller passes a handle that this object created, and upholds this function's contract.
        let begun = unsafe { begin(nccl, CALL) }?;
        // The library may write it later from its own thread, so it is on the heap, and is leaked if the call
        // does not finish.
        let place = Box::into_raw(Box::new(null_mut::<c_void>()));
        let pointer = with_exposed_provenance_mut(address.0 as usize);
        // SAFETY: the heap place stays writable as long as the library may write it; the caller keeps the memory live.
        let code = unsafe {
            register(
                begun.raw(),
                pointer,
                bytes as usize,
                place,
                WINDOW_SYMMETRIC,
            )
        };
        self.library.finish(&begun, CALL, code)?;
        // SAFETY: the pointer came from the box above, and `finish` returned, so that the library no longer writes it.
        let window = *unsafe { Box::from_raw(place) };
        if window.is_null() {
            return Err(self.no_windows(CALL));
        }
        Ok(window.expose_provenance() as u64)
    }

    /// Deregisters a window.
    ///
    /// # Errors
    /// The library's failure.
    ///
    /// # Safety
    /// As [`Communicators::ready`]; `window` came from [`Communicators::register`], and no work uses it.
    pub unsafe fn deregister(&self, nccl: RawNccl, window: u64) -> CallResult<()> {
        const CALL: &str = "ncclCommWindowDeregister";
        let Some(deregister) = self.library.table.ncclCommWindowDeregister else {
            return Err(self.no_windows(CALL));
        };
        // SAFETY: the caller passes a handle that this object created, and upholds this function's contract.
        let begun = unsafe { begin(nccl, CALL) }?;
        // SAFETY: the caller passes a handle that this object created, and upholds this function's contract.
        let code = unsafe { deregister(begun.raw(), with_exposed_provenance_mut(window as usize)) };
        self.library.finish(&begun, CALL, code)
    }

    fn no_windows(&self, call: &str) -> Failure {
        Failure::new(
            Status::UNSUPPORTED,
            call,
            format!(
                "{} {} has no symmetric windows, or none for this memory and these devices; {}",
                self.library.name,
                version_text(self.library.version),
                self.library.windows_need
            ),
        )
    }

    /// Aborts a communicator and its work. May be called from any thread. Does nothing if the communicator has ended.
    ///
    /// # Errors
    /// The library's failure.
    ///
    /// # Safety
    /// As [`Communicators::ready`].
    pub unsafe fn abort(&self, nccl: RawNccl) -> CallResult<()> {
        // SAFETY: the caller passes a handle that this object created, and upholds this function's contract.
        match unsafe { communicator(nccl) }.end() {
            Some(comm) => self.library.abort(comm),
            None => Ok(()),
        }
    }

    /// Destroys an idle communicator. Blocks up to 10 seconds for all ranks to do the same, then aborts it.
    /// Does nothing if the communicator has ended.
    ///
    /// # Errors
    /// The library's failure.
    ///
    /// # Safety
    /// As [`Communicators::ready`].
    pub unsafe fn destroy(&self, nccl: RawNccl) -> CallResult<()> {
        let library = self.library;
        // SAFETY: the caller passes a handle that this object created, and upholds this function's contract.
        let Some(comm) = unsafe { communicator(nccl) }.end() else {
            return Ok(());
        };
        // SAFETY: `end` returned this live communicator to this thread alone, and no further call can begin.
        let code = unsafe { (library.table.ncclCommFinalize)(comm) };
        let begun = library.begun("ncclCommFinalize", code, comm);
        let finalized = begun.and_then(|()| library.wait(comm, FAREWELL, || false));
        if !matches!(finalized, Ok(true)) {
            let aborted = library.abort(comm);
            return finalized.and(aborted);
        }
        // SAFETY: as above, and the communicator is finalized.
        let code = unsafe { (library.table.ncclCommDestroy)(comm) };
        library.begun("ncclCommDestroy", code, null_mut())
    }
}

impl Drop for Communicators {
    fn drop(&mut self) {
        let all = std::mem::take(&mut *self.registry());
        for comm in all.iter().filter_map(|communicator| communicator.end()) {
            // Nobody is left to report a failure to.
            let _ = self.library.abort(comm);
        }
    }
}

/// Returns the communicator behind a handle.
///
/// # Safety
/// The handle came from [`Communicators::create`] of an object that is not dropped.
unsafe fn communicator(nccl: RawNccl) -> Arc<Communicator> {
    let pointer: *const Communicator = std::ptr::with_exposed_provenance(nccl.0 as usize);
    // SAFETY: the caller says that the handle came from `create`, so the list still holds the `Arc` of this
    // pointer. The new `Arc` owns the count that is added here.
    unsafe {
        Arc::increment_strong_count(pointer);
        Arc::from_raw(pointer)
    }
}

/// Begins a call.
///
/// # Safety
/// As [`communicator`].
unsafe fn begin(nccl: RawNccl, call: &str) -> CallResult<Use> {
    // SAFETY: the caller passes a handle that this object created, and upholds this function's contract.
    Use::begin(unsafe { communicator(nccl) }, call)
}
