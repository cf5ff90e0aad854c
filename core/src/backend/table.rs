//! The plugin table: what a backend looks like from outside its own code.
//!
//! One [`BackendTable`] per backend points to one table per trait. All are append-only and start
//! with their size, so that a newer host reads an older plugin: entries past the plugin's size are
//! `None`, and calling one is a typed failure. A different major version is refused with both
//! numbers. Every entry catches unwinding and returns a [`Status`]; the text of a failure is fetched
//! with `last_failure` on the same thread.

use super::abi::*;
use super::failure::{CallResult, Failure};
use super::plugin::PluginBackend;
use super::{Collectives, Device, Gemm, Multicast, RemoteAccess, Signals, SymmetricMemory};
use std::any::Any;
use std::cell::RefCell;
use std::mem::MaybeUninit;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// First bytes of every [`BackendTable`].
pub const MAGIC: [u8; 8] = *b"symmemB\0";
/// Changes when an existing entry or struct changes; part of the exported symbol's name.
pub const ABI_MAJOR: u32 = 1;
/// Changes when entries are appended.
pub const ABI_MINOR: u32 = 5;

/// What a backend gives before a device is open, and the type of an open one.
pub trait Implementation: 'static {
    /// An open device, with the seven traits of the contract.
    type Instance: Device
        + SymmetricMemory
        + RemoteAccess
        + Signals
        + Collectives
        + Gemm
        + Multicast
        + Send
        + Sync
        + 'static;
    /// The name that `SYMMEM_BACKEND` selects it by.
    const NAME: &'static str;
    /// How many devices there are. `NO_DEVICE` or `LIBRARY_MISSING`, with the reason, if it cannot start.
    fn device_count() -> CallResult<u32>;
    /// Describes a device without opening it.
    fn describe_device(ordinal: u32) -> CallResult<DeviceDescription>;
    /// Lines of `key=value`: library files taken, their versions, state worth reporting.
    fn describe_libraries() -> String;
    /// Opens a device for one rank.
    fn open(options: &OpenOptions) -> CallResult<Self::Instance>;
}

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
    /// See [`Implementation::describe_libraries`]: fills at most `capacity` bytes, sets the length
    /// that the whole text needs.
    pub describe_libraries: TableEntry<unsafe extern "C" fn(*mut u8, u64, *mut u64) -> Status>,
    /// See [`Implementation::open`].
    pub open: TableEntry<unsafe extern "C" fn(*const OpenOptions, *mut Instance) -> Status>,
    /// Closes an instance; nothing may be using it.
    pub close: TableEntry<unsafe extern "C" fn(Instance)>,
    /// The record of this thread's last failure.
    pub last_failure: TableEntry<unsafe extern "C" fn(*mut FailureRecord)>,
    /// Table of [`Device`].
    pub device: *const DeviceTable,
    /// Table of [`SymmetricMemory`].
    pub symmetric_memory: *const SymmetricMemoryTable,
    /// Table of [`RemoteAccess`].
    pub remote_access: *const RemoteAccessTable,
    /// Table of [`Signals`].
    pub signals: *const SignalsTable,
    /// Table of [`Collectives`].
    pub collectives: *const CollectivesTable,
    /// Table of [`Gemm`]; null where the backend is older than it.
    pub gemm: *const GemmTable,
    /// Table of [`Multicast`]; null where the backend is older than it.
    pub multicast: *const MulticastTable,
}

// SAFETY: a table is immutable data and function pointers that may be called from any thread.
unsafe impl Send for BackendTable {}
// SAFETY: as above.
unsafe impl Sync for BackendTable {}

/// An entry of a table; `None` where the plugin is older than the entry.
pub type TableEntry<F> = Option<F>;

thread_local! {
    /// Of this copy of core: a loaded plugin has its own, reached through its own table.
    static LAST_FAILURE: RefCell<Option<Failure>> = const { RefCell::new(None) };
}

/// Runs a method behind the table: a failure or a panic becomes a status and this thread's record.
///
/// # Safety
/// `out` is writable.
unsafe fn enter<T>(out: *mut T, call: impl FnOnce() -> CallResult<T>) -> Status {
    let failure = match catch_unwind(AssertUnwindSafe(call)) {
        Ok(Ok(value)) => {
            // SAFETY: the caller gives a writable place.
            unsafe { out.write(value) };
            return Status::OK;
        }
        Ok(Err(failure)) => failure,
        Err(payload) => Failure::new(Status::PANICKED, "backend", panic_text(payload.as_ref())),
    };
    // A failure must not read as success, whatever the backend put there.
    let status = if failure.status == Status::OK {
        Status::CALL_FAILED
    } else {
        failure.status
    };
    // During thread exit the slot may be gone; the status alone then has to do.
    let _ = LAST_FAILURE.try_with(|slot| slot.replace(Some(failure)));
    status
}

fn panic_text(payload: &(dyn Any + Send)) -> String {
    let text = payload
        .downcast_ref::<&str>()
        .map(|text| text.to_string())
        .or_else(|| payload.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "no message".into());
    format!("the backend panicked: {text}; this is a bug in the backend, please report it")
}

unsafe extern "C" fn last_failure(out: *mut FailureRecord) {
    let record = LAST_FAILURE
        .try_with(|slot| slot.take())
        .ok()
        .flatten()
        .unwrap_or_else(|| Failure::new(Status::OK, "", "no failure recorded on this thread"))
        .to_record();
    // SAFETY: the caller gives a writable place.
    unsafe { out.write(record) };
}

unsafe extern "C" fn device_count<B: Implementation>(out: *mut u32) -> Status {
    // SAFETY: the caller gives a writable place.
    unsafe { enter(out, B::device_count) }
}

unsafe extern "C" fn describe_device<B: Implementation>(
    ordinal: u32,
    out: *mut DeviceDescription,
) -> Status {
    // SAFETY: the caller gives a writable place.
    unsafe { enter(out, || B::describe_device(ordinal)) }
}

unsafe extern "C" fn describe_libraries<B: Implementation>(
    buffer: *mut u8,
    capacity: u64,
    out: *mut u64,
) -> Status {
    let describe = || {
        let text = B::describe_libraries();
        let length = text.len().min(capacity as usize);
        // SAFETY: the caller gives `capacity` writable bytes.
        unsafe { buffer.copy_from_nonoverlapping(text.as_ptr(), length) };
        Ok(text.len() as u64)
    };
    // SAFETY: the caller gives a writable place.
    unsafe { enter(out, describe) }
}

unsafe extern "C" fn open<B: Implementation>(
    options: *const OpenOptions,
    out: *mut Instance,
) -> Status {
    let open = || {
        // SAFETY: the caller gives a readable struct of at least the size that it names, which comes
        // first in every version.
        let size = unsafe { (*options).size as usize };
        if size < size_of::<OpenOptions>() {
            return Err(Failure::new(
                Status::INVALID_ARGUMENT,
                "open",
                "the program is older than this backend; use a plugin file of its release",
            ));
        }
        // SAFETY: the caller's word, and the size was checked.
        let options = unsafe { &*options };
        Ok(Box::into_raw(Box::new(B::open(options)?)) as Instance)
    };
    // SAFETY: the caller gives a writable place.
    unsafe { enter(out, open) }
}

unsafe extern "C" fn close<B: Implementation>(instance: Instance) {
    let mut nothing = ();
    let close = || {
        // SAFETY: `open` made it from this very type, and the caller uses it no more.
        drop(unsafe { Box::from_raw(instance.cast::<B::Instance>().cast_mut()) });
        Ok(())
    };
    // SAFETY: `nothing` is writable. A panic in the destructor stays behind the table.
    unsafe { enter(&raw mut nothing, close) };
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
    /// The table of a backend's type.
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
            gemm: const { &GemmTable::of::<B>() },
            multicast: const { &MulticastTable::of::<B>() },
        }
    }

    /// The backend's name.
    pub fn name(&self) -> String {
        super::failure::read_text(&self.name)
    }
}

/// Exports a backend's table under the symbol that [`super::load`] looks for.
///
/// `export_backend!(ExampleBackend, symmem_backend_example_v1)` also makes it `pub static TABLE`.
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

/// Declares, from one list of entries, each trait's table, the shims that a backend's type puts in
/// it, and the host's side that calls through it. The order of entries is the ABI: append only.
macro_rules! tables {
    ($(
        $(#[$doc:meta])*
        $table:ident = $field:ident of $trait:ident {
            $( [$($safety:tt)*] fn $name:ident($($argument:ident: $type:ty),*) -> $return:ty; )*
        }
    )*) => {$(
        $(#[$doc])*
        #[repr(C)]
        #[derive(Clone, Copy)]
        #[allow(missing_docs, reason = "each entry is documented at the trait's method of its name")]
        pub struct $table {
            /// Bytes of this struct in the backend's build.
            pub size: u64,
            $( pub $name: TableEntry<
                unsafe extern "C" fn(Instance, $($type,)* *mut $return) -> Status>, )*
        }

        impl $table {
            /// The table of a backend's type.
            pub const fn of<B: Implementation>() -> Self {
                $(
                    unsafe extern "C" fn $name<B: Implementation>(
                        instance: Instance,
                        $($argument: $type,)*
                        out: *mut $return,
                    ) -> Status {
                        // SAFETY: `open` made the instance from this very type.
                        let this = unsafe { &*instance.cast::<B::Instance>() };
                        // SAFETY: the caller keeps the trait method's own conditions.
                        #[allow(unused_unsafe, reason = "some methods are safe")]
                        let call = || unsafe { $trait::$name(this, $($argument),*) };
                        // SAFETY: the caller gives a writable place.
                        unsafe { enter(out, call) }
                    }
                )*
                Self { size: size_of::<Self>() as u64, $( $name: Some($name::<B>), )* }
            }

            /// A copy of a table whose build may be older or newer than this one.
            ///
            /// # Safety
            /// `table` is null or points to a table of at least the size that it names.
            pub(super) unsafe fn copy(table: *const Self) -> Self {
                let mut copy = Self { size: 0, $( $name: None, )* };
                if !table.is_null() {
                    // SAFETY: the first field exists in every version.
                    let bytes = unsafe { (*table).size as usize }.min(size_of::<Self>());
                    // A size that ends inside an entry would give half a function pointer.
                    let bytes = bytes - bytes % size_of::<TableEntry<fn()>>();
                    // SAFETY: the table has these bytes; all-zero and function pointers are both
                    // valid entries.
                    unsafe {
                        (&raw mut copy).cast::<u8>().copy_from_nonoverlapping(table.cast(), bytes)
                    };
                }
                copy
            }
        }

        impl $trait for PluginBackend {
            $(
                $($safety)* fn $name(&self, $($argument: $type),*) -> CallResult<$return> {
                    let Some(entry) = self.tables().$field.$name else {
                        return Err(self.missing_entry(stringify!($name)));
                    };
                    let mut out = MaybeUninit::<$return>::uninit();
                    // SAFETY: the instance is live while `self` is; the caller keeps the trait
                    // method's own conditions.
                    let status = unsafe { entry(self.instance(), $($argument,)* out.as_mut_ptr()) };
                    // SAFETY: an entry that returns OK has written its result.
                    self.finish(status, stringify!($name), || unsafe { out.assume_init() })
                }
            )*
        }
    )*};
}

tables! {
    /// Entries of [`Device`].
    DeviceTable = device of Device {
        [] fn capabilities() -> Capabilities;
        [] fn description() -> DeviceDescription;
        [] fn memory_information() -> MemoryInformation;
        [] fn stream_create() -> RawStream;
        [unsafe] fn stream_destroy(stream: RawStream) -> ();
        [unsafe] fn stream_idle(stream: RawStream) -> u32;
        [unsafe] fn stream_wait_event(stream: RawStream, event: RawEvent) -> ();
        [unsafe] fn stream_capturing(stream: RawStream) -> u32;
        [] fn event_create() -> RawEvent;
        [unsafe] fn event_destroy(event: RawEvent) -> ();
        [unsafe] fn event_record(event: RawEvent, stream: RawStream) -> ();
        [unsafe] fn event_done(event: RawEvent) -> u32;
        [unsafe] fn event_elapsed(start: RawEvent, end: RawEvent) -> u64;
        [unsafe] fn capture_begin(stream: RawStream) -> ();
        [unsafe] fn capture_end(stream: RawStream) -> RawGraph;
        [unsafe] fn graph_instantiate(graph: RawGraph) -> RawGraphExec;
        [unsafe] fn graph_launch(graph: RawGraphExec, stream: RawStream) -> ();
        [unsafe] fn graph_destroy(graph: RawGraphExec) -> ();
        [] fn host_allocate(bytes: u64) -> HostMemory;
        [unsafe] fn host_free(memory: HostMemory) -> ();
        [unsafe] fn host_register(pointer: u64, bytes: u64) -> HostMemory;
        [unsafe] fn host_unregister(pointer: u64) -> ();
        [unsafe] fn memory_set(destination: DeviceAddress, value: u32, bytes: u64, stream: RawStream) -> ();
        [unsafe] fn module_load(data: *const u8, bytes: u64) -> RawModule;
        [unsafe] fn module_unload(module: RawModule) -> ();
        [unsafe] fn module_function(module: RawModule, name: *const u8, length: u64) -> RawFunction;
        [unsafe] fn builtin_function(name: *const u8, length: u64) -> RawFunction;
        [unsafe] fn launch(function: RawFunction, geometry: &Geometry, arguments: *const u8, bytes: u64, stream: RawStream) -> ();
    }
    /// Entries of [`SymmetricMemory`].
    SymmetricMemoryTable = symmetric_memory of SymmetricMemory {
        [] fn allocate(kind: ShareKind, bytes: u64) -> SharedAllocation;
        [unsafe] fn register(kind: ShareKind, address: DeviceAddress, bytes: u64) -> SharedAllocation;
        [unsafe] fn free(allocation: RawAllocation) -> ();
        [unsafe] fn export(allocation: RawAllocation) -> ExportedHandle;
        [unsafe] fn import(handle: &ExportedHandle) -> SharedMapping;
        [unsafe] fn unmap(mapping: RawMapping) -> ();
        [] fn allocate_signals(kind: ShareKind, bytes: u64) -> SharedAllocation;
    }
    /// Entries of [`RemoteAccess`].
    RemoteAccessTable = remote_access of RemoteAccess {
        [unsafe] fn transfer(transfer: &Transfer, stream: RawStream) -> ();
        [unsafe] fn transfer_rows(copy: &RowsCopy, stream: RawStream) -> ();
    }
    /// Entries of [`Signals`].
    SignalsTable = signals of Signals {
        [unsafe] fn signal_give(target: &SignalTarget, placement: SignalPlacement, stream: RawStream) -> ();
        [unsafe] fn signal_wait(wait: &SignalWait, placement: SignalPlacement, stream: RawStream) -> ();
        [unsafe] fn signal_step(target: &SignalTarget, wait: &SignalWait, stream: RawStream) -> ();
        [unsafe] fn word_update(operation: &WordOperation, stream: RawStream) -> ();
        [unsafe] fn word_wait(wait: &WordWait, stream: RawStream) -> ();
    }
    /// Entries of [`Collectives`].
    CollectivesTable = collectives of Collectives {
        [unsafe] fn barrier(barrier: &Barrier, stream: RawStream) -> ();
        [] fn collective_row(index: u32) -> CollectiveRow;
        [] fn resident_blocks(kernel: CollectiveKernel, element: ElementType, threads: u32) -> u32;
        [unsafe] fn collective_move(arguments: &MoveArguments, geometry: &Geometry, stream: RawStream) -> ();
        [unsafe] fn collective_packets(arguments: &PacketArguments, geometry: &Geometry, stream: RawStream) -> ();
        [unsafe] fn collective_reduce(arguments: &ReduceArguments, geometry: &Geometry, stream: RawStream) -> ();
        [unsafe] fn collective_reduce_packets(arguments: &ReducePacketArguments, geometry: &Geometry, stream: RawStream) -> ();
        [unsafe] fn collective_exchange(arguments: &ExchangeArguments, geometry: &Geometry, stream: RawStream) -> ();
        [] fn vendor_description() -> VendorDescription;
        [] fn vendor_identifier() -> VendorIdentifier;
        [] fn vendor_create(identifier: &VendorIdentifier, rank: u32, world: u32) -> RawVendor;
        [unsafe] fn vendor_ready(vendor: RawVendor) -> u32;
        [unsafe] fn vendor_call(vendor: RawVendor, call: &VendorCall, stream: RawStream) -> ();
        [] fn vendor_group(open: u32) -> ();
        [unsafe] fn vendor_register(vendor: RawVendor, address: DeviceAddress, bytes: u64) -> u64;
        [unsafe] fn vendor_deregister(vendor: RawVendor, window: u64) -> ();
        [unsafe] fn vendor_abort(vendor: RawVendor) -> ();
        [unsafe] fn vendor_destroy(vendor: RawVendor) -> ();
        [unsafe] fn collective_swap(arguments: &MoveArguments, geometry: &Geometry, stream: RawStream) -> ();
        [unsafe] fn collective_reduce_push(arguments: &ReducePushArguments, geometry: &Geometry, stream: RawStream) -> ();
        [unsafe] fn collective_multicast(arguments: &MulticastArguments, geometry: &Geometry, stream: RawStream) -> ();
    }
    /// Entries of [`Gemm`].
    GemmTable = gemm of Gemm {
        [] fn gemm_library() -> VendorDescription;
        [] fn gemm_prepare(shape: &GemmShape) -> RawGemm;
        [unsafe] fn gemm_candidates(gemm: RawGemm) -> u32;
        [unsafe] fn gemm(gemm: RawGemm, candidate: u32, operands: &GemmOperands, stream: RawStream) -> ();
        [unsafe] fn gemm_release(gemm: RawGemm) -> ();
        [] fn gathered_gemm_limits(shape: &GemmShape, sharding: Sharding, shard: u64) -> GatheredLimits;
        [unsafe] fn gathered_gemm(arguments: &GatheredGemmArguments, geometry: &Geometry, stream: RawStream) -> ();
        [unsafe] fn gathered_arrive(word: DeviceAddress, epoch: DeviceAddress, stream: RawStream) -> ();
    }
    /// Entries of [`Multicast`].
    MulticastTable = multicast of Multicast {
        [] fn multicast_support() -> MulticastSupport;
        [] fn multicast_granularity(devices: u32, bytes: u64) -> u64;
        [] fn multicast_create(devices: u32, bytes: u64) -> RawMulticast;
        [unsafe] fn multicast_export(multicast: RawMulticast) -> ExportedHandle;
        [unsafe] fn multicast_import(handle: &ExportedHandle) -> RawMulticast;
        [unsafe] fn multicast_join(multicast: RawMulticast) -> ();
        [unsafe] fn multicast_bind(multicast: RawMulticast, offset: u64, allocation: RawAllocation, bytes: u64) -> ();
        [unsafe] fn multicast_map(multicast: RawMulticast) -> DeviceAddress;
        [unsafe] fn multicast_unmap(multicast: RawMulticast) -> ();
        [unsafe] fn multicast_unbind(multicast: RawMulticast, offset: u64, bytes: u64) -> ();
        [unsafe] fn multicast_release(multicast: RawMulticast) -> ();
    }
}
