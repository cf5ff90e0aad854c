//! The table of each trait, and the backend's shims that fill it.

use super::abi::*;
use super::boundary::{TableEntry, answer};
use super::cross::Cross;
use super::implementation::Implementation;
use super::pointers::Pointers;
use super::table_error::TableError;
use super::{
    CollectiveKernels, Device, Gemm, Multicast, NcclCollectives, RemoteAccess, Signals,
    SymmetricMemory,
};
use std::mem::MaybeUninit;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Calls a macro with every entry of every trait's table. The order of entries is the ABI: append only.
macro_rules! entries {
    ($callback:ident) => {
        $callback! {
            /// Entries of [`Device`].
            DeviceTable = device of Device {
                [] fn capabilities() -> Capabilities;
                [] fn description() -> DeviceDescription;
                [] fn memory_information() -> MemoryInformation;
                [] fn stream_create() -> RawStream;
                [unsafe] fn stream_destroy(stream: RawStream) -> ();
                [unsafe] fn stream_idle(stream: RawStream) -> bool;
                [unsafe] fn stream_wait_event(stream: RawStream, event: RawEvent) -> ();
                [unsafe] fn stream_capturing(stream: RawStream) -> bool;
                [] fn event_create() -> RawEvent;
                [unsafe] fn event_destroy(event: RawEvent) -> ();
                [unsafe] fn event_record(event: RawEvent, stream: RawStream) -> ();
                [unsafe] fn event_done(event: RawEvent) -> bool;
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
                [unsafe] fn memory_set(destination: DeviceAddress, value: u8, bytes: u64, stream: RawStream) -> ();
                [unsafe] fn module_load(image: &[u8]) -> RawModule;
                [unsafe] fn module_unload(module: RawModule) -> ();
                [unsafe] fn module_function(module: RawModule, name: &str) -> RawFunction;
                [unsafe] fn function_parameter_bytes(function: RawFunction) -> Option<u64>;
                [] fn builtin_function(name: &str) -> RawFunction;
                [unsafe] fn launch(function: RawFunction, geometry: &Geometry, arguments: &[MaybeUninit<u8>], stream: RawStream) -> ();
                [] fn check_memory(address: DeviceAddress, bytes: u64) -> ();
                [] fn stream_create_urgent() -> RawStream;
            }
            /// Entries of [`SymmetricMemory`].
            SymmetricMemoryTable = symmetric_memory of SymmetricMemory {
                [] fn allocate(kind: ShareKindCode, bytes: u64) -> SharedAllocation;
                [] fn allocate_signals(kind: ShareKindCode, bytes: u64) -> SharedAllocation;
                [unsafe] fn register(kind: ShareKindCode, address: DeviceAddress, bytes: u64) -> SharedAllocation;
                [unsafe] fn free(allocation: RawAllocation) -> ();
                [unsafe] fn export(allocation: RawAllocation) -> ExportedHandle;
                [unsafe] fn import(handle: &ExportedHandle) -> SharedMapping;
                [unsafe] fn unmap(mapping: RawMapping) -> ();
            }
            /// Entries of [`RemoteAccess`].
            RemoteAccessTable = remote_access of RemoteAccess {
                [unsafe] fn transfer(transfer: &Transfer, stream: RawStream) -> ();
                [unsafe] fn transfer_rows(copy: &RowsCopy, stream: RawStream) -> ();
            }
            /// Entries of [`Signals`].
            SignalsTable = signals of Signals {
                [unsafe] fn signal_give(target: &SignalTarget, placement: SignalPlacementCode, stream: RawStream) -> ();
                [unsafe] fn signal_wait(wait: &SignalWait, placement: SignalPlacementCode, stream: RawStream) -> ();
                [unsafe] fn signal_step(target: &SignalTarget, wait: &SignalWait, stream: RawStream) -> ();
                [unsafe] fn word_update(operation: &WordOperation, stream: RawStream) -> ();
                [unsafe] fn word_wait(wait: &WordWait, stream: RawStream) -> ();
            }
            /// Entries of [`CollectiveKernels`].
            CollectivesTable = collectives of CollectiveKernels {
                [unsafe] fn barrier(barrier: &Barrier, stream: RawStream) -> ();
                [] fn collective_row(index: u32) -> Option<CollectiveRow>;
                [] fn resident_blocks(kernel: CollectiveKernel, element: ElementTypeCode, threads: u32) -> u32;
                [unsafe] fn collective_move(arguments: &MoveArguments, geometry: &Geometry, stream: RawStream) -> ();
                [unsafe] fn collective_swap(arguments: &MoveArguments, geometry: &Geometry, stream: RawStream) -> ();
                [unsafe] fn collective_packets(arguments: &PacketArguments, geometry: &Geometry, stream: RawStream) -> ();
                [unsafe] fn collective_reduce(arguments: &ReduceArguments, geometry: &Geometry, stream: RawStream) -> ();
                [unsafe] fn collective_reduce_push(arguments: &ReducePushArguments, geometry: &Geometry, stream: RawStream) -> ();
                [unsafe] fn collective_reduce_packets(arguments: &ReducePacketArguments, geometry: &Geometry, stream: RawStream) -> ();
                [unsafe] fn collective_multicast(arguments: &MulticastArguments, geometry: &Geometry, stream: RawStream) -> ();
                [unsafe] fn collective_exchange(arguments: &ExchangeArguments, geometry: &Geometry, stream: RawStream) -> ();
                [unsafe] fn collective_reduce_lamport(arguments: &ReduceLamportArguments, geometry: &Geometry, stream: RawStream) -> ();
                [unsafe] fn collective_pieces(arguments: &PieceArguments, geometry: &Geometry, stream: RawStream) -> ();
                [unsafe] fn collective_move_lamport(arguments: &MoveLamportArguments, geometry: &Geometry, stream: RawStream) -> ();
                [unsafe] fn collective_reduce_norm(arguments: &ReduceNormArguments, geometry: &Geometry, stream: RawStream) -> ();
            }
            /// Entries of [`NcclCollectives`].
            NcclCollectivesTable = nccl_collectives of NcclCollectives {
                [] fn nccl_description() -> LibraryDescription;
                [] fn nccl_unique_id() -> NcclUniqueId;
                [] fn nccl_create(identifier: &NcclUniqueId, rank: u32, world: u32) -> RawNccl;
                [unsafe] fn nccl_ready(nccl: RawNccl) -> bool;
                [] fn nccl_group(open: bool) -> ();
                [unsafe] fn nccl_call(nccl: RawNccl, call: &NcclCall, stream: RawStream) -> ();
                [unsafe] fn nccl_register(nccl: RawNccl, address: DeviceAddress, bytes: u64) -> u64;
                [unsafe] fn nccl_deregister(nccl: RawNccl, window: u64) -> ();
                [unsafe] fn nccl_abort(nccl: RawNccl) -> ();
                [unsafe] fn nccl_destroy(nccl: RawNccl) -> ();
            }
            /// Entries of [`Gemm`].
            GemmTable = gemm of Gemm {
                [] fn gemm_library() -> LibraryDescription;
                [] fn gemm_prepare(shape: &GemmLayout) -> RawGemm;
                [unsafe] fn gemm_candidates(gemm: RawGemm) -> u32;
                [unsafe] fn gemm(gemm: RawGemm, candidate: u32, operands: &GemmOperands, stream: RawStream) -> ();
                [unsafe] fn gemm_release(gemm: RawGemm) -> ();
                [] fn gathered_gemm_limits(shape: &GemmLayout, sharding: ShardingCode, shard: u64) -> Option<GatheredLimits>;
                [unsafe] fn gathered_gemm(arguments: &GatheredGemmArguments, geometry: &Geometry, stream: RawStream) -> ();
                [unsafe] fn gathered_arrive(word: DeviceAddress, epoch: DeviceAddress, stream: RawStream) -> ();
                [] fn reduced_gemm_limits(shape: &GemmLayout, problem: &ReducedProblem) -> Option<ReducedLimits>;
                [unsafe] fn reduced_gemm(arguments: &ReducedGemmArguments, geometry: &Geometry, stream: RawStream) -> ();
                [] fn gathered_gemm_tile(shape: &GemmLayout, sharding: ShardingCode, shard: u64, rows: u32, columns: u32) -> Option<GatheredLimits>;
            }
            /// Entries of [`Multicast`].
            MulticastTable = multicast of Multicast {
                [] fn multicast_support() -> MulticastSupportCode;
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
    };
}
pub(super) use entries;

/// Declares each trait's table and the shims that call a backend's methods.
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
                unsafe extern "C" fn(Instance, $(<$type as Cross>::C,)* *mut <$return as Cross>::C) -> Status>, )*
        }

        impl $table {
            /// The entries as declared, so that a test can pin each entry's parameters and result.
            #[doc(hidden)]
            pub const ENTRIES: &'static [&'static str] =
                &[$( concat!(stringify!($name), "(", $( stringify!($argument), ": ", stringify!($type), ", ", )* ") -> ", stringify!($return)) ),*];

            /// Builds the table of a backend's type.
            pub const fn of<B: Implementation>() -> Self {
                $(
                    unsafe extern "C" fn $name<B: Implementation>(
                        instance: Instance,
                        $($argument: <$type as Cross>::C,)*
                        out: *mut <$return as Cross>::C,
                    ) -> Status {
                        // SAFETY: `open` created the instance with this type, and the caller keeps it open for the
                        // call.
                        let this = unsafe { &*instance.cast::<B::Instance>() };
                        let call = || {
                            // SAFETY: pointers in the arguments are valid for the call, as the table's contract
                            // requires.
                            $( let $argument = unsafe { <$type>::from_c($argument, stringify!($name)) }?; )*
                            // SAFETY: the caller meets the trait method's own conditions.
                            #[allow(unused_unsafe, reason = "some methods are safe")]
                            let result = unsafe { $trait::$name(this, $($argument),*) }?;
                            Ok(result.into_c())
                        };
                        // SAFETY: the table's contract requires `out` to be valid for a write.
                        unsafe { answer(out, catch_unwind(AssertUnwindSafe(call))) }
                    }
                )*
                Self { size: size_of::<Self>() as u64, $( $name: Some($name::<B>), )* }
            }

            /// Copies a table, after checking its address, its size and its entries. A null table is copied as one
            /// without entries. `same_minor` is whether its build has this build's minor version, and so its size.
            ///
            /// # Errors
            /// [`TableError`] with the first thing that is wrong.
            ///
            /// # Safety
            /// `table` is null, or `pointers` allows only tables that are wholly readable and live meanwhile.
            pub(super) unsafe fn copy(
                table: *const Self,
                pointers: &Pointers,
                same_minor: bool,
            ) -> Result<Self, TableError> {
                let part = stringify!($field);
                let mut copy = Self { size: 0, $( $name: None, )* };
                if table.is_null() {
                    return Ok(copy);
                }
                pointers.readable(part, table, size_of::<u64>())?;
                // SAFETY: the size is the first field in every version, and readable.
                let size = unsafe { (*table).size };
                check_size(part, size, size_of::<Self>() as u64, same_minor)?;
                let bytes = usize::try_from(size).unwrap_or(usize::MAX);
                pointers.readable(part, table, bytes)?;
                // SAFETY: the table has these bytes, and every entry in it is null or not: both are valid here, and an
                // entry is called only if it passes the check below.
                unsafe {
                    (&raw mut copy)
                        .cast::<u8>()
                        .copy_from_nonoverlapping(table.cast(), bytes.min(size_of::<Self>()))
                };
                $( pointers.executable(
                    part, stringify!($name), copy.$name.map(|entry| entry as *const ()))?; )*
                Ok(copy)
            }
        }
    )*};
}

entries!(tables);

/// Checks the size of a trait's table: whole entries, and in a build of the same minor version, this build's.
fn check_size(
    part: &'static str,
    found: u64,
    expected: u64,
    same_minor: bool,
) -> Result<(), TableError> {
    let least = size_of::<u64>() as u64;
    if found < least {
        return Err(TableError::Truncated { part, found, least });
    }
    match !found.is_multiple_of(least) || (same_minor && found != expected) {
        true => Err(TableError::OtherSize {
            part,
            found,
            expected,
        }),
        false => Ok(()),
    }
}
