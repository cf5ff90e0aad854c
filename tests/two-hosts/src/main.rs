//! Runs a command in front of hosts: `two-hosts [--hosts N] [--rate MBIT] [--delay MS] [--loss PERCENT] -- COMMAND`.
//!
//! The command runs on this machine, not on a host. It reaches the hosts `host0`, `host1`… by `agent.sh HOST COMMAND`,
//! whose path is in `TWO_HOSTS_AGENT`.

use rustix::process::{Signal, set_parent_process_death_signal};
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};
use std::time::Duration;
use two_hosts::{AGENT, Hosts, HostsOptions};

const USAGE: &str = "usage: two-hosts [--hosts N] [--rate MBIT] [--delay MS] [--loss PERCENT] -- COMMAND [ARGUMENT ...]";

fn main() -> ExitCode {
    let Some((options, command)) = parse(std::env::args().skip(1)) else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    let hosts = match Hosts::new(&options) {
        Ok(hosts) => hosts,
        Err(skip) => {
            eprintln!("two-hosts: {skip}");
            return ExitCode::from(77);
        }
    };
    let mut child = Command::new(&command[0]);
    child.args(&command[1..]).env("TWO_HOSTS_AGENT", AGENT);
    hosts.export(&mut child);
    // If this process is killed, the command is asked to end, so that its processes do not stay on the hosts.
    let end_with_parent = || Ok(set_parent_process_death_signal(Some(Signal::TERM))?);
    // SAFETY: the closure runs in the child between fork and exec, where only async-signal-safe code is allowed. It
    // makes one system call.
    unsafe { child.pre_exec(end_with_parent) };
    match child.status() {
        Ok(status) => ExitCode::from(status.code().unwrap_or(1) as u8),
        Err(error) => {
            eprintln!("two-hosts: {}: {error}", command[0]);
            ExitCode::from(127)
        }
    }
}

fn parse(mut words: impl Iterator<Item = String>) -> Option<(HostsOptions, Vec<String>)> {
    let mut options = HostsOptions::default();
    while let Some(word) = words.next().filter(|word| word != "--") {
        let value: f64 = words.next()?.parse().ok()?;
        match &*word {
            "--hosts" => options.hosts = value as usize,
            "--rate" => options.rate = Some((value * 1e6) as u64),
            "--delay" => options.delay = Some(Duration::from_secs_f64(value / 1e3)),
            "--loss" => options.loss = Some(value / 100.0),
            _ => return None,
        }
    }
    let command: Vec<String> = words.collect();
    (!command.is_empty()).then_some((options, command))
}
