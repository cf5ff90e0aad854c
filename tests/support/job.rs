//! Jobs of tests: their names, and their ranks.

use std::sync::atomic::{AtomicU32, Ordering};
use symmem::backends::Selection;
use symmem::{Builder, LaunchEnvironment};

/// Returns a unique job name.
pub fn job(name: &str) -> String {
    static JOBS: AtomicU32 = AtomicU32::new(0);
    let number = JOBS.fetch_add(1, Ordering::Relaxed);
    format!("{name}-{}-{number}", std::process::id())
}

/// Returns the builder of a rank on the backend that the variable names, or on the host if it is not set.
pub fn rank(variable: &str, rank: u32, world: u32, job: &str) -> Builder {
    let backend = std::env::var(variable).unwrap_or_else(|_| "host".into());
    Builder::new()
        .launch(LaunchEnvironment::local(rank, world, job).unwrap())
        .backend(Selection::Named(backend))
}
