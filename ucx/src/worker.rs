//! A UCP worker: progress, waiting, messages and connections.

use crate::atomics::Atomics;
use crate::context::{Context, ContextShared};
use crate::endpoint::Endpoint;
use crate::envelope::{self, Kind};
use crate::environment;
use crate::failure::{Failure, Result, check};
use crate::messages::{FIRST_FREE, Handler, PUT, Slot, storing};
use crate::table::{self, Handle, WorkerAttributes, WorkerParameters};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::Errno;
use std::ffi::c_int;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::ptr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// A UCP worker. Everything that UCX does for it happens inside of calls, mostly in [`Worker::progress`].
///
/// A lock around all calls of a context makes them safe on any thread; a thread that polls lets others in between.
/// Endpoints and keys keep the worker open.
pub struct Worker(Arc<WorkerShared>);

pub(crate) struct WorkerShared {
    pub context: Arc<ContextShared>,
    pub handle: Handle,
    /// Operations that are not complete.
    pub in_flight: Arc<AtomicUsize>,
    /// Behind an address that UCX has.
    pub atomics: Arc<Atomics>,
    /// Largest header of a message, in bytes.
    pub max_header: usize,
    address: Vec<u8>,
    /// UCX's file descriptor, which the worker closes.
    events: c_int,
    wake: Arc<OwnedFd>,
    /// All that were ever set, by UCX's identifier, the newest last: UCX has their addresses.
    handlers: Arc<Mutex<Handlers>>,
}

type Handlers = Vec<(u32, Arc<Slot>)>;

// SAFETY: the handle is only passed to UCX under the context's lock, and handlers run under it.
unsafe impl Send for WorkerShared {}
// SAFETY: as above.
unsafe impl Sync for WorkerShared {}

impl Worker {
    /// Opens a worker.
    ///
    /// # Errors
    /// UCX's, and the operating system's if no event descriptor can be made.
    pub fn new(context: &Context) -> Result<Self> {
        let shared = &context.0;
        let table = shared.table();
        let _held = shared.take();
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(|error| Failure::refused("eventfd", error.to_string()))?;
        let parameters = WorkerParameters {
            field_mask: 1 | 1 << 5,
            thread_mode: table::SERIALIZED,
            cpu_mask: [0; 16],
            events: 0,
            user_data: ptr::null_mut(),
            event_fd: -1,
            flags: table::IGNORE_REQUEST_LEAK,
            name: ptr::null(),
            am_alignment: 0,
            client_id: 0,
        };
        let mut handle = ptr::null_mut();
        // UCX reads the options of transports now.
        let status = environment::with_options(|| {
            // SAFETY: the context is open, and the parameters have the layout of 1.13.
            unsafe {
                (table.ucp_worker_create)(shared.handle, &raw const parameters, &raw mut handle)
            }
        });
        check(table, "ucp_worker_create", status)?;
        let in_flight = Arc::default();
        // From here on, dropping it closes the worker.
        let mut worker = WorkerShared {
            context: shared.clone(),
            handle,
            atomics: Arc::new(Atomics::new(shared, &in_flight)),
            in_flight,
            max_header: 0,
            address: Vec::new(),
            events: -1,
            wake: Arc::new(wake),
            handlers: Arc::default(),
        };
        // SAFETY: the worker is open, and the result is writable.
        let status = unsafe { (table.ucp_worker_get_efd)(handle, &raw mut worker.events) };
        check(table, "ucp_worker_get_efd", status)?;
        let status = worker.atomics.set(handle);
        check(table, "ucp_worker_set_am_recv_handler", status)?;
        let handlers = Arc::downgrade(&worker.handlers);
        let find = move |identifier: u16| {
            let identifier = FIRST_FREE + u32::from(identifier);
            let handlers = handlers.upgrade()?;
            let handlers = locked(&handlers);
            let mut newest = handlers.iter().rev();
            newest
                .find(|one| one.0 == identifier)
                .map(|one| one.1.clone())
        };
        worker.set_handler(PUT, storing(shared, find))?;
        worker.max_header = worker.query_max_header()?;
        worker.address = worker.query_address()?;
        Ok(Self(Arc::new(worker)))
    }

    /// Returns the address for [`Worker::connect`] of peers. It contains the host's network addresses.
    pub fn address(&self) -> &[u8] {
        &self.0.address
    }

    /// Returns the transports and devices that UCX found, such as `self/memory tcp/eth0`.
    pub fn transports(&self) -> String {
        Context(self.0.context.clone()).transports()
    }

    /// Returns the largest header of a message, in bytes.
    pub fn max_header(&self) -> usize {
        self.0.max_header
    }

    /// Lets UCX send, receive and complete operations, once around. Returns whether anything happened. Message handlers
    /// run inside. Inside of a handler it does nothing.
    pub fn progress(&self) -> bool {
        let held = self.0.context.take();
        if held.is_nested() {
            return false;
        }
        // SAFETY: the worker is open, and this call is not inside of another one.
        let count = unsafe { (self.0.context.table().ucp_worker_progress)(self.0.handle) };
        drop(held);
        self.0.context.lock.give_way();
        count != 0
    }

    /// Waits until there is something for [`Worker::progress`] to do, a [`Waker`] was used, or the time is over. May
    /// return early. Other threads may call the worker meanwhile. Waits less than a millisecond too long.
    ///
    /// # Errors
    /// UCX's or `poll`'s.
    pub fn wait(&self, at_most: Duration) -> Result<()> {
        let shared = &self.0;
        let table = shared.context.table();
        {
            let _held = shared.context.take();
            // SAFETY: the worker is open and has the feature `WAKEUP`.
            match unsafe { (table.ucp_worker_arm)(shared.handle) } {
                table::BUSY => return Ok(()),
                status => check(table, "ucp_worker_arm", status)?,
            }
        }
        // SAFETY: the descriptor belongs to the worker, which `self` keeps open.
        let events = unsafe { BorrowedFd::borrow_raw(shared.events) };
        let mut descriptors = [
            PollFd::from_borrowed_fd(events, PollFlags::IN),
            PollFd::new(&*shared.wake, PollFlags::IN),
        ];
        let time = Timespec {
            tv_sec: at_most.as_secs().min(1 << 30) as i64,
            tv_nsec: at_most.subsec_nanos().into(),
        };
        match poll(&mut descriptors, Some(&time)) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(Failure::refused("poll", error.to_string())),
        }
        if descriptors[1].revents().contains(PollFlags::IN) {
            // Nothing to read: another thread that waits was faster.
            let _ = rustix::io::read(&*shared.wake, &mut [0_u8; 8]);
        }
        Ok(())
    }

    /// Returns what ends a [`Worker::wait`] of another thread.
    pub fn waker(&self) -> Waker {
        Waker(self.0.wake.clone())
    }

    /// Connects to a peer's worker by its [`Worker::address`]. The connection is made in the background; its failure
    /// ends the endpoint's operations. `peer` is the number that errors name.
    ///
    /// # Errors
    /// The address is not one, or no transport reaches it.
    pub fn connect(&self, peer: u32, address: &[u8]) -> Result<Endpoint> {
        const CALL: &str = "ucp_ep_create";
        let address = envelope::open(Kind::Address, address).ok_or_else(|| {
            Failure::refused(CALL, "not a whole `Worker::address`").with_peer(peer)
        })?;
        Endpoint::connect(&self.0, peer, address)
    }

    /// Sets the handler of messages with this identifier, in place of an earlier one. It runs inside of
    /// [`Worker::progress`] with a message's header and data, and may call endpoints of this worker. A handler that
    /// panics ends the process. Messages without a handler are dropped.
    ///
    /// # Errors
    /// UCX's, if memory runs out.
    pub fn on_message(&self, identifier: u16, handler: Handler) -> Result<()> {
        self.0
            .set_handler(FIRST_FREE + u32::from(identifier), handler)
    }

    /// Returns how many operations are not complete, dropped ones included.
    pub fn in_flight(&self) -> usize {
        self.0.in_flight.load(Ordering::Relaxed)
    }
}

impl WorkerShared {
    fn set_handler(&self, identifier: u32, handler: Handler) -> Result<()> {
        let _held = self.context.take();
        let library = self.context.library.clone();
        let slot = Arc::new(Slot::new(library, self.handle, handler));
        let status = slot.set(identifier);
        check(
            self.context.table(),
            "ucp_worker_set_am_recv_handler",
            status,
        )?;
        locked(&self.handlers).push((identifier, slot));
        Ok(())
    }

    fn query_max_header(&self) -> Result<usize> {
        let mut attributes = WorkerAttributes {
            field_mask: 1 << 3,
            thread_mode: 0,
            address_flags: 0,
            address: ptr::null_mut(),
            address_length: 0,
            max_am_header: 0,
            name: [0; 32],
            max_debug_string: 0,
        };
        let table = self.context.table();
        // SAFETY: the worker is open, and UCX writes only the field of the mask.
        let status = unsafe { (table.ucp_worker_query)(self.handle, &raw mut attributes) };
        check(table, "ucp_worker_query", status)?;
        Ok(attributes.max_am_header)
    }

    fn query_address(&self) -> Result<Vec<u8>> {
        let (mut address, mut bytes) = (ptr::null_mut(), 0);
        let table = self.context.table();
        // SAFETY: the worker is open; both results are writable.
        let status = unsafe {
            (table.ucp_worker_get_address)(self.handle, &raw mut address, &raw mut bytes)
        };
        check(table, "ucp_worker_get_address", status)?;
        // SAFETY: UCX returned this many bytes.
        let content = unsafe { std::slice::from_raw_parts(address.cast::<u8>(), bytes) };
        let sealed = envelope::seal(Kind::Address, content);
        // SAFETY: UCX returned this buffer, and its bytes were copied.
        unsafe { (table.ucp_worker_release_address)(self.handle, address) };
        Ok(sealed)
    }
}

impl Drop for WorkerShared {
    fn drop(&mut self) {
        /// For endpoints that were closed with force: they need some turns of progress, and no peer.
        const AT_MOST: Duration = Duration::from_millis(200);
        let held = self.context.take();
        let table = self.context.table();
        self.atomics.awaited.fail(None, table::CANCELED);
        let start = Instant::now();
        while !held.is_nested()
            && self.in_flight.load(Ordering::Relaxed) != 0
            && start.elapsed() < AT_MOST
        {
            // SAFETY: the worker is open, and this call is not inside of another one.
            unsafe { (table.ucp_worker_progress)(self.handle) };
        }
        // SAFETY: endpoints and keys hold this structure, so there are none left. The handlers live until it is dropped.
        unsafe { (table.ucp_worker_destroy)(self.handle) }
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Ends a [`Worker::wait`], now or the next one.
#[derive(Clone)]
pub struct Waker(Arc<OwnedFd>);

impl Waker {
    /// Ends the wait. Never blocks.
    pub fn wake(&self) {
        // It fails if the counter is full: then the wait ends anyway.
        let _ = rustix::io::write(&*self.0, &1_u64.to_ne_bytes());
    }
}
