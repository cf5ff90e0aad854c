//! Functions that symmem takes part in.

use crate::abi::{self, Code, Comm, Config, SUCCESS, Stream, UniqueId};
use crate::call::{Call, Kind};
use crate::failure::{self, Failure, of_nccl, run};
use crate::join::{self, Join};
use crate::library::{self, function};
use crate::member::check;
use crate::{group, member, unserved};
use std::ffi::{c_char, c_int, c_void};

/// Stores a result.
///
/// # Safety
/// `place` is null, or valid for a write.
unsafe fn store<T>(place: *mut T, value: T) -> Result<(), Failure> {
    if place.is_null() {
        let message = "the result has no place to be stored in";
        return Err(Failure::new(abi::INVALID_ARGUMENT, message));
    }
    // SAFETY: guaranteed by the caller.
    unsafe { place.write(value) };
    Ok(())
}

/// Tells this library from NCCL itself.
#[unsafe(no_mangle)]
pub extern "C" fn symmem_nccl_serves(comm: Comm) -> c_int {
    c_int::from(member::find(comm).is_some())
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclGetVersion(version: *mut c_int) -> Code {
    run("ncclGetVersion", || {
        match function("ncclGetVersion", |table| table.ncclGetVersion) {
            // SAFETY: the caller keeps NCCL's rules.
            Ok(nccl) => of_nccl(unsafe { nccl(version) }),
            // SAFETY: as above.
            Err(_) => unsafe { store(version, abi::VERSION) },
        }
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn ncclGetErrorString(code: Code) -> *const c_char {
    abi::text(code).as_ptr()
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclGetLastError(comm: Comm) -> *const c_char {
    if let Some(message) = failure::last() {
        return message;
    }
    match function("ncclGetLastError", |table| table.ncclGetLastError) {
        // SAFETY: the caller keeps NCCL's rules, and the communicator is NCCL's.
        Ok(nccl) if check("ncclGetLastError", comm).is_ok() => unsafe { nccl(comm) },
        _ => c"".as_ptr(),
    }
}

#[unsafe(no_mangle)]
pub extern "C" fn ncclResetDebugInit() {}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclGetUniqueId(identifier: *mut UniqueId) -> Code {
    run("ncclGetUniqueId", || {
        // SAFETY: the caller keeps NCCL's rules.
        unsafe { store(identifier, join::identifier()?) }
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclCommInitRank(
    comm: *mut Comm,
    world: c_int,
    identifier: UniqueId,
    rank: c_int,
) -> Code {
    run("ncclCommInitRank", || {
        let join = Join::new(comm, identifier, rank, world)?;
        let nccl = library::nccl().map(|nccl| {
            // SAFETY: the caller keeps NCCL's rules.
            move || unsafe { (nccl.table.ncclCommInitRank)(comm, world, identifier, rank) }
        });
        // SAFETY: as above.
        unsafe { group::join(join, nccl) }
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclCommInitRankConfig(
    comm: *mut Comm,
    world: c_int,
    identifier: UniqueId,
    rank: c_int,
    config: *mut Config,
) -> Code {
    const NAME: &str = "ncclCommInitRankConfig";
    run(NAME, || {
        let nccl = function(NAME, |table| table.ncclCommInitRankConfig);
        // SAFETY: the caller keeps NCCL's rules.
        let make = |nccl: unsafe extern "C" fn(_, _, _, _, _) -> Code| unsafe {
            nccl(comm, world, identifier, rank, config)
        };
        // SAFETY: the caller passes null or a configuration.
        if unsafe { config.as_ref() }.is_some_and(Config::is_non_blocking) {
            let code = make(nccl?);
            group::early();
            return of_nccl(code);
        }
        let join = Join::new(comm, identifier, rank, world)?;
        // SAFETY: the caller keeps the place.
        unsafe { group::join(join, nccl.map(|nccl| move || make(nccl))) }
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclCommFinalize(comm: Comm) -> Code {
    run("ncclCommFinalize", || match member::find(comm) {
        Some(member) if !member.has_nccl => Ok(()),
        _ => {
            let nccl = function("ncclCommFinalize", |table| table.ncclCommFinalize)?;
            // SAFETY: the caller keeps NCCL's rules.
            of_nccl(unsafe { nccl(comm) })
        }
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclCommDestroy(comm: Comm) -> Code {
    run("ncclCommDestroy", || {
        if comm.is_null() {
            return Ok(());
        }
        let member = member::take(comm);
        let is_ours = member.as_ref().is_some_and(|member| !member.has_nccl);
        let was_served = member.is_some();
        if let Some(member) = member {
            member::ended(&member);
            member::leave(member);
        }
        if is_ours {
            // SAFETY: it was a handle of ours, and was taken out of the table just now.
            unsafe { join::forget(comm) };
            return Ok(());
        }
        let nccl = function("ncclCommDestroy", |table| Some(table.ncclCommDestroy))?;
        // SAFETY: the caller keeps NCCL's rules, and the communicator is NCCL's.
        unsafe {
            if !was_served {
                unserved::report_end(comm);
            }
            of_nccl(nccl(comm))
        }
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclCommAbort(comm: Comm) -> Code {
    run("ncclCommAbort", || {
        let Some(member) = member::take(comm) else {
            let nccl = function("ncclCommAbort", |table| table.ncclCommAbort)?;
            // SAFETY: the caller keeps NCCL's rules, and the communicator is NCCL's.
            return unsafe {
                unserved::report_end(comm);
                of_nccl(nccl(comm))
            };
        };
        member::ended(&member);
        // Both libraries' kernels may stand on one stream, so both are told before either's are waited for.
        member.stop();
        let aborted = match member.has_nccl {
            true => function("ncclCommAbort", |table| table.ncclCommAbort)
                // SAFETY: the caller keeps NCCL's rules.
                .and_then(|nccl| of_nccl(unsafe { nccl(comm) })),
            false => {
                // SAFETY: it was a handle of ours, and was taken out of the table just now.
                unsafe { join::forget(comm) };
                Ok(())
            }
        };
        member::abandon(member);
        aborted
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclCommGetAsyncError(comm: Comm, code: *mut Code) -> Code {
    run("ncclCommGetAsyncError", || {
        let member = member::find(comm);
        if let Some(Err(error)) = member.as_ref().map(|member| member.communicator.check()) {
            let failure = Failure::from(error);
            failure::keep(&failure.message);
            // SAFETY: the caller keeps NCCL's rules.
            return unsafe { store(code, failure.code) };
        }
        if member.is_some_and(|member| !member.has_nccl) {
            // SAFETY: as above.
            return unsafe { store(code, SUCCESS) };
        }
        let nccl = function("ncclCommGetAsyncError", |table| table.ncclCommGetAsyncError)?;
        // SAFETY: as above.
        let told = unsafe {
            of_nccl(nccl(comm, code))?;
            code.as_ref()
        };
        // The message of an error that NCCL reports is NCCL's, not that of an older failure of symmem.
        if told.is_some_and(|code| ![SUCCESS, abi::IN_PROGRESS].contains(code)) {
            failure::keep("");
        }
        Ok(())
    })
}

/// Exports functions that tell a number of a communicator.
macro_rules! numbers {
    ($($name:ident = |$member:ident| $number:expr;)*) => {
        $(
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $name(comm: Comm, number: *mut c_int) -> Code {
                run(stringify!($name), || {
                    if let Some($member) = member::find(comm) {
                        let communicator = &$member.communicator;
                        let $member = communicator;
                        // SAFETY: the caller keeps NCCL's rules. A world and a host's devices are counted in few bits.
                        return unsafe { store(number, $number as c_int) };
                    }
                    let nccl = function(stringify!($name), |table| table.$name)?;
                    // SAFETY: the caller keeps NCCL's rules.
                    of_nccl(unsafe { nccl(comm, number) })
                })
            }
        )*
    };
}
numbers! {
    ncclCommCount = |communicator| communicator.world_size();
    ncclCommUserRank = |communicator| communicator.rank();
    ncclCommCuDevice = |communicator| communicator.device().ordinal;
}

/// Registration makes NCCL faster, and symmem's calls need none: without NCCL it is nothing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclCommRegister(
    comm: Comm,
    address: *mut c_void,
    bytes: usize,
    handle: *mut *mut c_void,
) -> Code {
    run("ncclCommRegister", || {
        if check("ncclCommRegister", comm).is_err() {
            // SAFETY: the caller keeps NCCL's rules.
            return unsafe { store(handle, address) };
        }
        let nccl = function("ncclCommRegister", |table| table.ncclCommRegister)?;
        // SAFETY: as above.
        of_nccl(unsafe { nccl(comm, address, bytes, handle) })
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclCommDeregister(comm: Comm, handle: *mut c_void) -> Code {
    run("ncclCommDeregister", || {
        if check("ncclCommDeregister", comm).is_err() {
            return Ok(());
        }
        let nccl = function("ncclCommDeregister", |table| table.ncclCommDeregister)?;
        // SAFETY: the caller keeps NCCL's rules.
        of_nccl(unsafe { nccl(comm, handle) })
    })
}

/// As NCCL does without symmetric windows, stores a null window if there is no NCCL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclCommWindowRegister(
    comm: Comm,
    address: *mut c_void,
    bytes: usize,
    window: *mut *mut c_void,
    flags: c_int,
) -> Code {
    run("ncclCommWindowRegister", || {
        if check("ncclCommWindowRegister", comm).is_err() {
            // SAFETY: the caller keeps NCCL's rules.
            return unsafe { store(window, std::ptr::null_mut()) };
        }
        let nccl = function("ncclCommWindowRegister", |table| {
            table.ncclCommWindowRegister
        })?;
        // SAFETY: as above.
        of_nccl(unsafe { nccl(comm, address, bytes, window, flags) })
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclCommWindowDeregister(comm: Comm, window: *mut c_void) -> Code {
    const NAME: &str = "ncclCommWindowDeregister";
    run(NAME, || {
        if check(NAME, comm).is_err() {
            return Ok(());
        }
        let nccl = function(NAME, |table| table.ncclCommWindowDeregister)?;
        // SAFETY: the caller keeps NCCL's rules.
        of_nccl(unsafe { nccl(comm, window) })
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn ncclGroupStart() -> Code {
    run("ncclGroupStart", group::start)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclGroupEnd() -> Code {
    // SAFETY: the caller keeps NCCL's rules in each call of the group.
    run("ncclGroupEnd", || unsafe { group::end() })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclGroupSimulateEnd(information: *mut c_void) -> Code {
    // SAFETY: the caller keeps NCCL's rules, also in each call of the group.
    run("ncclGroupSimulateEnd", || unsafe {
        group::simulate_end(information)
    })
}

/// Exports a collective: its function, its kind, and its arguments.
macro_rules! collectives {
    ($($name:ident: $kind:ident($($argument:ident: $type:ty),*) with $reduce:expr, $root:expr;)*) => {
        $(
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $name(
                source: *const c_void,
                destination: *mut c_void,
                count: usize,
                element: c_int,
                $($argument: $type,)*
                comm: Comm,
                stream: Stream,
            ) -> Code {
                let call = Call {
                    kind: Kind::$kind,
                    source,
                    destination,
                    count,
                    element,
                    reduce: $reduce,
                    root: $root,
                    comm,
                    stream,
                };
                // SAFETY: the caller keeps NCCL's rules.
                unsafe { group::dispatch(call) }
            }
        )*
    };
}
collectives! {
    ncclAllReduce: AllReduce(reduce: c_int) with reduce, 0;
    ncclReduce: Reduce(reduce: c_int, root: c_int) with reduce, root;
    ncclReduceScatter: ReduceScatter(reduce: c_int) with reduce, 0;
    ncclAllGather: AllGather() with Call::MOVES, 0;
    ncclBroadcast: Broadcast(root: c_int) with Call::MOVES, root;
    ncclAlltoAll: AllToAll() with Call::MOVES, 0;
}

/// RCCL's spelling.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclAllToAll(
    source: *const c_void,
    destination: *mut c_void,
    count: usize,
    element: c_int,
    comm: Comm,
    stream: Stream,
) -> Code {
    // SAFETY: the caller keeps RCCL's rules.
    unsafe { ncclAlltoAll(source, destination, count, element, comm, stream) }
}

/// The old broadcast, in place.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclBcast(
    buffer: *mut c_void,
    count: usize,
    element: c_int,
    root: c_int,
    comm: Comm,
    stream: Stream,
) -> Code {
    // SAFETY: the caller keeps NCCL's rules.
    unsafe { ncclBroadcast(buffer, buffer, count, element, root, comm, stream) }
}
