//! The traits for a device that was opened through a table: each method calls its table entry.

use super::abi::*;
use super::cross::Cross;
use super::failure::CallResult;
use super::plugin::PluginBackend;
use super::trait_tables::entries;
use super::{
    CollectiveKernels, Device, Gemm, Multicast, NcclCollectives, RemoteAccess, Signals,
    SymmetricMemory,
};
use std::mem::MaybeUninit;

/// Implements each trait through the entries of its table.
macro_rules! forwards {
    ($(
        $(#[$doc:meta])*
        $table:ident = $field:ident of $trait:ident {
            $( [$($safety:tt)*] fn $name:ident($($argument:ident: $type:ty),*) -> $return:ty; )*
        }
    )*) => {$(
        impl $trait for PluginBackend {
            $(
                $($safety)* fn $name(&self, $($argument: $type),*) -> CallResult<$return> {
                    let Some(entry) = self.tables().$field.$name else {
                        return Err(self.missing_entry(stringify!($name)));
                    };
                    let mut out = MaybeUninit::<<$return as Cross>::C>::uninit();
                    // SAFETY: `self` keeps the instance live, `out` is writable, and the caller meets the trait
                    // method's own conditions.
                    let status = unsafe { entry(self.instance(), $($argument.into_c(),)* out.as_mut_ptr()) };
                    // SAFETY: an entry that returns `OK` has written its result.
                    let result = self.finish(status, stringify!($name), || unsafe { out.assume_init() })?;
                    // SAFETY: no method of the contract returns a pointer, so there is none to be invalid.
                    unsafe { <$return>::from_c(result, stringify!($name)) }
                }
            )*
        }
    )*};
}

entries!(forwards);
