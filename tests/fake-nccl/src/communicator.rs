//! Communicators, all non-blocking: calls continue on a thread, and the communicator's state reports progress.

use crate::mesh::{MOST, Mesh};
use crate::{Code, Result, driver, inject, put};
use std::collections::BTreeMap;
use std::ffi::{c_int, c_void};
use std::ptr::without_provenance_mut;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Once, OnceLock, PoisonError};
use std::time::{Duration, Instant};

/// The start of `ncclConfig_t`.
#[repr(C)]
pub struct Config {
    size: usize,
    magic: u32,
    version: u32,
    blocking: c_int,
}

/// Refuses what NCCL would, and blocking communicators, because symmem could not abort them.
///
/// # Safety
/// `config` is null or has the size that it names.
pub unsafe fn check_config(config: *const Config) -> Result {
    // SAFETY: the caller promises null or a readable configuration.
    let Some(config) = (unsafe { config.as_ref() }) else {
        driver::violation("a communicator without configuration is blocking");
        return Err(Code::INVALID_ARGUMENT);
    };
    if config.size < size_of::<Config>() || config.magic != 0xcafe_beef {
        driver::violation("the configuration was not initialized");
        return Err(Code::INVALID_ARGUMENT);
    }
    if config.version < 21_400 || config.blocking != 0 {
        driver::violation("the communicator is blocking");
        return Err(Code::INVALID_USAGE);
    }
    Ok(())
}

pub struct Communicator {
    pub rank: usize,
    pub world: usize,
    context: u64,
    mesh: OnceLock<Mesh>,
    state: AtomicI32,
    /// Outlives the communicator, for work that was enqueued before.
    pub aborted: Arc<AtomicBool>,
    /// Streams that run its work just now.
    pub running: AtomicU32,
    /// Threads that work beside the caller just now.
    working: AtomicU32,
    windows: Mutex<BTreeMap<u64, u64>>,
}

type Registry = BTreeMap<usize, Arc<Communicator>>;
static LIVE: Mutex<Registry> = Mutex::new(BTreeMap::new());
/// Handles and windows are numbers that are not addresses.
static NEXT: AtomicU64 = AtomicU64::new(0x4e43_0000);

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn fresh() -> u64 {
    NEXT.fetch_add(16, Ordering::Relaxed)
}

/// Returns the communicator of a handle.
pub fn find(comm: *mut c_void) -> Result<Arc<Communicator>> {
    lock(&LIVE).get(&comm.addr()).cloned().ok_or_else(|| {
        driver::violation("a communicator is used that was destroyed or never created");
        Code::INVALID_ARGUMENT
    })
}

/// # Safety
/// `place` is writable for as long as the communicator lives.
pub unsafe fn create(
    place: *mut *mut c_void,
    world: c_int,
    identifier: &[u8; 128],
    rank: c_int,
) -> Result {
    let (Ok(rank), Ok(world)) = (usize::try_from(rank), usize::try_from(world)) else {
        return Err(Code::INVALID_ARGUMENT);
    };
    if rank >= world || world > MOST {
        return Err(Code::INVALID_ARGUMENT);
    }
    report_at_exit();
    let communicator = Arc::new(Communicator {
        rank,
        world,
        context: driver::current_context()?,
        mesh: OnceLock::new(),
        state: AtomicI32::new(0),
        aborted: Arc::default(),
        running: AtomicU32::new(0),
        working: AtomicU32::new(0),
        windows: Mutex::default(),
    });
    let handle = fresh() as usize;
    put(place, without_provenance_mut(handle))?;
    lock(&LIVE).insert(handle, communicator.clone());
    let (place, identifier) = (place.expose_provenance(), *identifier);
    communicator.begin("ncclCommInitRankConfig", move |own| {
        let mesh = own
            .mesh
            .get_or_init_with(|| Mesh::open(&identifier, own.rank, own.world))?;
        own.wait_until(|| mesh.all_have_joined())?;
        mesh.forget_file();
        // NCCL also writes the handle again when the ranks have joined.
        let place: *mut *mut c_void = std::ptr::with_exposed_provenance_mut(place);
        // SAFETY: the caller keeps `place` writable for as long as the communicator lives.
        unsafe { place.write(without_provenance_mut(handle)) };
        Ok(())
    })
}

trait GetOrTry<T> {
    fn get_or_init_with(&self, make: impl FnOnce() -> Result<T>) -> Result<&T>;
}

impl<T> GetOrTry<T> for OnceLock<T> {
    fn get_or_init_with(&self, make: impl FnOnce() -> Result<T>) -> Result<&T> {
        let made = make()?;
        Ok(self.get_or_init(|| made))
    }
}

impl Communicator {
    /// Returns the `ncclResult_t` of the last call.
    pub fn state(&self) -> c_int {
        self.state.load(Ordering::Acquire)
    }

    /// Returns the memory that all ranks share.
    pub fn mesh(&self) -> Result<&Mesh> {
        self.mesh.get().ok_or(Code::INVALID_USAGE)
    }

    pub fn is_aborted(&self) -> bool {
        self.aborted.load(Ordering::Acquire)
    }

    /// Refuses a call while another is in progress, or after one has failed.
    pub fn check_idle(&self, symbol: &str) -> Result {
        match self.state() {
            0 => Ok(()),
            7 => {
                driver::violation(&format!(
                    "{symbol} is called while the last call is in progress"
                ));
                Err(Code::INVALID_USAGE)
            }
            code => Err(Code(code)),
        }
    }

    /// Runs `work` on a thread. Always returns [`Code::IN_PROGRESS`] if the communicator is idle.
    pub fn begin(
        self: &Arc<Self>,
        symbol: &'static str,
        work: impl FnOnce(&Self) -> Result + Send + 'static,
    ) -> Result {
        self.check_idle(symbol)?;
        self.state.store(Code::IN_PROGRESS.0, Ordering::Release);
        self.working.fetch_add(1, Ordering::AcqRel);
        let own = self.clone();
        std::thread::spawn(move || {
            let run = || {
                if inject::hangs(symbol, own.rank) {
                    own.wait_until(|| false)?;
                }
                driver::set_context(own.context)?;
                work(&own)?;
                inject::fails_later(symbol, own.rank).map_or(Ok(()), Err)
            };
            let code = run().err().map_or(0, |code: Code| code.0);
            own.state.store(code, Ordering::Release);
            own.working.fetch_sub(1, Ordering::AcqRel);
        });
        Err(Code::IN_PROGRESS)
    }

    /// Waits until `done`; fails if the communicator is aborted.
    pub fn wait_until(&self, done: impl Fn() -> bool) -> Result {
        while !done() {
            if self.is_aborted() {
                return Err(Code::INTERNAL_ERROR);
            }
            std::thread::sleep(Duration::from_micros(100));
        }
        Ok(())
    }

    /// Returns which of `peers` (a bit for each rank) this rank has not begun to connect to.
    pub fn unconnected(&self, peers: u64) -> Result<u64> {
        Ok(self.mesh()?.unconnected(peers))
    }

    /// Connects to `peers`; waits until they connect to this rank.
    pub fn connect(&self, peers: u64) -> Result {
        let mesh = self.mesh()?;
        mesh.connect(peers);
        self.wait_until(|| mesh.are_connected(peers))
    }

    /// Waits until all ranks have made as many calls of this function as this one.
    pub fn meet(&self) -> Result {
        let mesh = self.mesh()?;
        let meeting = mesh.come();
        self.wait_until(|| mesh.all_have_come(meeting))
    }
}

pub fn finalize(comm: *mut c_void) -> Result {
    find(comm)?.begin("ncclCommFinalize", |own| {
        own.wait_until(|| own.running.load(Ordering::Acquire) == 0)?;
        own.meet()
    })
}

pub fn destroy(comm: *mut c_void) -> Result {
    let communicator = find(comm)?;
    communicator.check_idle("ncclCommDestroy")?;
    if !lock(&communicator.windows).is_empty() {
        driver::violation("a communicator is destroyed with windows");
    }
    lock(&LIVE).remove(&comm.addr());
    Ok(())
}

pub fn abort(comm: *mut c_void) -> Result {
    let communicator = find(comm)?;
    communicator.aborted.store(true, Ordering::Release);
    if let Some(mesh) = communicator.mesh.get() {
        mesh.forget_file();
    }
    // NCCL also waits until its kernels and threads have finished.
    let start = Instant::now();
    let busy = [&communicator.running, &communicator.working];
    while busy.iter().any(|count| count.load(Ordering::Acquire) != 0) {
        if start.elapsed() > Duration::from_secs(5) {
            driver::violation("work does not end after an abort");
            break;
        }
        std::thread::sleep(Duration::from_micros(100));
    }
    lock(&LIVE).remove(&comm.addr());
    Ok(())
}

pub fn register(
    comm: *mut c_void,
    address: u64,
    bytes: usize,
    window: *mut *mut c_void,
    flags: c_int,
) -> Result {
    let communicator = find(comm)?;
    if window.is_null() || bytes == 0 || flags != 1 || !address.is_multiple_of(4096) {
        driver::violation(
            "a window needs an output, a size, the symmetric flag and 4096-byte alignment",
        );
        return Err(Code::INVALID_ARGUMENT);
    }
    let place = window.expose_provenance();
    communicator.begin("ncclCommWindowRegister", move |own| {
        own.meet()?;
        let number = match driver::is_virtual_memory(address)? {
            true => fresh(),
            // NCCL from 2.29 on returns no window and no error.
            false => 0,
        };
        if number != 0 {
            lock(&own.windows).insert(number, address);
        }
        let place: *mut *mut c_void = std::ptr::with_exposed_provenance_mut(place);
        // SAFETY: the caller keeps `place` writable until the call is done.
        unsafe { place.write(without_provenance_mut(number as usize)) };
        Ok(())
    })
}

pub fn deregister(comm: *mut c_void, window: *mut c_void) -> Result {
    let communicator = find(comm)?;
    communicator.check_idle("ncclCommWindowDeregister")?;
    match lock(&communicator.windows).remove(&(window.addr() as u64)) {
        Some(_) => Ok(()),
        None => {
            driver::violation("a window is deregistered that is not registered");
            Err(Code::INVALID_ARGUMENT)
        }
    }
}

/// Reports communicators that were never destroyed when the process exits.
fn report_at_exit() {
    static ONCE: Once = Once::new();
    unsafe extern "C" {
        fn atexit(callback: extern "C" fn()) -> c_int;
    }
    extern "C" fn report() {
        let live = lock(&LIVE).len();
        if live > 0 {
            driver::violation(&format!("{live} communicators were never destroyed"));
        }
    }
    // Exit handlers run in reverse order, and the driver registered its report before this.
    ONCE.call_once(|| {
        // SAFETY: a plain function of the type that atexit takes, in a library that stays loaded.
        let _ = unsafe { atexit(report) };
    });
}
