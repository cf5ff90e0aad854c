//! What the wire is like.

use std::time::Duration;

/// Number of hosts and properties of the wire; the default is two hosts and a wire as fast as the machine.
#[derive(Clone, Debug, PartialEq)]
pub struct HostsOptions {
    /// Number of hosts, from 2 to 16.
    pub hosts: usize,
    /// Bits per second that each host may send, by tbf. With more than two hosts, also that each may receive.
    pub rate: Option<u64>,
    /// Time that each frame takes, one way, by a relay thread in this process. It limits the rate to that of one
    /// processor, a few Gbit/s.
    pub delay: Option<Duration>,
    /// Share of the packets that each host loses on arrival, from 0 to 1, by nftables. Segmentation offload is off then,
    /// so that packets of 1500 bytes are lost and not whole trains of them.
    pub loss: Option<f64>,
}

impl Default for HostsOptions {
    fn default() -> Self {
        Self {
            hosts: 2,
            rate: None,
            delay: None,
            loss: None,
        }
    }
}
