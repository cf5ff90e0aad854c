//! Instants at which waits end.

use std::time::{Duration, Instant};

/// The longest deadline, a century: in effect none, and every clock can represent it.
const FOREVER: Duration = Duration::from_secs(100 * 365 * 24 * 3600);

/// Returns the instant `deadline` after `start`, at most a century. [`Instant`] is monotonic, so a system clock that is
/// set back or forth moves no deadline.
pub fn after(start: Instant, deadline: Duration) -> Instant {
    start + deadline.min(FOREVER)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_deadline_that_no_clock_can_express_is_a_century() {
        let now = Instant::now();
        assert_eq!(after(now, Duration::MAX), now + FOREVER);
        let second = Duration::from_secs(1);
        assert_eq!(after(now, second), now + second);
    }
}
