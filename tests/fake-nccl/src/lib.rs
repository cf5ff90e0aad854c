//! A fake `libnccl.so.2` and `librccl.so.1`, strict about order and agreement, for tests on machines without a GPU.
//!
//! It runs over the fake CUDA driver or the fake HIP runtime, which it finds as a program does, and is NCCL or RCCL
//! accordingly. Ranks, in one process or in several, meet in a shared memory file that the identifier names (`mesh`).
//! Every operation is sends and receives through this file (`operations`), executed in stream order. `communicator` has
//! the communicators, `group` the groups. The fake driver's report lists what a program does wrong. The README lists
//! the switches.

#![allow(
    missing_docs,
    non_snake_case,
    clippy::missing_safety_doc,
    reason = "NCCL's functions, as nccl.h documents them"
)]

#[cfg(not(target_os = "linux"))]
compile_error!("the fake NCCL runs on Linux");

mod communicator;
mod driver;
mod group;
mod inject;
mod mesh;
mod operations;
mod reduce;

use communicator::Config;
use driver::Spelling;
use operations::{Kind, Operation};
use std::ffi::{c_char, c_int, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// An `ncclResult_t` other than success.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Code(pub c_int);

impl Code {
    pub const CUDA_ERROR: Self = Self(1);
    pub const SYSTEM_ERROR: Self = Self(2);
    pub const INTERNAL_ERROR: Self = Self(3);
    pub const INVALID_ARGUMENT: Self = Self(4);
    pub const INVALID_USAGE: Self = Self(5);
    pub const IN_PROGRESS: Self = Self(7);
}

pub(crate) type Result<T = ()> = std::result::Result<T, Code>;

/// Runs an exported function: counts the call, injects failures, catches panics.
fn enter(symbol: &'static str, call: impl FnOnce() -> Result) -> c_int {
    let run = || inject::check(symbol).and_then(|()| call());
    match catch_unwind(AssertUnwindSafe(run)) {
        Ok(Ok(())) => 0,
        Ok(Err(code)) => code.0,
        Err(_) => {
            driver::violation(&format!("{symbol} panicked"));
            Code::INTERNAL_ERROR.0
        }
    }
}

fn put<T>(place: *mut T, value: T) -> Result {
    if place.is_null() {
        return Err(Code::INVALID_ARGUMENT);
    }
    // SAFETY: the caller promises a writable output.
    unsafe { place.write(value) };
    Ok(())
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclGetVersion(version: *mut c_int) -> c_int {
    enter("ncclGetVersion", || put(version, inject::version()))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclGetErrorString(code: c_int) -> *const c_char {
    let text = match code {
        0 => c"no error",
        1 => c"unhandled cuda error",
        2 => c"unhandled system error",
        3 => c"internal error",
        4 => c"invalid argument",
        5 => c"invalid usage",
        6 => c"remote process exited or there was a network error",
        7 => c"in progress",
        _ => c"unknown result code",
    };
    text.as_ptr()
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclGetLastError(_comm: *mut c_void) -> *const c_char {
    c"said by the fake".as_ptr()
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclGetUniqueId(identifier: *mut [u8; 128]) -> c_int {
    enter("ncclGetUniqueId", || put(identifier, mesh::identifier()?))
}

/// `ncclUniqueId`, which is passed by value.
#[repr(C)]
pub struct UniqueId([u8; 128]);

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclCommInitRankConfig(
    comm: *mut *mut c_void,
    world: c_int,
    identifier: UniqueId,
    rank: c_int,
    config: *const Config,
) -> c_int {
    enter("ncclCommInitRankConfig", || {
        // SAFETY: the caller promises a configuration of the size that it names.
        unsafe { communicator::check_config(config) }?;
        // SAFETY: the caller keeps `comm` writable for as long as the communicator lives.
        unsafe { communicator::create(comm, world, &identifier.0, rank) }
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclCommGetAsyncError(comm: *mut c_void, code: *mut c_int) -> c_int {
    enter("ncclCommGetAsyncError", || {
        put(code, communicator::find(comm)?.state())
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclCommFinalize(comm: *mut c_void) -> c_int {
    enter("ncclCommFinalize", || communicator::finalize(comm))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclCommDestroy(comm: *mut c_void) -> c_int {
    enter("ncclCommDestroy", || communicator::destroy(comm))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclCommAbort(comm: *mut c_void) -> c_int {
    enter("ncclCommAbort", || communicator::abort(comm))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclCommWindowRegister(
    comm: *mut c_void,
    address: u64,
    bytes: usize,
    window: *mut *mut c_void,
    flags: c_int,
) -> c_int {
    enter("ncclCommWindowRegister", || {
        communicator::register(comm, address, bytes, window, flags)
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclCommWindowDeregister(comm: *mut c_void, window: *mut c_void) -> c_int {
    enter("ncclCommWindowDeregister", || {
        communicator::deregister(comm, window)
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclGroupStart() -> c_int {
    enter("ncclGroupStart", || {
        group::start();
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclGroupEnd() -> c_int {
    enter("ncclGroupEnd", group::end)
}

/// Exports operations. Each entry gives the name, the parameters before the communicator, and the operation.
macro_rules! operations {
    ($( $symbol:ident($($parameter:ident: $type:ty),*) = $operation:expr; )*) => {$(
        #[unsafe(no_mangle)]
        #[allow(clippy::too_many_arguments, reason = "NCCL's signature")]
        pub unsafe extern "C" fn $symbol(
            $($parameter: $type,)*
            comm: *mut c_void,
            stream: u64,
        ) -> c_int {
            enter(stringify!($symbol), || {
                group::add(stringify!($symbol), $operation, comm, stream)
            })
        }
    )*};
}

const fn operation(
    kind: Kind,
    source: u64,
    destination: u64,
    count: usize,
    element: c_int,
) -> Operation {
    Operation {
        kind,
        source,
        destination,
        count,
        element,
        reduce: 0,
        peer: 0,
    }
}

/// NCCL and RCCL spell this function differently, and neither has the other's spelling.
fn all_to_all(
    spelling: Spelling,
    source: u64,
    destination: u64,
    count: usize,
    element: c_int,
) -> Result<Operation> {
    if spelling != driver::spelling() {
        driver::violation(&format!("this function is {spelling:?}'s"));
        return Err(Code::INVALID_USAGE);
    }
    Ok(operation(
        Kind::AllToAll,
        source,
        destination,
        count,
        element,
    ))
}

operations! {
    ncclAllReduce(source: u64, destination: u64, count: usize, element: c_int, reduce: c_int) =
        Operation { reduce, ..operation(Kind::AllReduce, source, destination, count, element) };
    ncclReduce(source: u64, destination: u64, count: usize, element: c_int, reduce: c_int, peer: c_int) =
        Operation { reduce, peer, ..operation(Kind::Reduce, source, destination, count, element) };
    ncclBroadcast(source: u64, destination: u64, count: usize, element: c_int, peer: c_int) =
        Operation { peer, ..operation(Kind::Broadcast, source, destination, count, element) };
    ncclAllGather(source: u64, destination: u64, count: usize, element: c_int) =
        operation(Kind::AllGather, source, destination, count, element);
    ncclReduceScatter(source: u64, destination: u64, count: usize, element: c_int, reduce: c_int) =
        Operation { reduce, ..operation(Kind::ReduceScatter, source, destination, count, element) };
    ncclAlltoAll(source: u64, destination: u64, count: usize, element: c_int) =
        all_to_all(Spelling::Nccl, source, destination, count, element)?;
    ncclAllToAll(source: u64, destination: u64, count: usize, element: c_int) =
        all_to_all(Spelling::Rccl, source, destination, count, element)?;
    ncclSend(source: u64, count: usize, element: c_int, peer: c_int) =
        Operation { peer, ..operation(Kind::Send, source, 0, count, element) };
    ncclRecv(destination: u64, count: usize, element: c_int, peer: c_int) =
        Operation { peer, ..operation(Kind::Receive, 0, destination, count, element) };
}
