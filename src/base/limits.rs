//! Sizes and intervals that several folders agree on.

use std::time::Duration;

/// Allocations that can be live, or dropped and not yet released by all ranks, at once.
pub const MAX_ALLOCATIONS: usize = 4096;

/// How often each rank's watcher looks at its peers, and says that it runs.
pub const WATCH_INTERVAL: Duration = Duration::from_millis(50);
