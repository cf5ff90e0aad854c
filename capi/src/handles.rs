//! Handles: numbers in the form of pointers, and the objects that they stand for.
//!
//! A handle is never read as an address. Each is used once, so what was destroyed cannot be taken for what came after it,
//! and calls from several threads keep an object alive while they use it.

use crate::status::{Failure, invalid};
use std::collections::BTreeMap;
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, Weak};
use symmem::{AllGatherGemm, Communicator, Slice, Stream, SymmetricBuffer};

/// A rank's communicator.
pub struct symmem_communicator {
    _opaque: (),
}

/// A symmetric buffer: the same number of bytes at every rank.
pub struct symmem_buffer {
    _opaque: (),
}

/// An all-gather + GEMM of one shape.
pub struct symmem_gemm {
    _opaque: (),
}

/// A stream: work that runs in order.
pub struct symmem_stream {
    _opaque: (),
}

static COMMUNICATORS: Table<Rank> = Table::new("symmem_communicator");
static BUFFERS: Table<Buffer> = Table::new("symmem_buffer");
static GEMMS: Table<Gemm> = Table::new("symmem_gemm");
static STREAMS: Table<OnStream> = Table::new("symmem_stream");
/// The next handle of any kind.
static NEXT: AtomicUsize = AtomicUsize::new(1);

/// The objects of one kind.
struct Table<T> {
    kind: &'static str,
    objects: RwLock<BTreeMap<usize, Arc<T>>>,
}

impl<T> Table<T> {
    const fn new(kind: &'static str) -> Self {
        Self {
            kind,
            objects: RwLock::new(BTreeMap::new()),
        }
    }

    fn add(&self, object: T) -> usize {
        let handle = NEXT.fetch_add(1, Ordering::Relaxed);
        let mut objects = self.objects.write().unwrap_or_else(PoisonError::into_inner);
        objects.insert(handle, Arc::new(object));
        handle
    }

    fn find(&self, handle: usize) -> Result<Arc<T>, Failure> {
        let objects = self.objects.read().unwrap_or_else(PoisonError::into_inner);
        objects
            .get(&handle)
            .cloned()
            .ok_or_else(|| self.unknown(handle))
    }

    fn unknown(&self, handle: usize) -> Failure {
        match handle {
            0 => invalid(format!("the {} is null", self.kind)),
            _ => invalid(format!(
                "there is no {} {handle:#x}, or no longer",
                self.kind
            )),
        }
    }

    /// Returns the first object for which `is` holds.
    fn first(&self, is: impl Fn(&T) -> bool) -> Option<Arc<T>> {
        let objects = self.objects.read().unwrap_or_else(PoisonError::into_inner);
        objects.values().find(|object| is(object)).cloned()
    }

    /// Takes an object that no other call uses.
    fn take(&self, handle: usize) -> Result<T, Failure> {
        let mut objects = self.objects.write().unwrap_or_else(PoisonError::into_inner);
        let object = objects
            .remove(&handle)
            .ok_or_else(|| self.unknown(handle))?;
        Arc::try_unwrap(object).map_err(|object| {
            objects.insert(handle, object);
            invalid(format!("another thread is in a call on the {}", self.kind))
        })
    }
}

/// A communicator.
pub struct Rank {
    pub communicator: Communicator,
}

/// Returns a communicator that has the device with this number open and has not failed, of a GPU if there is one.
pub fn rank_on(device: u32) -> Option<Arc<Rank>> {
    let is_there = |rank: &Rank| {
        rank.communicator.device().ordinal == device && rank.communicator.check().is_ok()
    };
    // Only the host has no architecture.
    let on_gpu = |rank: &Rank| rank.communicator.device().architecture != 0;
    let found = COMMUNICATORS.first(|rank| is_there(rank) && on_gpu(rank));
    found.or_else(|| COMMUNICATORS.first(is_there))
}

/// A buffer.
pub struct Buffer {
    pub bytes: SymmetricBuffer<u8>,
}

impl Buffer {
    /// Returns `bytes` bytes from byte `offset` on.
    ///
    /// # Errors
    /// If it has no such bytes.
    pub fn slice(&self, offset: usize, bytes: usize) -> Result<Slice<'_, u8>, Failure> {
        let end = offset.checked_add(bytes);
        let end = end.ok_or_else(|| invalid(format!("{bytes} bytes from byte {offset} on")))?;
        Ok(self.bytes.slice(offset..end)?)
    }
}

/// An all-gather + GEMM, by its element type.
pub enum Gemm {
    F16(AllGatherGemm<half::f16>),
    Bf16(AllGatherGemm<half::bf16>),
}

/// A stream.
pub struct OnStream {
    stream: Mutex<Stream>,
    /// Its communicator, until that is finalized.
    rank: Weak<Rank>,
}

impl OnStream {
    /// Makes a stream of a communicator.
    pub fn new(stream: Stream, rank: &Arc<Rank>) -> Self {
        Self {
            stream: Mutex::new(stream),
            rank: Arc::downgrade(rank),
        }
    }

    /// Returns its communicator.
    ///
    /// # Errors
    /// If it was finalized.
    pub fn rank(&self) -> Result<Arc<Rank>, Failure> {
        let gone = || invalid("the communicator of the symmem_stream was finalized");
        self.rank.upgrade().ok_or_else(gone)
    }

    /// Returns the stream, for one call at a time.
    pub fn lock(&self) -> MutexGuard<'_, Stream> {
        self.stream.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

macro_rules! handles {
    ($type:ident, $table:ident, $object:ty, $find:ident, $take:ident) => {
        /// Returns the object of a handle.
        ///
        /// # Errors
        /// If the handle is null or not live.
        pub fn $find(handle: *mut $type) -> Result<Arc<$object>, Failure> {
            $table.find(handle.addr())
        }

        /// Takes the object of a handle, which is not live any more then.
        ///
        /// # Errors
        /// If the handle is null or not live, or another thread is in a call on the object, which keeps its handle then.
        pub fn $take(handle: *mut $type) -> Result<$object, Failure> {
            $table.take(handle.addr())
        }

        impl From<$object> for *mut $type {
            fn from(object: $object) -> Self {
                std::ptr::without_provenance_mut($table.add(object))
            }
        }
    };
}
handles!(symmem_communicator, COMMUNICATORS, Rank, rank_of, take_rank);
handles!(symmem_buffer, BUFFERS, Buffer, buffer_of, take_buffer);
handles!(symmem_gemm, GEMMS, Gemm, gemm_of, take_gemm);
handles!(symmem_stream, STREAMS, OnStream, stream_of, take_stream);

/// Returns where a function stores a result, which need not be initialized.
///
/// # Errors
/// If the pointer is null.
///
/// # Safety
/// The pointer is null, or valid for a write while the reference lives.
pub unsafe fn out<'a, T>(pointer: *mut T, name: &str) -> Result<&'a mut MaybeUninit<T>, Failure> {
    // SAFETY: guaranteed by the caller.
    unsafe { optional(pointer) }.ok_or_else(|| invalid(format!("{name} is null")))
}

/// Returns where a function stores a result if the caller wants it.
///
/// # Safety
/// As [`out`].
pub unsafe fn optional<'a, T>(pointer: *mut T) -> Option<&'a mut MaybeUninit<T>> {
    // SAFETY: guaranteed by the caller; no value is read.
    unsafe { pointer.cast::<MaybeUninit<T>>().as_mut() }
}
