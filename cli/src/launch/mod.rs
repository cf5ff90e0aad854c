//! The launcher behind `symmem run`: starts the ranks of a job on this node and waits until all have ended.
//!
//! [`run`] starts a supervisor, a process that calls [`supervise`] and starts the ranks. The supervisor adopts the
//! orphans among their descendants (`PR_SET_CHILD_SUBREAPER`), so that nothing a rank started escapes it, and it
//! outlives a launcher that is killed.

mod copier;
mod event;
mod exits;
mod first_failure;
mod job;
mod link;
mod messages;
mod options;
mod processes;
mod rank;
mod run;
mod signals;
mod state;
mod supervisor;

pub use options::{GRACE, NodeOptions, REACTION, RunOptions, SUPERVISOR_ARGUMENT};
pub use run::run;
pub use supervisor::supervise;
