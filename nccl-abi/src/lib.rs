//! symmem behind NCCL's C functions: a library that programs load in NCCL's place.
//!
//! It looks for NCCL or RCCL itself and opens it beside (`library`). A communicator's handle is that library's own, so
//! every function that is not here still finds what it expects; a table says which handles symmem serves too (`member`).
//! Of the calls on these, symmem does the collectives that it does faster, on any memory (`perform`), and the other
//! library does the rest. All ranks come to the same choice, since it follows from what they agreed on and from operation, element,
//! reduction and size alone.
//!
//! Exported: `exports` has what symmem takes part in, `forwarded` and `device_code` what it passes on unread.

#![allow(
    missing_docs,
    non_snake_case,
    clippy::missing_safety_doc,
    reason = "NCCL's functions, as nccl.h documents them"
)]

mod abi;
mod call;
mod choice;
mod counts;
mod device;
mod device_code;
mod element;
mod exit;
mod exports;
mod failure;
mod forwarded;
mod group;
mod identifier;
mod join;
mod library;
mod member;
mod perform;
mod reentry;
mod report;
mod unserved;

pub use device_code::*;
pub use exports::*;
pub use forwarded::*;
