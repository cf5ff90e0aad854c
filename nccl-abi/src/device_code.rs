//! Functions of `nccl_device.h`, for kernels of the program's own: NCCL alone does them.

use crate::abi::{Comm, Team};
use crate::failure::keep;
use crate::library::function;
use crate::member::check;
use crate::reentry;
use std::ffi::c_int;

/// Exports functions that return a value rather than a code: the one given here without NCCL, or on a communicator that NCCL
/// does not know.
macro_rules! values {
    ($($name:ident($($argument:ident: $type:ty),*) -> $value:ty: $check:expr, $without:expr;)*) => {
        $(
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $name($($argument: $type),*) -> $value {
                let _entered = reentry::enter();
                let nccl = $check.and_then(|()| function(stringify!($name), |table| table.$name));
                match nccl {
                    // SAFETY: the caller keeps NCCL's rules.
                    Ok(nccl) => unsafe { nccl($($argument),*) },
                    Err(failure) => {
                        keep(&failure.message);
                        $without
                    }
                }
            }
        )*
    };
}
values! {
    ncclTeamWorld(comm: Comm) -> Team: check("ncclTeamWorld", comm), Team::default();
    ncclTeamLsa(comm: Comm) -> Team: check("ncclTeamLsa", comm), Team::default();
    ncclTeamRail(comm: Comm) -> Team: check("ncclTeamRail", comm), Team::default();
    ncclTeamRankToWorld(comm: Comm, team: Team, rank: c_int) -> c_int: check("ncclTeamRankToWorld", comm), -1;
    ncclTeamRankToLsa(comm: Comm, team: Team, rank: c_int) -> c_int: check("ncclTeamRankToLsa", comm), -1;
    ncclLLA2ACalcSlots(elements: c_int, element_bytes: c_int) -> c_int: Ok(()), 0;
}
