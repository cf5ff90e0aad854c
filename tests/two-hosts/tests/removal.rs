//! Tests that nothing is left of hosts, however they end, and that what is left on a host is found.

use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use two_hosts::{Hosts, HostsOptions, references};

/// The variable that makes this binary an owner of hosts that is killed.
const ROLE: &str = "TWO_HOSTS_OWNER";

fn hosts(test: &str) -> Option<Hosts> {
    let options = HostsOptions {
        delay: Some(Duration::from_millis(1)),
        ..HostsOptions::default()
    };
    Hosts::new(&options).map_err(|skip| skip.tell(test)).ok()
}

fn sleeper(hosts: &Hosts) -> Child {
    hosts[1].command("sleep").arg("1000").spawn().unwrap()
}

/// Asserts that soon nothing refers to the namespaces any more.
fn assert_gone(inodes: &[u64]) {
    assert_soon_none(|| references(inodes));
}

/// Asserts that soon nothing is left. Not at once: a process that another test starts has all of this process's files until it runs
/// its program.
fn assert_soon_none<T: std::fmt::Debug>(left: impl Fn() -> Vec<T>) {
    let start = Instant::now();
    while !left().is_empty() {
        assert!(start.elapsed() < Duration::from_secs(50), "{:?}", left());
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_process_and_a_socket_on_a_host_are_named() {
    let Some(hosts) = hosts("a_process_and_a_socket_on_a_host_are_named") else {
        return;
    };
    assert_eq!(hosts.leftovers(), [""; 0]);
    let mut child = sleeper(&hosts);
    let address = (hosts[0].address(), 4711);
    let listener = hosts[0].inside(|| TcpListener::bind(address)).unwrap();
    let left = hosts.leftovers();
    let expected = [
        "host0: tcp socket 01004D0A:1267".to_owned(),
        format!("host1: process {} sleep 1000 ", child.id()),
    ];
    assert_eq!(left, expected);
    drop(listener);
    child.kill().unwrap();
    child.wait().unwrap();
    assert_soon_none(|| hosts.leftovers());
}

#[test]
fn dropped_hosts_leave_nothing() {
    let Some(hosts) = hosts("dropped_hosts_leave_nothing") else {
        return;
    };
    let inodes = hosts.inodes();
    let mut child = sleeper(&hosts);
    assert!(!references(&inodes).is_empty());
    drop(hosts);
    assert_gone(&inodes);
    assert!(!child.wait().unwrap().success());
}

#[test]
fn a_panic_leaves_nothing() {
    let mut inodes = Vec::new();
    let mut child = None;
    let result = catch_unwind(AssertUnwindSafe(|| {
        let hosts = hosts("a_panic_leaves_nothing")?;
        inodes = hosts.inodes();
        child = Some(sleeper(&hosts));
        panic!("as a failed test does");
        #[expect(unreachable_code, reason = "names the type")]
        Some(())
    }));
    let Some(mut child) = child else {
        return;
    };
    assert!(result.is_err());
    assert_gone(&inodes);
    child.wait().unwrap();
}

/// The owner that the test below kills; does nothing in the test run itself.
#[test]
fn owner() {
    if std::env::var_os(ROLE).is_some() {
        let hosts = Hosts::new(&HostsOptions::default()).unwrap();
        println!("namespaces {:?}", hosts.inodes());
        std::thread::sleep(Duration::from_secs(1000));
    }
}

#[test]
fn a_killed_owner_leaves_nothing() {
    if hosts("a_killed_owner_leaves_nothing").is_none() {
        return;
    }
    let mut owner = Command::new(std::env::current_exe().unwrap())
        .args(["owner", "--exact", "--nocapture"])
        .env(ROLE, "1")
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(owner.stdout.take().unwrap()).lines();
    let line = lines
        .map_while(Result::ok)
        .find(|line| line.contains("namespaces"));
    let line = line.expect("the owner's line");
    let (_, list) = line.split_once('[').unwrap();
    let list = list.trim_end_matches(']').split(", ");
    let inodes: Vec<u64> = list.map(|inode| inode.parse().unwrap()).collect();
    assert!(!references(&inodes).is_empty());
    owner.kill().unwrap();
    owner.wait().unwrap();
    assert_gone(&inodes);
}

#[test]
fn hosts_of_two_tests_do_not_meet() {
    let (Some(one), Some(other)) = (
        hosts("hosts_of_two_tests_do_not_meet"),
        hosts("hosts_of_two_tests_do_not_meet"),
    ) else {
        return;
    };
    let address = (one[0].address(), 4711);
    let _first = one[0].inside(|| TcpListener::bind(address)).unwrap();
    let _second = other[0].inside(|| TcpListener::bind(address)).unwrap();
}

#[test]
fn without_permission_hosts_are_skipped_with_the_reason() {
    // As root of a user namespace everything is permitted; without capabilities nothing is.
    let output = Command::new("setpriv")
        .args([
            "--bounding-set=-all",
            "--inh-caps=-all",
            "--reuid=65534",
            "--clear-groups",
        ])
        .arg(std::env::current_exe().unwrap())
        .args(["dropped_hosts_leave_nothing", "--exact", "--nocapture"])
        .output();
    let Ok(output) = output else {
        return println!(
            "skipped: without_permission_hosts_are_skipped_with_the_reason: no setpriv"
        );
    };
    let said = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() && output.stdout.is_empty() {
        let reason = String::from_utf8_lossy(&output.stderr);
        return println!(
            "skipped: without_permission_hosts_are_skipped_with_the_reason: {}",
            reason.trim()
        );
    }
    assert!(
        said.contains(
            "skipped: dropped_hosts_leave_nothing: no network namespace (Operation not permitted"
        ),
        "{said}"
    );
}
