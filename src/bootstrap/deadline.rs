//! Deadlines of waits.

use std::time::{Duration, Instant};

use rustix::event::Timespec;

pub(super) use crate::base::deadline::after;

/// Returns the time left until `instant` as `poll` takes it; a day if there is no instant.
pub(super) fn time_until(instant: Option<Instant>) -> Timespec {
    let day = Duration::from_secs(24 * 3600);
    let left = instant.map_or(day, |instant| {
        instant.saturating_duration_since(Instant::now()).min(day)
    });
    Timespec {
        tv_sec: left.as_secs() as i64,
        tv_nsec: i64::from(left.subsec_nanos()) as _,
    }
}

/// Returns `duration` in microseconds as messages carry it, at most [`u64::MAX`].
pub(super) fn microseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}
