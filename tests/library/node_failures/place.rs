//! Where the ranks of a run are: on two hosts made of network namespaces, or on nodes of this machine with a device each.

use crate::fakes::fake_driver_and_libraries;
use crate::plan::{Legs, Plan};
use crate::rank;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Command;
use two_hosts::{Hosts, HostsOptions, Skip};

/// The variable that names a backend of this machine, whose devices pose as nodes. Otherwise the fake CUDA driver's do.
pub const DEVICES: &str = "SYMMEM_NODE_FAILURES_DEVICES";

/// A kind of place.
pub enum Site {
    /// Hosts, over the host backend.
    Hosts,
    /// Nodes of this machine.
    Devices {
        /// The backend.
        backend: String,
        /// The directory of the fake driver, if the devices are its.
        fakes: Option<&'static Path>,
    },
}

impl Site {
    /// Returns nodes of this machine.
    pub fn devices() -> Self {
        let named = std::env::var(DEVICES).ok().filter(|name| !name.is_empty());
        let fakes = named.is_none().then(fake_driver_and_libraries);
        Self::Devices {
            backend: named.unwrap_or_else(|| "cuda".into()),
            fakes,
        }
    }

    /// Prepares a place.
    ///
    /// # Errors
    /// Why the machine cannot make it.
    pub fn prepare(&self) -> Result<Place<'_>, Skip> {
        Ok(match self {
            Self::Hosts => Place::Hosts(Box::new(Hosts::new(&HostsOptions::default())?)),
            Self::Devices { backend, fakes } => Place::Devices {
                backend,
                fakes: *fakes,
                address: free_address(),
            },
        })
    }
}

/// A place.
pub enum Place<'s> {
    Hosts(Box<Hosts>),
    Devices {
        backend: &'s str,
        fakes: Option<&'s Path>,
        /// Where ranks meet.
        address: String,
    },
}

impl Place<'_> {
    /// Returns the command that starts a rank of a plan there.
    pub fn command(&self, program: PathBuf, plan: &Plan, rank: usize) -> Command {
        match self {
            Self::Hosts(hosts) => {
                let mut command = hosts[plan.host(rank)].command(program);
                command
                    .env("SYMMEM_RENDEZVOUS", format!("{}:29500", hosts[0].address()))
                    .env("UCX_NET_DEVICES", two_hosts::INTERFACE);
                command
            }
            Self::Devices {
                backend,
                fakes,
                address,
            } => {
                let node = format!("node{}", plan.host(rank));
                let mut command = Command::new(program);
                command
                    .env(rank::BACKEND, backend)
                    .env(rank::DEVICE, plan.host(rank).to_string())
                    .env("SYMMEM_RENDEZVOUS", address)
                    .env("SYMMEM_NODE", &node)
                    .env("UCX_NET_DEVICES", "lo")
                    .env("NCCL_HOSTID", node)
                    .env("NCCL_SOCKET_IFNAME", "lo")
                    .env("NCCL_IB_DISABLE", "1")
                    .env("NCCL_NVLS_ENABLE", "0");
                if plan.legs == Legs::Nccl {
                    command.env(rank::NCCL, "1");
                }
                if let Some(fakes) = fakes {
                    command
                        .env("SYMMEM_LIBRARY_PATH", fakes)
                        .env("FAKE_DEVICE_COUNT", plan.hosts.to_string());
                }
                command
            }
        }
    }

    /// Cuts the link of a host.
    ///
    /// # Panics
    /// If there is none.
    pub fn cut(&self, host: usize) {
        match self {
            Self::Hosts(hosts) => hosts.cut(host),
            Self::Devices { .. } => panic!("nodes of one machine have no link to cut"),
        }
    }

    /// Returns the processes and sockets that a run has left.
    pub fn leftovers(&self) -> Vec<String> {
        match self {
            Self::Hosts(hosts) => hosts.leftovers(),
            // Its processes are children, and have been waited for.
            Self::Devices { .. } => Vec::new(),
        }
    }
}

/// Returns an address with a port that was free a moment ago.
fn free_address() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("a bound address");
    address.to_string()
}
