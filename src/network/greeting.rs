//! The first messages between nodes: a world is set up only if they get through.
//!
//! UCX connects when something is sent. Without this, a firewall that drops its packets would show in the first
//! operation only, after the kernel's minutes.

use super::fault::{Cause, Fault};
use super::message::{Header, NO_CHANNEL, kind};
use super::network::Network;
use crate::base::error::{Error, Result};
use crate::base::lock::lock;
use crate::base::placement::Placement;
use std::time::{Duration, Instant};

/// Pause between two looks for answers.
const PAUSE: Duration = Duration::from_micros(200);
/// Pause between two looks for ranks that have died.
const LOOK_INTERVAL: Duration = Duration::from_millis(20);

/// Returns the ranks that a rank greets: one of each other node, so that each pair of hosts is tried, and not each pair of
/// ranks.
fn greeted(placement: &Placement, rank: usize) -> Vec<usize> {
    let others = (0..placement.nodes()).filter(|&node| node != placement.node(rank));
    others
        .map(|node| {
            let members = placement.members(node);
            members[placement.local_rank(rank) % members.len()]
        })
        .collect()
}

/// A greeting under way.
struct Greeting {
    peer: usize,
    /// The count of acknowledgements that covers it.
    count: u64,
}

impl Network {
    /// Sends a message to a rank of each other node, and waits for the answers. Blocks for at most `limit`. To be called by
    /// all ranks after the network was opened: its thread answers.
    ///
    /// # Errors
    /// [`Error::Network`] with the rank and node that cannot be reached, [`Error::PeerDied`], and what else poisons the
    /// communicator.
    pub fn greet(&self, rank: usize, limit: Duration) -> Result<()> {
        let start = Instant::now();
        let mut waiting = self.send_greetings(rank)?;
        let mut looked = start;
        loop {
            self.drive();
            waiting.retain(|one| lock(&self.inbox).acknowledged(one.peer) < one.count);
            let Some(first) = waiting.first() else {
                return Ok(());
            };
            if looked.elapsed() > LOOK_INTERVAL {
                looked = Instant::now();
                self.health.watch_once();
            }
            self.health.check()?;
            if start.elapsed() > limit {
                return Err(self.unreachable(rank, first.peer, start.elapsed()));
            }
            std::thread::sleep(PAUSE);
        }
    }

    fn send_greetings(&self, rank: usize) -> Result<Vec<Greeting>> {
        let mut locked = lock(&self.engine);
        let Some(engine) = locked.as_mut() else {
            // Whoever finds the cause out may need the lock.
            drop(locked);
            return Err(self.cause());
        };
        let header = Header {
            kind: kind::PUT,
            channel: NO_CHANNEL,
            ..Header::default()
        };
        let greetings = greeted(&self.placement, rank).into_iter().map(|peer| {
            let count = engine.wires.send_acknowledged(peer, header, None)?;
            Ok(Greeting { peer, count })
        });
        let greetings = greetings.collect::<std::result::Result<_, Fault>>();
        greetings.map_err(|fault| {
            let error = fault.into_error(rank, &self.placement);
            self.versions.explain(error)
        })
    }

    fn unreachable(&self, rank: usize, peer: usize, waited: Duration) -> Error {
        let text = format!(
            "no answer over UCX within {:.1} s, though the ranks have met; let TCP between the hosts of the job pass at \
             all ports, since UCX listens where the system chooses, or name the devices that reach each other in \
             UCX_NET_DEVICES",
            waited.as_secs_f64()
        );
        let fault = Fault {
            peer,
            operation: "connect",
            bytes: None,
            cause: Cause::Text(text),
        };
        self.versions
            .explain(fault.into_error(rank, &self.placement))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_rank_greets_one_rank_of_each_other_node() {
        let placement = Placement::of(&["a", "a", "a", "b", "c", "c"]);
        assert_eq!(greeted(&placement, 0), [3, 4]);
        assert_eq!(greeted(&placement, 1), [3, 5]);
        assert_eq!(greeted(&placement, 2), [3, 4]);
        assert_eq!(greeted(&placement, 3), [0, 4]);
    }
}
