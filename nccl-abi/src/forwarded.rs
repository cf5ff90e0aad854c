//! Functions that NCCL alone does.

use crate::abi::{Code, Comm, Config, Stream, Team, UniqueId};
use crate::call::{Call, Kind};
use crate::failure::{Failure, of_nccl, run};
use crate::library::function;
use crate::member::check;
use crate::unserved;
use std::ffi::{c_int, c_void};

/// Exports functions that call NCCL's of the same name. Those in the first list are on a communicator, which must be one of
/// NCCL's.
macro_rules! forwarded {
    (
        on $comm:ident { $($on:ident($($argument:ident: $type:ty),*);)* }
        free { $($free:ident($($other:ident: $other_type:ty),*);)* }
    ) => {
        $(
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $on($($argument: $type),*) -> Code {
                run(stringify!($on), || {
                    check(stringify!($on), $comm)?;
                    let nccl = function(stringify!($on), |table| table.$on)?;
                    // SAFETY: the caller keeps NCCL's rules, and the communicator is NCCL's.
                    unsafe {
                        unserved::add_forwarded($comm, stringify!($on));
                        of_nccl(nccl($($argument),*))
                    }
                })
            }
        )*
        $(
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $free($($other: $other_type),*) -> Code {
                run(stringify!($free), || {
                    let nccl = function(stringify!($free), |table| table.$free)?;
                    // SAFETY: the caller keeps NCCL's rules.
                    of_nccl(unsafe { nccl($($other),*) })
                })
            }
        )*
    };
}

forwarded! {
    on comm {
        ncclCommSplit(comm: Comm, color: c_int, key: c_int, made: *mut Comm, config: *mut Config);
        ncclCommShrink(comm: Comm, left_out: *mut c_int, count: c_int, made: *mut Comm, config: *mut Config, flags: c_int);
        ncclCommRevoke(comm: Comm, flags: c_int);
        ncclDevCommCreate(comm: Comm, requirements: *const c_void, made: *mut c_void);
        ncclDevCommDestroy(comm: Comm, made: *const c_void);
        ncclGinBarrierCreateRequirement(comm: Comm, team: Team, count: c_int, handle: *mut c_void, requirement: *mut c_void);
        ncclRedOpCreatePreMulSum(operator: *mut c_int, factor: *mut c_void, element: c_int, residence: c_int, comm: Comm);
        ncclRedOpDestroy(operator: c_int, comm: Comm);
        ncclGather(source: *const c_void, destination: *mut c_void, count: usize, element: c_int, root: c_int, comm: Comm, stream: Stream);
        ncclScatter(source: *const c_void, destination: *mut c_void, count: usize, element: c_int, root: c_int, comm: Comm, stream: Stream);
        ncclSend(source: *const c_void, count: usize, element: c_int, peer: c_int, comm: Comm, stream: Stream);
        ncclRecv(destination: *mut c_void, count: usize, element: c_int, peer: c_int, comm: Comm, stream: Stream);
        ncclAllToAllv(source: *const c_void, counts: *const usize, places: *const usize, destination: *mut c_void, more_counts: *const usize, more_places: *const usize, element: c_int, comm: Comm, stream: Stream);
    }
    free {
        ncclCommInitAll(comms: *mut Comm, count: c_int, devices: *const c_int);
        ncclCommInitRankScalable(comm: *mut Comm, world: c_int, rank: c_int, count: c_int, identifiers: *mut UniqueId, config: *mut Config);
        ncclMemAlloc(address: *mut *mut c_void, bytes: usize);
        ncclMemFree(address: *mut c_void);
        ncclLsaBarrierCreateRequirement(team: Team, count: c_int, handle: *mut c_void, requirement: *mut c_void);
        ncclLLA2ACreateRequirement(blocks: c_int, slots: c_int, handle: *mut c_void, requirement: *mut c_void);
    }
}

/// Lets NCCL do a collective.
///
/// # Errors
/// If NCCL is not there, does not know the communicator or lacks the function; NCCL's.
///
/// # Safety
/// The arguments keep NCCL's rules.
pub(crate) unsafe fn by_nccl(call: &Call) -> Result<(), Failure> {
    let Call {
        kind,
        source,
        destination,
        count,
        element,
        reduce,
        root,
        comm,
        stream,
    } = *call;
    let name = kind.name();
    check(name, comm)?;
    macro_rules! nccl {
        ($function:ident($($argument:expr),*)) => {{
            let nccl = function(name, |table| table.$function)?;
            // SAFETY: guaranteed by the caller.
            unsafe { nccl(source, destination, count, element, $($argument,)* comm, stream) }
        }};
    }
    of_nccl(match kind {
        Kind::AllReduce => nccl!(ncclAllReduce(reduce)),
        Kind::Reduce => nccl!(ncclReduce(reduce, root)),
        Kind::ReduceScatter => nccl!(ncclReduceScatter(reduce)),
        Kind::AllGather => nccl!(ncclAllGather()),
        Kind::Broadcast => nccl!(ncclBroadcast(root)),
        Kind::AllToAll => nccl!(ncclAlltoAll()),
    })
}
