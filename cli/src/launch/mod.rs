//! The launcher behind `symmem run`: starts the ranks of a job on this host and waits until all have ended.

mod copier;
mod event;
mod options;
mod rank;
mod run;
mod signals;
mod supervise;

pub use options::{GRACE, REACTION, RunOptions};
pub use run::run;
