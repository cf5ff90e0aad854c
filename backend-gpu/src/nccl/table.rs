//! The C functions of `nccl.h` that symmem calls, as a table that is filled once.
//!
//! Signatures as in versions 2.18 to 2.28. NCCL and RCCL both have these names, except for the all-to-all.

use std::ffi::{c_char, c_int, c_void};

/// `ncclResult_t`.
pub type Code = c_int;
/// `ncclComm_t`.
pub type Comm = *mut c_void;
/// `ncclWindow_t`.
pub type Window = *mut c_void;
/// `cudaStream_t` or `hipStream_t`.
pub type Stream = *mut c_void;

/// `ncclSuccess`.
pub const SUCCESS: Code = 0;
/// `ncclInProgress`: a thread of the library works on the call.
pub const IN_PROGRESS: Code = 7;
/// `NCCL_WIN_COLL_SYMMETRIC`: the same offset on every rank.
pub const WINDOW_SYMMETRIC: c_int = 1;

/// `ncclUniqueId`, which is passed by value.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct UniqueId(pub [u8; 128]);

/// `ncclConfig_t` of 2.18: the library reads `size` bytes and uses its defaults for newer fields.
#[repr(C)]
pub struct Config {
    size: usize,
    magic: u32,
    version: u32,
    blocking: c_int,
    cga_cluster_size: c_int,
    min_ctas: c_int,
    max_ctas: c_int,
    net_name: *const c_char,
    split_share: c_int,
    /// Padding in 2.18, `trafficClass` later.
    traffic_class: c_int,
}

/// `NCCL_VERSION(2, 18, 0)`.
pub const CONFIG_VERSION: u32 = 21_800;
/// `NCCL_API_MAGIC`.
const MAGIC: u32 = 0xcafe_beef;
/// `NCCL_CONFIG_UNDEF_INT`.
const UNDEFINED: c_int = c_int::MIN;

impl Config {
    /// Returns the configuration of a non-blocking communicator.
    pub fn non_blocking() -> Self {
        Self {
            size: size_of::<Self>(),
            magic: MAGIC,
            version: CONFIG_VERSION,
            blocking: 0,
            cga_cluster_size: UNDEFINED,
            min_ctas: UNDEFINED,
            max_ctas: UNDEFINED,
            net_name: std::ptr::null(),
            split_share: UNDEFINED,
            traffic_class: UNDEFINED,
        }
    }
}

const _: () = assert!(
    size_of::<UniqueId>() == 128
        && size_of::<Config>() == 48
        && std::mem::offset_of!(Config, blocking) == 16
        && std::mem::offset_of!(Config, net_name) == 32
        && std::mem::offset_of!(Config, split_share) == 40
);

crate::symbol_table! {
    /// Functions of NCCL or RCCL.
    pub struct Table {
        required {
            ncclGetVersion(version: *mut c_int) -> Code;
            ncclGetErrorString(code: Code) -> *const c_char;
            ncclGetUniqueId(identifier: *mut UniqueId) -> Code;
            ncclCommInitRankConfig(comm: *mut Comm, world: c_int, identifier: UniqueId, rank: c_int, config: *mut Config) -> Code;
            ncclCommGetAsyncError(comm: Comm, code: *mut Code) -> Code;
            ncclCommFinalize(comm: Comm) -> Code;
            ncclCommDestroy(comm: Comm) -> Code;
            ncclCommAbort(comm: Comm) -> Code;
            ncclGroupStart() -> Code;
            ncclGroupEnd() -> Code;
            ncclAllReduce(source: *const c_void, destination: *mut c_void, count: usize, element: c_int, reduce: c_int, comm: Comm, stream: Stream) -> Code;
            ncclReduce(source: *const c_void, destination: *mut c_void, count: usize, element: c_int, reduce: c_int, root: c_int, comm: Comm, stream: Stream) -> Code;
            ncclBroadcast(source: *const c_void, destination: *mut c_void, count: usize, element: c_int, root: c_int, comm: Comm, stream: Stream) -> Code;
            ncclAllGather(source: *const c_void, destination: *mut c_void, count: usize, element: c_int, comm: Comm, stream: Stream) -> Code;
            ncclReduceScatter(source: *const c_void, destination: *mut c_void, count: usize, element: c_int, reduce: c_int, comm: Comm, stream: Stream) -> Code;
            ncclSend(source: *const c_void, count: usize, element: c_int, peer: c_int, comm: Comm, stream: Stream) -> Code;
            ncclRecv(destination: *mut c_void, count: usize, element: c_int, peer: c_int, comm: Comm, stream: Stream) -> Code;
        }
        optional {
            ncclGetLastError(comm: Comm) -> *const c_char;
            // From 2.28 on. NCCL spells it `ncclAlltoAll`, RCCL `ncclAllToAll`.
            ncclAlltoAll or "ncclAllToAll" (source: *const c_void, destination: *mut c_void, count: usize, element: c_int, comm: Comm, stream: Stream) -> Code;
            // From 2.27 on.
            ncclCommWindowRegister(comm: Comm, address: *mut c_void, bytes: usize, window: *mut Window, flags: c_int) -> Code;
            ncclCommWindowDeregister(comm: Comm, window: Window) -> Code;
        }
    }
}
