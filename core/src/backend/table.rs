//! The plugin table: how a program reaches a backend.
//!
//! One [`BackendTable`] per backend points to one table per trait. Each starts with its size and is only ever
//! appended to, so that a newer program reads an older plugin: entries past the plugin's size are `None`, and a call
//! of one returns a typed failure. A table of another major version is refused with both numbers. Every entry catches
//! unwinding and returns a [`Status`]; `last_failure` on the same thread returns the text.

use super::abi::{CollectiveRow, DeviceDescription, FailureRecord, Instance, OpenOptions, Status};
use super::boundary::{TableEntry, answer, last_failure};
use super::cross::Cross;
use super::failure::{Failure, read_text};
use super::implementation::Implementation;
use super::trait_tables::{
    CollectivesTable, DeviceTable, GemmTable, MulticastTable, NcclCollectivesTable,
    RemoteAccessTable, SignalsTable, SymmetricMemoryTable,
};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// First bytes of every [`BackendTable`].
pub const MAGIC: [u8; 8] = *b"symmemB\0";
/// Raised when an existing entry or struct changes; part of the exported symbol's name.
pub const ABI_MAJOR: u32 = 1;
/// Raised when entries are appended.
pub const ABI_MINOR: u32 = 0;

/// A backend, as a table of functions.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct BackendTable {
    /// [`MAGIC`].
    pub magic: [u8; 8],
    /// [`ABI_MAJOR`] of the build.
    pub abi_major: u32,
    /// [`ABI_MINOR`] of the build.
    pub abi_minor: u32,
    /// Bytes of this struct in the backend's build.
    pub size: u32,
    /// Zero.
    pub reserved: u32,
    /// UTF-8, zero-padded.
    pub name: [u8; 16],
    /// Version of the crate that the backend was built from, UTF-8, zero-padded.
    pub build: [u8; 32],
    /// See [`Implementation::device_count`].
    pub device_count: TableEntry<unsafe extern "C" fn(*mut u32) -> Status>,
    /// See [`Implementation::describe_device`].
    pub describe_device: TableEntry<unsafe extern "C" fn(u32, *mut DeviceDescription) -> Status>,
    /// See [`Implementation::describe_libraries`]. Writes at most `capacity` bytes, and returns the length of the
    /// whole text.
    pub describe_libraries: TableEntry<unsafe extern "C" fn(*mut u8, u64, *mut u64) -> Status>,
    /// See [`Implementation::open`].
    pub open: TableEntry<unsafe extern "C" fn(*const OpenOptions, *mut Instance) -> Status>,
    /// Closes an instance, which nothing may use any more.
    pub close: TableEntry<unsafe extern "C" fn(Instance)>,
    /// Returns the record of this thread's last failure.
    pub last_failure: TableEntry<unsafe extern "C" fn(*mut FailureRecord)>,
    /// Table of [`super::Device`].
    pub device: *const DeviceTable,
    /// Table of [`super::SymmetricMemory`].
    pub symmetric_memory: *const SymmetricMemoryTable,
    /// Table of [`super::RemoteAccess`].
    pub remote_access: *const RemoteAccessTable,
    /// Table of [`super::Signals`].
    pub signals: *const SignalsTable,
    /// Table of [`super::CollectiveKernels`].
    pub collectives: *const CollectivesTable,
    /// Table of [`super::NcclCollectives`].
    pub nccl_collectives: *const NcclCollectivesTable,
    /// Table of [`super::Gemm`].
    pub gemm: *const GemmTable,
    /// Table of [`super::Multicast`].
    pub multicast: *const MulticastTable,
    /// See [`Implementation::selector_row`]. Past the last row the algorithm is
    /// [`AUTOMATIC`](super::abi::AlgorithmCode::AUTOMATIC).
    pub selector_row: TableEntry<unsafe extern "C" fn(u32, *mut CollectiveRow) -> Status>,
}

// SAFETY: a table is immutable data and function pointers that may be called on any thread.
unsafe impl Send for BackendTable {}
// SAFETY: as for `Send`: all threads only read the table.
unsafe impl Sync for BackendTable {}

unsafe extern "C" fn device_count<B: Implementation>(out: *mut u32) -> Status {
    // SAFETY: the table's contract requires `out` to be valid for a write.
    unsafe { answer(out, catch_unwind(AssertUnwindSafe(B::device_count))) }
}

unsafe extern "C" fn describe_device<B: Implementation>(
    ordinal: u32,
    out: *mut DeviceDescription,
) -> Status {
    // SAFETY: the table's contract requires `out` to be valid for a write.
    unsafe {
        answer(
            out,
            catch_unwind(AssertUnwindSafe(|| B::describe_device(ordinal))),
        )
    }
}

unsafe extern "C" fn describe_libraries<B: Implementation>(
    buffer: *mut u8,
    capacity: u64,
    out: *mut u64,
) -> Status {
    let describe = || {
        let text = B::describe_libraries();
        let length = text.len().min(capacity as usize);
        // SAFETY: the table's contract requires `capacity` writable bytes at `buffer`.
        unsafe { buffer.copy_from_nonoverlapping(text.as_ptr(), length) };
        Ok(text.len() as u64)
    };
    // SAFETY: the table's contract requires `out` to be valid for a write.
    unsafe { answer(out, catch_unwind(AssertUnwindSafe(describe))) }
}

unsafe extern "C" fn selector_row<B: Implementation>(
    index: u32,
    out: *mut CollectiveRow,
) -> Status {
    let row = || Ok(B::selector_row(index).into_c());
    // SAFETY: the table's contract requires `out` to be valid for a write.
    unsafe { answer(out, catch_unwind(AssertUnwindSafe(row))) }
}

unsafe extern "C" fn open<B: Implementation>(
    options: *const OpenOptions,
    out: *mut Instance,
) -> Status {
    let open = || {
        // SAFETY: the caller passes a readable struct of at least the size that it states, and `size` comes first in
        // every version.
        let size = unsafe { (*options).size as usize };
        if size < size_of::<OpenOptions>() {
            return Err(Failure::new(
                Status::INVALID_ARGUMENT,
                "open",
                "the program is older than this backend; use the plugin file of the program's symmem release",
            ));
        }
        // SAFETY: the struct is readable for the stated size, which was checked to cover `OpenOptions`.
        let options = unsafe { &*options };
        Ok(Box::into_raw(Box::new(B::open(options)?)) as Instance)
    };
    // SAFETY: the table's contract requires `out` to be valid for a write.
    unsafe { answer(out, catch_unwind(AssertUnwindSafe(open))) }
}

unsafe extern "C" fn close<B: Implementation>(instance: Instance) {
    let mut nothing = ();
    let close = || {
        // SAFETY: `open` created the instance with this type, and the caller does not use it again.
        drop(unsafe { Box::from_raw(instance.cast::<B::Instance>().cast_mut()) });
        Ok(())
    };
    // SAFETY: `nothing` is writable. A panic in the destructor is caught here.
    unsafe { answer(&raw mut nothing, catch_unwind(AssertUnwindSafe(close))) };
}

const fn padded<const N: usize>(text: &str) -> [u8; N] {
    let mut field = [0; N];
    let mut index = 0;
    while index < text.len() && index < N {
        field[index] = text.as_bytes()[index];
        index += 1;
    }
    field
}

impl BackendTable {
    /// Builds the table of a backend's type.
    pub const fn of<B: Implementation>() -> Self {
        Self {
            magic: MAGIC,
            abi_major: ABI_MAJOR,
            abi_minor: ABI_MINOR,
            size: size_of::<Self>() as u32,
            reserved: 0,
            name: padded(B::NAME),
            build: padded(env!("CARGO_PKG_VERSION")),
            device_count: Some(device_count::<B>),
            describe_device: Some(describe_device::<B>),
            describe_libraries: Some(describe_libraries::<B>),
            open: Some(open::<B>),
            close: Some(close::<B>),
            last_failure: Some(last_failure),
            device: const { &DeviceTable::of::<B>() },
            symmetric_memory: const { &SymmetricMemoryTable::of::<B>() },
            remote_access: const { &RemoteAccessTable::of::<B>() },
            signals: const { &SignalsTable::of::<B>() },
            collectives: const { &CollectivesTable::of::<B>() },
            nccl_collectives: const { &NcclCollectivesTable::of::<B>() },
            gemm: const { &GemmTable::of::<B>() },
            multicast: const { &MulticastTable::of::<B>() },
            selector_row: Some(selector_row::<B>),
        }
    }

    /// Returns the backend's name.
    pub fn name(&self) -> String {
        read_text(&self.name)
    }
}

/// Exports a backend's table under the symbol that [`super::load`] looks up.
///
/// `export_backend!(ExampleBackend, symmem_backend_example_v1)` also defines `pub static TABLE`.
#[macro_export]
macro_rules! export_backend {
    ($backend:ty, $symbol:ident) => {
        /// The backend's table, for programs that link it.
        pub static TABLE: $crate::backend::BackendTable =
            $crate::backend::BackendTable::of::<$backend>();

        /// The backend's table, for programs that load it.
        // SAFETY: the name carries the backend and the major version, so no other crate has it.
        #[unsafe(no_mangle)]
        pub extern "C" fn $symbol() -> *const $crate::backend::BackendTable {
            &TABLE
        }
    };
}
