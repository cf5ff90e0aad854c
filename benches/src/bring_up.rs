//! The time to set up a communicator, and the driver's share of it.

use super::{Result, exchange};
use std::time::Duration;
use symmem::Communicator;

/// Returns a sentence for the report from each rank's times: `probe`, the driver's first call, and `total`,
/// from that call until the communicator was up. Collective; blocks.
///
/// # Errors
/// If the ranks cannot exchange their times, for example because one does not call this.
pub fn note(communicator: &Communicator, probe: Duration, total: Duration) -> Result<String> {
    let opened = communicator.device_open_time();
    let own = [total, probe, opened].map(|time| time.as_secs_f64());
    let all = exchange::all_gather(communicator, &own)?;
    Ok(sentence(&all))
}

/// Formats the times of the slowest rank in each part.
fn sentence(all: &[[f64; 3]]) -> String {
    let most = |part: usize| all.iter().map(|own| own[part]).fold(0.0, f64::max);
    let driver = all.iter().map(|own| own[1] + own[2]).fold(0.0, f64::max);
    format!(
        "{} ranks were up after {:.3} s: the driver's own initialization took {driver:.3} s \
         (first call {:.3}, opening the device {:.3}), the rest {:.3} s",
        all.len(),
        most(0),
        most(1),
        most(2),
        most(0) - driver
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_slowest_rank_counts_and_the_rest_is_ours() {
        let text = sentence(&[[1.0, 0.2, 0.3], [1.1, 0.1, 0.6]]);
        assert!(text.contains("2 ranks were up after 1.100 s"), "{text}");
        assert!(text.contains("initialization took 0.700 s"), "{text}");
        assert!(text.ends_with("the rest 0.400 s"), "{text}");
    }
}
