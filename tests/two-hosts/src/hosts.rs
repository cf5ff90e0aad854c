//! Hosts and the wire between them.

use crate::counters::Counters;
use crate::host::{Host, inside, limit, tell};
use crate::left;
use crate::namespace::Namespace;
use crate::options::HostsOptions;
use crate::relay::Relay;
use crate::skip::Skip;
use std::ops::Deref;
use std::process::Command;
use std::sync::Arc;

/// The name of each host's interface on the wire, beside `lo`.
pub const INTERFACE: &str = "eth0";

/// A script that runs a command on a host, as `ssh` would: `plm_rsh_agent` of Open MPI. Its process needs the variables
/// that [`Hosts::export`] sets.
pub const AGENT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/agent.sh");

/// Hosts in a star: each has a link to a switch in the middle. It dereferences to the hosts. When it is dropped, it
/// kills the processes on its hosts.
pub struct Hosts {
    hosts: Vec<Host>,
    /// The switch: a bridge, or a relay if there is a delay.
    middle: Namespace,
    _relay: Option<Relay>,
}

impl Hosts {
    /// Makes hosts that reach each other when this returns.
    ///
    /// # Errors
    /// [`Skip`] if permission, a command or a feature of the kernel is missing.
    ///
    /// # Panics
    /// If an option is out of range, or a set-up command fails for another reason.
    pub fn new(options: &HostsOptions) -> Result<Self, Skip> {
        assert!((2..=16).contains(&options.hosts), "{options:?}");
        assert!(
            options.loss.is_none_or(|loss| (0.0..=1.0).contains(&loss)),
            "{options:?}"
        );
        let middle = Namespace::new("wire")?;
        let hosts: Vec<Host> = (0..options.hosts)
            .map(|number| {
                let namespace = Arc::new(Namespace::new(&format!("host{number}"))?);
                Ok(Host { number, namespace })
            })
            .collect::<Result<_, Skip>>()?;
        if options.delay.is_none() {
            // Without snooping it sends nothing of its own, which would be counted.
            let bridge = ["link", "add", "switch", "type", "bridge"];
            let quiet = ["mcast_snooping", "0"];
            tell(&middle, "ip", &[&bridge[..], &quiet[..]].concat())?;
            tell(&middle, "ip", &["link", "set", "switch", "up"])?;
        }
        for host in &hosts {
            let port = port(host.number);
            // The relay reads the host's number from the address.
            let address = format!("02:00:00:00:00:{:02x}", host.number);
            let path = host.namespace.path();
            let link = [
                "link", "add", &port, "type", "veth", "peer", "name", INTERFACE,
            ];
            let place = ["address", &address, "netns", &path];
            tell(&middle, "ip", &[&link[..], &place[..]].concat())?;
            if options.delay.is_none() {
                tell(&middle, "ip", &["link", "set", &port, "master", "switch"])?;
            }
            if let Some(rate) = options.rate.filter(|_| options.hosts > 2) {
                limit(&middle, &port, rate)?;
            }
            tell(&middle, "ip", &["link", "set", &port, "up"])?;
            host.set_up(options.rate, options.loss)?;
        }
        let relay = options.delay.map(|delay| {
            let ports: Vec<String> = (0..options.hosts).map(port).collect();
            inside(&middle, || Relay::start(&ports, delay))
        });
        let relay = relay.transpose();
        let relay = relay.map_err(|error| Skip(format!("no packet socket: {error}")))?;
        hosts.iter().try_for_each(probe)?;
        Ok(Self {
            hosts,
            middle,
            _relay: relay,
        })
    }

    /// Pulls the cable of a host: its link has no carrier, and nothing that it sends or should receive arrives.
    pub fn cut(&self, host: usize) {
        self.set_link(host, "down");
    }

    /// Puts the cable back.
    pub fn restore(&self, host: usize) {
        self.set_link(host, "up");
    }

    fn set_link(&self, host: usize, state: &str) {
        tell(&self.middle, "ip", &["link", "set", &port(host), state]).expect("a link of the wire");
    }

    /// Returns what each host has sent and received so far.
    pub fn bytes(&self) -> Vec<Counters> {
        let hosts = self.hosts.iter();
        hosts.map(|host| host.inside(Counters::read)).collect()
    }

    /// Returns the processes and open sockets on the hosts, a line each.
    pub fn leftovers(&self) -> Vec<String> {
        let hosts = self.hosts.iter();
        hosts.flat_map(left::on).collect()
    }

    /// Returns the numbers of the hosts' network namespaces, for [`references`](crate::references).
    pub fn inodes(&self) -> Vec<u64> {
        let hosts = self.hosts.iter();
        let inodes = hosts.map(|host| host.namespace.inode());
        inodes.chain([self.middle.inode()]).collect()
    }

    /// Sets the variables by which [`AGENT`] finds the hosts.
    pub fn export(&self, command: &mut Command) {
        for host in &self.hosts {
            command.env(format!("TWO_HOSTS_{}", host.name()), host.nsenter());
        }
    }
}

impl Deref for Hosts {
    type Target = [Host];

    fn deref(&self) -> &[Host] {
        &self.hosts
    }
}

impl Drop for Hosts {
    fn drop(&mut self) {
        for host in &self.hosts {
            left::kill(host.namespace.inode());
        }
    }
}

/// The name of the switch's end of a host's link.
fn port(host: usize) -> String {
    format!("port{host}")
}

/// Checks that a program on a host sees the host's interface, and waits until it is up: the kernel tells so up to a second
/// after the link has a carrier, and UCX does not use an interface before.
fn probe(host: &Host) -> Result<(), Skip> {
    let path = format!("/sys/class/net/{INTERFACE}/operstate");
    let script = format!("until [ \"$(cat {path})\" = up ]; do sleep 0.01; done");
    let command = ["10", "sh", "-c", &script];
    let status = host.command("timeout").args(command).status();
    let status = status.map_err(|error| Skip(format!("cannot mount sysfs on a host: {error}")))?;
    assert!(status.success(), "{path} is not up on {}", host.name());
    Ok(())
}
