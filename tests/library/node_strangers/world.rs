//! Worlds of one rank on each node.

use std::io::Read;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use symmem::bootstrap::Secret;
use two_hosts::{Hosts, HostsOptions, INTERFACE, Skip};

/// The variable that makes this binary a rank.
pub const ROLE: &str = "SYMMEM_NODE_STRANGERS_ROLE";

/// Where ranks on hosts meet.
pub const PORT: u16 = 29500;

/// The deadline of the set-up, and of waits.
pub const SETUP: Duration = Duration::from_secs(8);

/// Where the ranks are: on hosts of their own, or on this machine with a key of a node each.
pub struct World {
    hosts: Option<Hosts>,
    ranks: usize,
    address: String,
    secret: String,
}

impl World {
    /// Makes hosts; `None` if they cannot be made here, which is said.
    pub fn on_hosts(test: &str, ranks: usize) -> Option<Self> {
        let hosts = Hosts::new(&HostsOptions::default());
        let hosts = hosts.map_err(|skip| skip.tell(test)).ok()?;
        let address = format!("{}:{PORT}", hosts[0].address());
        Self::new(test, ranks, Some(hosts), address)
    }

    /// Plans ranks that pose as nodes; `None` without UCX, which is said.
    pub fn on_loopback(test: &str, ranks: usize) -> Option<Self> {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address").to_string();
        Self::new(test, ranks, None, address)
    }

    fn new(test: &str, ranks: usize, hosts: Option<Hosts>, address: String) -> Option<Self> {
        let folders = [
            "/usr/lib/x86_64-linux-gnu",
            "/usr/lib/aarch64-linux-gnu",
            "/usr/lib64",
            "/usr/lib",
        ];
        let mut files = folders
            .iter()
            .map(|folder| Path::new(folder).join("libucp.so.0"));
        if !files.any(|file| file.exists()) && std::env::var_os("SYMMEM_UCX_LIBRARY").is_none() {
            Skip::new("UCX (libucp.so.0) is not installed").tell(test);
            return None;
        }
        Some(Self {
            hosts,
            ranks,
            address,
            secret: Secret::random().expect("random bytes").to_hex(),
        })
    }

    /// Gives a host a firewall, whose rules judge what arrives. Returns whether this machine can.
    pub fn wall(&self, host: usize, rules: &[String]) -> bool {
        let hosts = self.hosts.as_ref().expect("hosts");
        let mut commands =
            "add table inet wall; add chain inet wall arriving { type filter hook input priority 0; }"
                .to_owned();
        for rule in rules {
            commands += &format!("; add rule inet wall arriving iifname {INTERFACE} {rule}");
        }
        let output = hosts[host].command("nft").arg(&commands).output();
        let text = match output {
            Ok(output) if output.status.success() => return true,
            Ok(output) => String::from_utf8_lossy(&output.stderr).trim().to_owned(),
            Err(error) => error.to_string(),
        };
        Skip::new(format!("nft: {text}")).tell("a firewall");
        false
    }

    /// Lets ranks of a host meet others, and nothing else through to it. Returns whether this machine can.
    pub fn wall_off_ucx(&self, host: usize) -> bool {
        let rules = [
            format!("tcp sport {PORT} accept"),
            format!("tcp dport {PORT} accept"),
            "meta l4proto tcp drop".to_owned(),
        ];
        self.wall(host, &rules)
    }

    /// Cuts a host's link.
    pub fn cut(&self, host: usize) {
        self.hosts.as_ref().expect("hosts").cut(host);
    }

    /// Starts a rank with additional variables.
    pub fn start(&self, rank: usize, role: &str, variables: &[(&str, String)]) -> Child {
        let program = std::env::current_exe().expect("this program's file");
        let mut command = match &self.hosts {
            Some(hosts) => hosts[rank].command(program),
            None => Command::new(program),
        };
        let device = if self.hosts.is_some() {
            INTERFACE
        } else {
            "lo"
        };
        command
            .args(["--exact", "rank", "--nocapture", "--test-threads=1"])
            .env(ROLE, role)
            .env("SYMMEM_RANK", rank.to_string())
            .env("SYMMEM_WORLD", self.ranks.to_string())
            .env("SYMMEM_NODE", format!("node {rank}"))
            .env("SYMMEM_RENDEZVOUS", &self.address)
            .env("SYMMEM_SECRET", &self.secret)
            .env("UCX_TLS", "tcp,self")
            .env("UCX_NET_DEVICES", device)
            .stdin(Stdio::null())
            .stdout(Stdio::piped());
        command.envs(variables.iter().map(|(name, value)| (name, value)));
        command.spawn().expect("a process")
    }

    /// Runs all ranks to their ends; returns the line of each.
    pub fn run(
        &self,
        role: &str,
        variables: impl Fn(usize) -> Vec<(&'static str, String)>,
    ) -> Vec<String> {
        let ranks: Vec<Child> = (0..self.ranks)
            .map(|rank| self.start(rank, role, &variables(rank)))
            .collect();
        ranks.into_iter().map(said).collect()
    }
}

/// Waits for a rank's end, and returns its line; empty if it has none. A rank's own deadlines end it.
pub fn said(mut rank: Child) -> String {
    let mut text = String::new();
    let mut output = rank.stdout.take().expect("a pipe");
    output.read_to_string(&mut text).expect("text");
    let _ = rank.wait();
    let line = text.lines().find_map(|line| line.strip_prefix('@'));
    line.unwrap_or_default().to_owned()
}
