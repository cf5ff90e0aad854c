//! Collectives: operations of a group of ranks, enqueued on a queue.
//!
//! A call passes through `request` (what the caller requests), `compare` (debug mode), `select` and `chosen`
//! (the selector's choice), `plan` and `multicast` (addresses and kernel arguments) and `run` (kernels, copy engines, NCCL).
//! `options` holds a call's options, `api` the verbs, `exchange` sends and receives, `parts` the parts of an
//! all-to-all; `nodes` does all of it for groups that span nodes; `explain` goes the same way and
//! enqueues nothing; `explanation` is its answer.

pub(crate) mod api;
mod chosen;
mod compare;
pub(crate) mod exchange;
pub(crate) mod explain;
pub(crate) mod explanation;
pub(crate) mod multicast;
pub(crate) mod nodes;
pub(crate) mod norm;
pub(crate) mod options;
mod parts;
pub(crate) mod plan;
pub(crate) mod request;
pub(crate) mod run;
pub(crate) mod select;
mod shards;
mod verbs;
