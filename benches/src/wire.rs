//! Bytes at the network devices of this rank's host, as the kernel counts them.

/// Returns how many bytes the host has sent so far, over the devices that `UCX_NET_DEVICES` names if the kernel knows
/// them, else over all but the loopback. Counts frames with their headers. `None` if the kernel does not say, or counts
/// none, as for InfiniBand.
pub(super) fn sent() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/self/net/dev").ok()?;
    let devices = std::env::var("UCX_NET_DEVICES").unwrap_or_default();
    sum(&text, &devices)
}

fn sum(text: &str, devices: &str) -> Option<u64> {
    let named = |name: &str| devices.split(',').any(|device| device == name);
    let counters: Vec<(&str, u64)> = text
        .lines()
        .filter_map(|line| {
            let (name, numbers) = line.split_once(':')?;
            // Eight numbers of what was received come first.
            let sent = numbers.split_whitespace().nth(8)?.parse().ok()?;
            Some((name.trim(), sent))
        })
        .collect();
    let by_name = counters.iter().any(|(name, _)| named(name));
    let of_wire = |name: &str| match (by_name, devices) {
        (true, _) => named(name),
        (false, "" | "all") => name != "lo",
        (false, _) => false,
    };
    let chosen: Vec<u64> = counters
        .into_iter()
        .filter_map(|(name, sent)| of_wire(name).then_some(sent))
        .collect();
    (!chosen.is_empty()).then(|| chosen.iter().sum())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_sent_are_those_of_the_named_devices_or_of_all_but_the_loopback() {
        let text = "Inter-| Receive | Transmit\n face |bytes packets|bytes\n    lo: 1 2 3 4 5 6 7 8 9 10\n  \
                    eth0:20 1 0 0 0 0 0 0 30 2\n  eth1: 20 1 0 0 0 0 0 0 5 2\n";
        assert_eq!(sum(text, ""), Some(35));
        assert_eq!(sum(text, "eth1"), Some(5));
        assert_eq!(sum(text, "lo"), Some(9));
        assert_eq!(sum(text, "mlx5_0:1"), None);
    }
}
