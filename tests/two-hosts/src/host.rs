//! One host.

use crate::hosts::INTERFACE;
use crate::namespace::Namespace;
use crate::skip::{Skip, judge};
use std::ffi::OsStr;
use std::net::Ipv4Addr;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::Arc;

/// A host: what is started here reaches others over the wire only.
pub struct Host {
    pub(crate) number: usize,
    pub(crate) namespace: Arc<Namespace>,
}

impl Host {
    /// Returns the host's name, `host0` for the first.
    pub fn name(&self) -> String {
        format!("host{}", self.number)
    }

    /// Returns the address at which other hosts reach this one.
    pub fn address(&self) -> Ipv4Addr {
        Ipv4Addr::new(10, 77, 0, self.number as u8 + 1)
    }

    /// Returns a command whose process runs on this host. The process is the program itself, so its number is the
    /// child's. It has mounts of its own, with the host's `/sys`.
    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let namespace = Arc::clone(&self.namespace);
        let mut command = Command::new(program);
        // SAFETY: the closure runs in the child between fork and exec, where only async-signal-safe code is allowed. It
        // makes system calls on descriptors and strings that it owns, allocates nothing and takes no lock.
        unsafe { command.pre_exec(move || namespace.enter_before_exec()) };
        command
    }

    /// Runs a closure in a thread on this host and returns its result. Sockets that it makes stay on this host,
    /// whichever thread uses them.
    ///
    /// # Panics
    /// If the closure panics.
    pub fn inside<R: Send>(&self, closure: impl FnOnce() -> R + Send) -> R {
        inside(&self.namespace, closure)
    }

    /// Returns the options of `nsenter` that lead to this host while this process runs.
    pub fn nsenter(&self) -> String {
        self.namespace.nsenter()
    }

    /// Gives the interface its address, and limits or loses what it sends and receives.
    pub(crate) fn set_up(&self, rate: Option<u64>, loss: Option<f64>) -> Result<(), Skip> {
        let address = format!("{}/24", self.address());
        self.tell("ip", &["link", "set", "lo", "up"])?;
        self.tell("ip", &["address", "add", &address, "dev", INTERFACE])?;
        if let Some(rate) = rate {
            limit(&self.namespace, INTERFACE, rate)?;
        }
        if let Some(loss) = loss {
            self.tell("ip", &["link", "set", INTERFACE, "gso_max_segs", "1"])?;
            let lost = (loss * 10_000.0).round() as u32;
            let rules = format!(
                "add table inet wire; \
                 add chain inet wire lost {{ type filter hook input priority 0; }}; \
                 add rule inet wire lost iifname {INTERFACE} numgen random mod 10000 < {lost} drop"
            );
            self.tell("nft", &[&rules])?;
        }
        self.tell("ip", &["link", "set", INTERFACE, "up"])
    }

    fn tell(&self, program: &str, arguments: &[&str]) -> Result<(), Skip> {
        tell(&self.namespace, program, arguments)
    }
}

/// Runs a closure in a thread in a namespace.
pub(crate) fn inside<R: Send>(namespace: &Namespace, closure: impl FnOnce() -> R + Send) -> R {
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            namespace.enter().expect("a namespace of this process");
            closure()
        });
        thread
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// Limits what an interface sends.
pub(crate) fn limit(namespace: &Namespace, interface: &str, rate: u64) -> Result<(), Skip> {
    // What may be sent at once: 250 µs of the rate, as much as a network card's own queue holds. Packets that offload
    // has joined must not be larger, since tbf would take them apart at the cost of a processor.
    let burst = (rate / 8 / 4000).max(8 << 10);
    let joined = burst.min(65_536).to_string();
    let (rate, burst) = (format!("{rate}bit"), burst.to_string());
    let qdisc = ["qdisc", "add", "dev", interface, "root", "tbf"];
    let limits = ["rate", &rate, "burst", &burst, "latency", "50ms"];
    tell(namespace, "tc", &[&qdisc[..], &limits[..]].concat())?;
    tell(
        namespace,
        "ip",
        &["link", "set", interface, "gso_max_size", &joined],
    )
}

/// Runs a set-up command in a namespace.
pub(crate) fn tell(namespace: &Namespace, program: &str, arguments: &[&str]) -> Result<(), Skip> {
    let output = inside(namespace, || {
        // Of the thread's namespace, which a new process has, too.
        Command::new(program).args(arguments).output()
    });
    let output = output.map_err(|error| Skip(format!("{program}: {error}; install it")))?;
    judge(&format!("{program} {}", arguments.join(" ")), &output)
}
