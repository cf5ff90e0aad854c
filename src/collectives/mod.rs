//! Collectives: operations of a group of ranks, enqueued on a stream.
//!
//! `call` is the public face; `launch` checks a call and submits it; `selector` chooses algorithm and
//! geometry, and `explain` says what it would choose; `plan` turns a call into what a backend takes;
//! `slots` is the memory by which members keep in step, `inbox` what they push into; `group` is a subset
//! of ranks, `exchange` sends and receives, `parts` those of an all-to-all, `copy_engine` what needs no
//! compute unit, on the side streams of `lanes`;
//! `multicast` what goes by addresses behind which all members lie; `vendor` the vendor's library;
//! `check` compares calls in debug mode.
//!
//! Ranges are *symmetric*: every member passes the same part of the same buffer, except where a
//! method says otherwise. Every member makes the same calls in the same order on a channel; calls on
//! different channels do not wait for each other.

mod call;
mod check;
mod copy_engine;
mod exchange;
mod explain;
mod group;
mod inbox;
mod lanes;
mod launch;
mod multicast;
mod parts;
mod plan;
mod selector;
mod slots;
mod state;
mod vendor;

pub use call::CollectiveOptions;
pub use exchange::Exchange;
pub use explain::CollectiveCall;
pub use group::Group;
pub(crate) use lanes::Lanes;
pub(crate) use launch::{GatherCall, keep};
pub use multicast::reduces as multicast_reduces;
pub use selector::Choice;
pub(crate) use selector::Selector;
pub use slots::COLLECTIVE_CHANNELS;
pub(crate) use state::State;
pub use vendor::VendorLibrary;
pub(crate) use vendor::deregister;
pub(crate) use vendor::messages as exchange_by_vendor;

use crate::backend::abi::ElementType;
use crate::element::{Element, F8E4M3, F8E5M2};

/// What can be reduced: the types that vendors' libraries reduce, and 16-bit integers.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be reduced by a collective",
    label = "has no reduction",
    note = "integers of 8 to 64 bits, `f32`, `f64`, `half::f16`, `half::bf16`, `F8E4M3` and `F8E5M2` can be \
            reduced; collectives that only move elements, like `all_gather`, take any `Element`"
)]
pub trait Reducible: Element {
    /// Its name across the plugin table.
    const TYPE: ElementType;
}

macro_rules! reducible {
    ($($type:ty => $name:ident,)*) => {$(
        impl Reducible for $type {
            const TYPE: ElementType = ElementType::$name;
        }
    )*};
}
reducible! {
    i8 => I8, u8 => U8, i16 => I16, u16 => U16, i32 => I32, u32 => U32, i64 => I64, u64 => U64,
    half::f16 => F16, half::bf16 => BF16, f32 => F32, f64 => F64,
    F8E4M3 => F8_E4M3, F8E5M2 => F8_E5M2,
}

/// Who does a collective.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Provider {
    /// Ours, and the vendor's library where we have nothing better.
    #[default]
    Automatic,
    /// Ours only.
    Own,
    /// The vendor's library only, over whatever memory.
    Vendor,
    /// The vendor's library only, over its communicator with symmetric windows; buffers that were not
    /// registered with it are moved as [`Provider::Vendor`] does.
    VendorWindows,
}
