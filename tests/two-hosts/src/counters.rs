//! Bytes at a host's interface.

use crate::hosts::INTERFACE;

/// What went through a host's interface, as its kernel counts: frames with their headers. A train of packets that
/// segmentation offload has joined is one frame, with one header of 66 bytes to up to 64 KiB.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Bytes sent.
    pub sent: u64,
    /// Bytes received.
    pub received: u64,
}

impl Counters {
    /// Reads the counters of the calling thread's network namespace.
    pub(crate) fn read() -> Self {
        let text = std::fs::read_to_string("/proc/thread-self/net/dev").expect("/proc");
        Self::parse(&text).unwrap_or_else(|| panic!("no {INTERFACE} in {text}"))
    }

    fn parse(text: &str) -> Option<Self> {
        let name = format!("{INTERFACE}:");
        let mut lines = text.lines();
        let line = lines.find_map(|line| line.trim_start().strip_prefix(&name))?;
        let mut numbers = line.split_whitespace().map(|number| number.parse().ok());
        // Eight numbers of what was received come before those of what was sent.
        let received = numbers.next()??;
        let sent = numbers.nth(7)??;
        Some(Self { sent, received })
    }
}

#[test]
fn bytes_received_come_first_in_the_list_of_devices() {
    let text = "Inter-| Receive | Transmit\n face |bytes packets\n    lo: 1 2 3 4 5 6 7 8 9 10 11 12\n  \
                eth0:20 1 0 0 0 0 0 0 30 2 0 0 0 0 0 0\n";
    let counters = Counters::parse(text);
    let expected = Counters {
        sent: 30,
        received: 20,
    };
    assert_eq!(counters, Some(expected));
    assert_eq!(Counters::parse("  eth1: 1 2"), None);
}
