//! Tests of the wire: what crosses it, how fast, how late, and what is lost.

use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::time::{Duration, Instant};
use two_hosts::{Hosts, HostsOptions};

const MIB: usize = 1 << 20;

/// A deadline of every read and write here.
const LONG: Duration = Duration::from_secs(30);

fn hosts(test: &str, options: &HostsOptions) -> Option<Hosts> {
    Hosts::new(options).map_err(|skip| skip.tell(test)).ok()
}

/// Connects two hosts; the ends may be used in any thread.
fn connect(hosts: &Hosts, from: usize, to: usize) -> (TcpStream, TcpStream) {
    let address = (hosts[to].address(), 0);
    let listener = hosts[to].inside(|| TcpListener::bind(address)).unwrap();
    let address = listener.local_addr().unwrap();
    let one = hosts[from].inside(|| TcpStream::connect_timeout(&address, LONG));
    let (one, other) = (one.unwrap(), listener.accept().unwrap().0);
    for end in [&one, &other] {
        end.set_nodelay(true).unwrap();
        end.set_read_timeout(Some(LONG)).unwrap();
        end.set_write_timeout(Some(LONG)).unwrap();
    }
    (one, other)
}

/// Bytes that repeat at no power of two.
fn pattern(length: usize) -> Vec<u8> {
    (0..length).map(|index| (index % 251) as u8).collect()
}

/// Sends bytes one way, compares what arrives, and returns the time until the last one is there.
fn send(one: &mut TcpStream, other: &mut TcpStream, bytes: &[u8]) -> Duration {
    let start = Instant::now();
    std::thread::scope(|scope| {
        scope.spawn(|| one.write_all(bytes).unwrap());
        let mut received = vec![0; bytes.len()];
        other.read_exact(&mut received).unwrap();
        let time = start.elapsed();
        assert!(received == bytes, "other bytes arrived than were sent");
        time
    })
}

/// Returns the shortest of ten round trips of a byte.
fn round_trip(hosts: &Hosts) -> Duration {
    let (mut one, mut other) = connect(hosts, 0, 1);
    let trip = || send(&mut one, &mut other, &[7]) + send(&mut other, &mut one, &[8]);
    std::iter::repeat_with(trip).take(10).min().unwrap()
}

#[test]
fn every_host_reaches_every_other() {
    let options = HostsOptions {
        hosts: 3,
        ..HostsOptions::default()
    };
    let Some(hosts) = hosts("every_host_reaches_every_other", &options) else {
        return;
    };
    for (from, to) in [(0, 1), (1, 2), (2, 0)] {
        let (mut one, mut other) = connect(&hosts, from, to);
        assert_eq!(other.peer_addr().unwrap().ip(), hosts[from].address());
        send(&mut one, &mut other, &pattern(MIB));
        send(&mut other, &mut one, &pattern(MIB));
    }
}

#[test]
fn commands_run_on_their_host() {
    let Some(hosts) = hosts("commands_run_on_their_host", &HostsOptions::default()) else {
        return;
    };
    for host in hosts.iter() {
        let script = "cat /proc/sys/kernel/hostname; ls /sys/class/net; cat /sys/class/net/eth0/address; echo $$";
        let child = host
            .command("sh")
            .args(["-c", script])
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let pid = child.id();
        let said = child.wait_with_output().unwrap().stdout;
        let expected = format!(
            "{}\neth0\nlo\n02:00:00:00:00:0{}\n{pid}\n",
            host.name(),
            host.name().trim_start_matches("host"),
        );
        assert_eq!(String::from_utf8_lossy(&said), expected);
    }
}

#[test]
fn commands_run_in_the_callers_directory() {
    let Some(hosts) = hosts(
        "commands_run_in_the_callers_directory",
        &HostsOptions::default(),
    ) else {
        return;
    };
    let said = hosts[1].command("pwd").output().unwrap().stdout;
    let here = std::env::current_dir().unwrap();
    assert_eq!(
        String::from_utf8_lossy(&said).trim(),
        here.to_str().unwrap()
    );
}

#[test]
fn abstract_sockets_do_not_cross() {
    let Some(hosts) = hosts("abstract_sockets_do_not_cross", &HostsOptions::default()) else {
        return;
    };
    let address = SocketAddr::from_abstract_name("two-hosts").unwrap();
    let _listener = hosts[0]
        .inside(|| UnixListener::bind_addr(&address))
        .unwrap();
    let connect = |host: usize| hosts[host].inside(|| UnixStream::connect_addr(&address));
    assert!(connect(0).is_ok());
    assert_eq!(connect(1).unwrap_err().kind(), ErrorKind::ConnectionRefused);
}

#[test]
fn a_delay_is_that_of_one_way() {
    let delay = Duration::from_millis(20);
    let options = HostsOptions {
        delay: Some(delay),
        ..HostsOptions::default()
    };
    let Some(hosts) = hosts("a_delay_is_that_of_one_way", &options) else {
        return;
    };
    let time = round_trip(&hosts);
    assert!((2 * delay..3 * delay).contains(&time), "{time:?}");
}

#[test]
fn without_a_delay_a_round_trip_is_short() {
    let Some(hosts) = hosts(
        "without_a_delay_a_round_trip_is_short",
        &HostsOptions::default(),
    ) else {
        return;
    };
    let time = round_trip(&hosts);
    assert!(time < Duration::from_millis(20), "{time:?}");
}

#[test]
fn many_bytes_are_right_behind_a_delay() {
    let options = HostsOptions {
        hosts: 3,
        delay: Some(Duration::from_millis(5)),
        ..HostsOptions::default()
    };
    let Some(hosts) = hosts("many_bytes_are_right_behind_a_delay", &options) else {
        return;
    };
    let (mut one, mut other) = connect(&hosts, 2, 0);
    send(&mut one, &mut other, &pattern(32 * MIB));
    send(&mut other, &mut one, &pattern(32 * MIB));
}

/// Returns how many TCP segments bytes fill.
fn packets(bytes: usize) -> u64 {
    (bytes / 1448) as u64
}

/// Returns the number of TCP segments that a host has sent again.
fn sent_again(hosts: &Hosts, host: usize) -> u64 {
    let text = hosts[host].inside(|| std::fs::read_to_string("/proc/thread-self/net/snmp"));
    let text = text.unwrap();
    let mut lines = text.lines().filter_map(|line| line.strip_prefix("Tcp:"));
    let (names, numbers) = (lines.next().unwrap(), lines.next().unwrap());
    let place = names
        .split_whitespace()
        .position(|name| name == "RetransSegs");
    numbers
        .split_whitespace()
        .nth(place.unwrap())
        .unwrap()
        .parse()
        .unwrap()
}

#[test]
fn lost_packets_are_sent_again_and_the_data_is_right() {
    let options = HostsOptions {
        loss: Some(0.01),
        ..HostsOptions::default()
    };
    let Some(hosts) = hosts(
        "lost_packets_are_sent_again_and_the_data_is_right",
        &options,
    ) else {
        return;
    };
    let (mut one, mut other) = connect(&hosts, 0, 1);
    send(&mut one, &mut other, &pattern(8 * MIB));
    let (packets, again) = (packets(8 * MIB), sent_again(&hosts, 0));
    // A busy machine also sends again what is only late: up to a twentieth was seen.
    assert!(
        (packets / 300..packets / 4).contains(&again),
        "{again} of {packets}"
    );
}

#[test]
fn loss_behind_a_delay_only_takes_longer() {
    let options = HostsOptions {
        delay: Some(Duration::from_millis(5)),
        loss: Some(0.01),
        ..HostsOptions::default()
    };
    let Some(hosts) = hosts("loss_behind_a_delay_only_takes_longer", &options) else {
        return;
    };
    let (mut one, mut other) = connect(&hosts, 0, 1);
    send(&mut one, &mut other, &pattern(MIB));
    send(&mut other, &mut one, &pattern(MIB));
    assert!(sent_again(&hosts, 0) > 0 && sent_again(&hosts, 1) > 0);
}

#[test]
fn without_loss_next_to_nothing_is_sent_again() {
    let Some(hosts) = hosts(
        "without_loss_next_to_nothing_is_sent_again",
        &HostsOptions::default(),
    ) else {
        return;
    };
    let (mut one, mut other) = connect(&hosts, 0, 1);
    send(&mut one, &mut other, &pattern(8 * MIB));
    let again = sent_again(&hosts, 0);
    assert!(again < packets(8 * MIB) / 300, "{again}");
}

/// Asserts that 10 MB took the 0.4 s of 200 Mbit/s, or up to ten times as long on a busy machine.
fn assert_limited(time: Duration) {
    assert!((380..4000).contains(&time.as_millis()), "{time:?}");
}

#[test]
fn a_rate_limits_what_a_host_sends() {
    let options = HostsOptions {
        rate: Some(200_000_000),
        ..HostsOptions::default()
    };
    let Some(hosts) = hosts("a_rate_limits_what_a_host_sends", &options) else {
        return;
    };
    let bytes = pattern(10_000_000);
    for (from, to) in [(0, 1), (1, 0)] {
        let (mut one, mut other) = connect(&hosts, from, to);
        assert_limited(send(&mut one, &mut other, &bytes));
    }
}

#[test]
fn with_three_hosts_a_rate_limits_what_a_host_receives() {
    let options = HostsOptions {
        hosts: 3,
        rate: Some(200_000_000),
        ..HostsOptions::default()
    };
    let Some(hosts) = hosts(
        "with_three_hosts_a_rate_limits_what_a_host_receives",
        &options,
    ) else {
        return;
    };
    let bytes = pattern(5_000_000);
    let pairs = [connect(&hosts, 0, 2), connect(&hosts, 1, 2)];
    let start = Instant::now();
    std::thread::scope(|scope| {
        for (mut one, mut other) in pairs {
            scope.spawn({
                let bytes = &bytes;
                move || send(&mut one, &mut other, bytes)
            });
        }
    });
    assert_limited(start.elapsed());
}

#[test]
fn without_a_rate_the_wire_is_fast() {
    let Some(hosts) = hosts("without_a_rate_the_wire_is_fast", &HostsOptions::default()) else {
        return;
    };
    let (mut one, mut other) = connect(&hosts, 0, 1);
    let bytes = pattern(10_000_000);
    let time = std::iter::repeat_with(|| send(&mut one, &mut other, &bytes));
    // The shortest, since others may want the processors.
    let time = time.take(5).min().unwrap();
    assert!(time.as_millis() < 380, "{time:?}");
}

/// A cut link lets nothing through, and after its return everything arrives.
fn cut_and_restore(test: &str, options: &HostsOptions) {
    let Some(hosts) = hosts(test, options) else {
        return;
    };
    let (mut one, mut other) = connect(&hosts, 0, 1);
    send(&mut one, &mut other, &pattern(MIB));
    for cut in [0, 1] {
        hosts.cut(cut);
        let received = hosts.bytes()[1].received;
        one.write_all(b"after the cut").unwrap();
        other
            .set_read_timeout(Some(Duration::from_millis(300)))
            .unwrap();
        let mut text = [0; 13];
        let error = loop {
            let error = other.read(&mut text).unwrap_err();
            // A machine that is stopped and continued interrupts calls.
            if error.kind() != ErrorKind::Interrupted {
                break error;
            }
        };
        assert_eq!(error.kind(), ErrorKind::WouldBlock, "{error}");
        assert_eq!(hosts.bytes()[1].received, received);
        hosts.restore(cut);
        other.set_read_timeout(Some(LONG)).unwrap();
        other.read_exact(&mut text).unwrap();
        assert_eq!(&text, b"after the cut");
    }
    send(&mut other, &mut one, &pattern(MIB));
}

#[test]
fn a_cut_link_stops_the_bytes_and_its_return_resumes_them() {
    cut_and_restore(
        "a_cut_link_stops_the_bytes_and_its_return_resumes_them",
        &HostsOptions::default(),
    );
}

#[test]
fn a_link_behind_a_delay_is_cut_alike() {
    let options = HostsOptions {
        delay: Some(Duration::from_millis(1)),
        ..HostsOptions::default()
    };
    cut_and_restore("a_link_behind_a_delay_is_cut_alike", &options);
}

#[test]
fn of_three_hosts_two_still_talk_when_the_third_is_cut() {
    let options = HostsOptions {
        hosts: 3,
        ..HostsOptions::default()
    };
    let Some(hosts) = hosts(
        "of_three_hosts_two_still_talk_when_the_third_is_cut",
        &options,
    ) else {
        return;
    };
    hosts.cut(1);
    let (mut one, mut other) = connect(&hosts, 0, 2);
    send(&mut one, &mut other, &pattern(MIB));
}

#[test]
fn bytes_are_counted_at_each_end() {
    let Some(hosts) = hosts("bytes_are_counted_at_each_end", &HostsOptions::default()) else {
        return;
    };
    let (mut one, mut other) = connect(&hosts, 0, 1);
    let before = hosts.bytes();
    send(&mut one, &mut other, &pattern(16 * MIB));
    // The last acknowledgement is on its way while the bytes are compared.
    std::thread::sleep(Duration::from_millis(300));
    let after = hosts.bytes();
    let payload = 16 * MIB as u64;
    let sent = after[0].sent - before[0].sent;
    let received = after[1].received - before[1].received;
    for counted in [sent, received] {
        assert!(
            (payload..payload * 103 / 100).contains(&counted),
            "{counted}"
        );
    }
    // Acknowledgements.
    assert!(after[1].sent - before[1].sent < payload / 100);
    assert_eq!(
        after[1].sent - before[1].sent,
        after[0].received - before[0].received
    );
}
