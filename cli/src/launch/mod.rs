//! Starts the ranks of a job on this host and stays with them until all have ended: `symmem run`.

mod copier;
mod event;
mod options;
mod rank;
mod run;
mod signals;
mod supervise;

pub use options::{GRACE, REACTION, RunOptions};
pub use run::run;
