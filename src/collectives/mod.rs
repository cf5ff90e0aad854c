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

pub(crate) mod call;
pub(crate) mod check;
pub(crate) mod copy_engine;
pub(crate) mod exchange;
pub(crate) mod explain;
pub(crate) mod launch;
pub(crate) mod multicast;
pub(crate) mod parts;
pub(crate) mod plan;
