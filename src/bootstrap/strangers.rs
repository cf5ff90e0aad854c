//! Connections that have shown nothing of a rank's: how many may be open at once, and one line for all that were refused.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::time::{Duration, Instant};

use rustix::process::{Resource, getrlimit};

/// The most strangers, however many descriptors there are: each costs time whenever the store polls.
const MOST: u64 = 1024;
/// The fewest: with less than these, a rank could be pushed out before it has said a word.
const FEWEST: u64 = 4;

/// The shortest time between two lines about refused connections.
const INTERVAL: Duration = Duration::from_secs(60);

/// Returns how many connections may be open that have shown nothing of one of `world` ranks: a quarter of the file
/// descriptors that this process may still open, so that no stranger takes those that its ranks and its own work need.
pub(super) fn limit(world: u32) -> usize {
    let allowed = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    let open = std::fs::read_dir("/proc/self/fd").map_or(0, |open| open.count() as u64);
    limit_of(allowed, open, world)
}

fn limit_of(allowed: u64, open: u64, world: u32) -> usize {
    // A connection of each rank, and a descriptor from each.
    let needed = open.saturating_add(2 * u64::from(world));
    let free = allowed.saturating_sub(needed);
    (free / 4).clamp(FEWEST, MOST) as usize
}

/// Connections refused since the last line about them.
#[derive(Debug, Default)]
pub(super) struct Refusals {
    /// How many, by reason.
    counts: BTreeMap<&'static str, u64>,
    /// The last one's other end, if it is known.
    last: Option<String>,
    reported: Option<Instant>,
}

impl Refusals {
    /// Counts a connection that was refused for `reason`, and whose other end is `from`.
    pub(super) fn count(&mut self, reason: &'static str, from: Option<String>) {
        *self.counts.entry(reason).or_default() += 1;
        self.last = from.or(self.last.take());
    }

    /// Returns a line about the connections refused since the last one, if there are any: the first time at once, then at
    /// most one a minute, and one at the end of the store.
    pub(super) fn line(&mut self, now: Instant, is_end: bool) -> Option<String> {
        let is_due = self.reported.is_none_or(|last| now >= last + INTERVAL);
        if self.counts.is_empty() || !(is_due || is_end) {
            return None;
        }
        self.reported = Some(now);
        let total: u64 = self.counts.values().sum();
        let mut line = format!(
            "refused {total} connection{} that did not prove to be a rank's:",
            if total == 1 { "" } else { "s" }
        );
        for (index, (reason, count)) in std::mem::take(&mut self.counts).iter().enumerate() {
            let separator = if index == 0 { "" } else { ";" };
            // Writing to a string does not fail.
            let _ = write!(line, "{separator} {count} because {reason}");
        }
        if let Some(last) = self.last.take() {
            let _ = write!(line, "; the last was {last}");
        }
        Some(line)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strangers_may_take_a_quarter_of_the_descriptors_that_are_free() {
        assert_eq!(limit_of(1024, 100, 8), 227);
        assert_eq!(limit_of(64, 10, 2), 12);
        assert_eq!(limit_of(64, 64, 2), 4, "a rank must get in");
        assert_eq!(limit_of(u64::MAX, 0, 72), 1024);
        assert_eq!(limit_of(1024, u64::MAX, u32::MAX), 4);
    }

    #[test]
    fn a_thousand_refusals_are_one_line_and_then_one_a_minute() {
        let start = Instant::now();
        let mut refusals = Refusals::default();
        assert_eq!(refusals.line(start, true), None, "nothing to say");
        refusals.count("it sent nothing", Some("user 7".into()));
        let line = "refused 1 connection that did not prove to be a rank's: 1 because it sent nothing; the last was user 7";
        assert_eq!(refusals.line(start, false).as_deref(), Some(line));
        for _ in 0..1000 {
            refusals.count("it sent nothing", None);
            assert_eq!(refusals.line(start + INTERVAL / 2, false), None);
        }
        refusals.count("another reason", None);
        let line = "refused 1001 connections that did not prove to be a rank's: 1 because another reason; 1000 because it \
                    sent nothing";
        assert_eq!(
            refusals.line(start + INTERVAL, false).as_deref(),
            Some(line)
        );
        refusals.count("it sent nothing", None);
        assert_eq!(refusals.line(start + INTERVAL, false), None);
        assert!(
            refusals.line(start + INTERVAL, true).is_some(),
            "at the end"
        );
        assert_eq!(refusals.line(start + 2 * INTERVAL, true), None);
    }
}
