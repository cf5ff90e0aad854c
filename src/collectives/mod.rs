//! Collectives: operations of a group of ranks, enqueued on a queue.
//!
//! A call goes through `request` (what it asks for), `compare` (debug mode), `select` (how it is done), `plan` and
//! `multicast` (addresses and arguments) and `run` (kernels, copy engines, NCCL); `options` say how, `api` has the
//! verbs, `exchange` sends and receives, with the `parts` of an all-to-all, and `explain` asks the selector only.

pub(crate) mod api;
mod compare;
pub(crate) mod exchange;
pub(crate) mod explain;
pub(crate) mod multicast;
pub(crate) mod options;
mod parts;
pub(crate) mod plan;
pub(crate) mod request;
pub(crate) mod run;
pub(crate) mod select;
mod shards;
mod verbs;
