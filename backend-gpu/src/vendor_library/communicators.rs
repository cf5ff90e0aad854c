//! Communicators: joined without waiting, called, and ended while others may be in a call.

use super::calls::Site;
use super::table::{Comm, Config, IN_PROGRESS, SUCCESS, UniqueId, WINDOW_SYMMETRIC};
use super::{GRACE, VendorLibrary, version_text};
use std::ffi::{c_int, c_void};
use std::ptr::{null_mut, with_exposed_provenance_mut};
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use symmem_core::backend::abi::*;
use symmem_core::backend::{CallResult, Failure};

/// Set in [`Communicator::uses`] once it is given up.
const ENDED: u32 = 1 << 31;
/// How long an orderly end waits for work and peers before it becomes an abort.
const FAREWELL: Duration = Duration::from_secs(10);
/// Sleep between later polls.
pub(super) const NAP: Duration = Duration::from_micros(50);
pub(super) const ASYNC_ERROR: &str = "ncclCommGetAsyncError";

/// A communicator of the library.
///
/// Lives as long as the backend that made it, so that whoever comes late to one that has ended finds
/// it ended, and the library, which writes `raw` again when it has joined, finds its place.
pub(super) struct Communicator {
    raw: AtomicPtr<c_void>,
    /// Calls under way, plus [`ENDED`].
    uses: AtomicU32,
    pub(super) rank: u32,
    pub(super) world: u32,
}

impl Communicator {
    /// Lets no further call begin and waits for those under way, at most [`GRACE`]: a call may be
    /// stuck behind the very work that an abort ends, and the library tells its kernels to leave
    /// before it frees anything. `None` if it was ended before.
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

/// A call under way, or one that waits in an open group: the communicator is not freed meanwhile.
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

    /// A second use beside this one, whether or not the communicator was ended since.
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
        "the communicator was aborted, or given up, by another thread",
    )
}

/// The communicators of one open backend; those still live when it is dropped are aborted.
pub struct Communicators {
    library: &'static VendorLibrary,
    all: Mutex<Vec<Arc<Communicator>>>,
}

impl Communicators {
    /// None yet.
    pub fn new(library: &'static VendorLibrary) -> Self {
        Self {
            library,
            all: Mutex::default(),
        }
    }

    /// Begins to join; the device of the rank is current. Does not wait for the others:
    /// [`Communicators::ready`] says when all are there.
    ///
    /// # Errors
    /// The library's.
    pub fn create(
        &self,
        identifier: &VendorIdentifier,
        rank: u32,
        world: u32,
    ) -> CallResult<RawVendor> {
        let communicator = Arc::new(Communicator {
            raw: AtomicPtr::new(null_mut()),
            uses: AtomicU32::new(0),
            rank,
            world,
        });
        let mut config = Config::non_blocking();
        // SAFETY: the library writes the communicator to a place that lives as long as it, and copies
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
        let raw = RawVendor(Arc::as_ptr(&communicator).expose_provenance() as u64);
        self.registry().push(communicator);
        Ok(raw)
    }

    fn registry(&self) -> std::sync::MutexGuard<'_, Vec<Arc<Communicator>>> {
        // A list of pointers is whole even where somebody panicked.
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// 1 once what was begun is done, 0 while it is not.
    ///
    /// # Errors
    /// What the library reports of this or earlier work.
    ///
    /// # Safety
    /// `vendor` came from [`Communicators::create`] of this very object.
    pub unsafe fn ready(&self, vendor: RawVendor) -> CallResult<bool> {
        // SAFETY: the caller's word.
        let begun = unsafe { begin(vendor, ASYNC_ERROR) }?;
        Ok(self.library.state(begun.raw())? == SUCCESS)
    }

    /// Makes one call, or adds it to the group that this thread has open. `vendor` is ready.
    ///
    /// Comes back when the work is on the stream; see the module on what that may wait for.
    ///
    /// # Errors
    /// `UNSUPPORTED` for what the library does not have; the library's.
    ///
    /// # Safety
    /// As [`Communicators::ready`]; memory and stream are live until the stream has passed this point.
    pub unsafe fn call(
        &self,
        vendor: RawVendor,
        call: &VendorCall,
        stream: RawStream,
    ) -> CallResult<()> {
        let library = self.library;
        // SAFETY: the caller's word.
        let begun = unsafe { begin(vendor, "vendor_call") }?;
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
        // SAFETY: the caller's word; what is made in parts is made in a group.
        let made = unsafe { site.make(call) };
        if in_parts {
            return made.map(drop).and(library.group_close());
        }
        match made? {
            (name, IN_PROGRESS) if !grouped => library.settle(&begun, name),
            _ => Ok(()),
        }
    }

    /// Makes memory a symmetric window: all ranks together, the same offset into memory of the same
    /// kind. Comes back when all have.
    ///
    /// # Errors
    /// `UNSUPPORTED` where the library has no windows, or not here; the library's.
    ///
    /// # Safety
    /// As [`Communicators::ready`]; the memory is live until it is deregistered.
    pub unsafe fn register(
        &self,
        vendor: RawVendor,
        address: DeviceAddress,
        bytes: u64,
    ) -> CallResult<u64> {
        const CALL: &str = "ncclCommWindowRegister";
        let Some(register) = self.library.table.ncclCommWindowRegister else {
            return Err(self.no_windows(CALL));
        };
        // SAFETY: the caller's word.
        let begun = unsafe { begin(vendor, CALL) }?;
        // The library may write it later, from its own thread: so it is not on the stack, and is left
        // alone for good where that does not come to its end.
        let place = Box::into_raw(Box::new(null_mut::<c_void>()));
        let pointer = with_exposed_provenance_mut(address.0 as usize);
        // SAFETY: the place is writable for as long as the library needs; the caller's word.
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
        // SAFETY: from the box above, and written to no more.
        let window = *unsafe { Box::from_raw(place) };
        if window.is_null() {
            return Err(self.no_windows(CALL));
        }
        Ok(window.expose_provenance() as u64)
    }

    /// Ends a window.
    ///
    /// # Errors
    /// The library's.
    ///
    /// # Safety
    /// As [`Communicators::ready`]; `window` came from [`Communicators::register`], no work uses it.
    pub unsafe fn deregister(&self, vendor: RawVendor, window: u64) -> CallResult<()> {
        const CALL: &str = "ncclCommWindowDeregister";
        let Some(deregister) = self.library.table.ncclCommWindowDeregister else {
            return Err(self.no_windows(CALL));
        };
        // SAFETY: the caller's word.
        let begun = unsafe { begin(vendor, CALL) }?;
        // SAFETY: the caller's word.
        let code = unsafe { deregister(begun.raw(), with_exposed_provenance_mut(window as usize)) };
        self.library.finish(&begun, CALL, code)
    }

    fn no_windows(&self, call: &str) -> Failure {
        Failure::new(
            Status::UNSUPPORTED,
            call,
            format!(
                "{} {} has no symmetric windows, or none of this memory between these devices; {}",
                self.library.name,
                version_text(self.library.version),
                self.library.windows_need
            ),
        )
    }

    /// Ends all that the communicator is doing and gives it up. May be called from any thread; once
    /// it was given up, it does nothing.
    ///
    /// # Errors
    /// The library's.
    ///
    /// # Safety
    /// As [`Communicators::ready`].
    pub unsafe fn abort(&self, vendor: RawVendor) -> CallResult<()> {
        // SAFETY: the caller's word.
        match unsafe { communicator(vendor) }.end() {
            Some(comm) => self.library.abort(comm),
            None => Ok(()),
        }
    }

    /// Gives an idle communicator up: in order if all ranks do within 10 seconds, else by an abort.
    /// Once it was given up, does nothing.
    ///
    /// # Errors
    /// The library's.
    ///
    /// # Safety
    /// As [`Communicators::ready`].
    pub unsafe fn destroy(&self, vendor: RawVendor) -> CallResult<()> {
        let library = self.library;
        // SAFETY: the caller's word.
        let Some(comm) = unsafe { communicator(vendor) }.end() else {
            return Ok(());
        };
        // SAFETY: the communicator is live, and nobody else is in a call or will be.
        let code = unsafe { (library.table.ncclCommFinalize)(comm) };
        let begun = library.begun("ncclCommFinalize", code, comm);
        let finalized = begun.and_then(|()| library.wait(comm, FAREWELL, || false));
        if !matches!(finalized, Ok(true)) {
            let aborted = library.abort(comm);
            return finalized.and(aborted);
        }
        // SAFETY: as above; finalized.
        let code = unsafe { (library.table.ncclCommDestroy)(comm) };
        library.begun("ncclCommDestroy", code, null_mut())
    }
}

impl Drop for Communicators {
    fn drop(&mut self) {
        let all = std::mem::take(&mut *self.registry());
        for comm in all.iter().filter_map(|communicator| communicator.end()) {
            // Nobody is left to tell of a failure.
            let _ = self.library.abort(comm);
        }
    }
}

/// The communicator behind a handle.
///
/// # Safety
/// The handle came from [`Communicators::create`] of an object that is not dropped.
unsafe fn communicator(vendor: RawVendor) -> Arc<Communicator> {
    let pointer: *const Communicator = std::ptr::with_exposed_provenance(vendor.0 as usize);
    // SAFETY: by the caller's word the pointer came from an `Arc` that the registry still holds; the
    // count that is taken here is given back by the one made from it.
    unsafe {
        Arc::increment_strong_count(pointer);
        Arc::from_raw(pointer)
    }
}

/// Begins a call.
///
/// # Safety
/// As [`communicator`].
unsafe fn begin(vendor: RawVendor, call: &str) -> CallResult<Use> {
    // SAFETY: the caller's word.
    Use::begin(unsafe { communicator(vendor) }, call)
}
