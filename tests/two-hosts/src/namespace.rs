//! Namespaces held by descriptors.

use crate::skip::Skip;
use rustix::fs::{Mode, OFlags, fstat, open};
use rustix::mount::{MountFlags, MountPropagationFlags, mount, mount_change};
use rustix::thread::{LinkNameSpaceType, UnshareFlags, move_into_link_name_space, unshare_unsafe};
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

/// A network namespace, with the IPC and UTS namespaces of the same host.
pub struct Namespace {
    network: OwnedFd,
    ipc: OwnedFd,
    uts: OwnedFd,
}

impl Namespace {
    /// Makes namespaces with this host name and an address on `lo`.
    pub fn new(name: &str) -> Result<Self, Skip> {
        // In a thread of its own, which ends: the other threads stay where they are.
        std::thread::scope(|scope| {
            let made = scope.spawn(|| {
                let flags = UnshareFlags::NEWNET | UnshareFlags::NEWIPC | UnshareFlags::NEWUTS;
                // SAFETY: none of the flags unshares descriptors or the file system's state, which other threads may
                // rely on.
                unsafe { unshare_unsafe(flags) }?;
                rustix::system::sethostname(name.as_bytes())?;
                // A failure is of no consequence for IPv4; it only adds a few frames of router discovery.
                for which in ["all", "default"] {
                    let file = format!("/proc/sys/net/ipv6/conf/{which}/disable_ipv6");
                    let _ = std::fs::write(file, "1");
                }
                let file = |kind: &str| {
                    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
                    open(format!("/proc/thread-self/ns/{kind}"), flags, Mode::empty())
                };
                Ok(Self {
                    network: file("net")?,
                    ipc: file("ipc")?,
                    uts: file("uts")?,
                })
            });
            made.join().expect("no panic")
        })
        .map_err(|error: io::Error| {
            Skip(format!(
                "no network namespace ({error}); run as root, or under `unshare -Urn`"
            ))
        })
    }

    /// Moves the calling thread here.
    pub fn enter(&self) -> io::Result<()> {
        let kinds = [
            (&self.network, LinkNameSpaceType::Network),
            (&self.ipc, LinkNameSpaceType::InterProcessCommunication),
            (&self.uts, LinkNameSpaceType::HostNameAndNISDomainName),
        ];
        for (namespace, kind) in kinds {
            move_into_link_name_space(namespace.as_fd(), Some(kind))?;
        }
        Ok(())
    }

    /// Moves the calling process here, and shows it this namespace's devices in `/sys/class/net`, where UCX looks for
    /// them. Only for a process with one thread, before it executes its program: neither allocates nor locks.
    pub fn enter_before_exec(&self) -> io::Result<()> {
        self.enter()?;
        // SAFETY: the process has one thread.
        unsafe { unshare_unsafe(UnshareFlags::NEWNS) }?;
        // So that the mount below is not passed on to the namespace that this one is a copy of.
        let private = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
        mount_change(c"/", private)?;
        let safe = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
        mount(c"sysfs", c"/sys", c"sysfs", safe, None::<&std::ffi::CStr>)?;
        Ok(())
    }

    /// Returns this namespace's path, for other processes while this one runs.
    pub fn path(&self) -> String {
        path(&self.network)
    }

    /// Returns the options of `nsenter` that lead here while this process runs.
    pub fn nsenter(&self) -> String {
        let [network, ipc, uts] = [&self.network, &self.ipc, &self.uts].map(path);
        format!("--net={network} --ipc={ipc} --uts={uts}")
    }

    /// Returns the number by which `/proc/PID/ns/net` names this namespace.
    pub fn inode(&self) -> u64 {
        fstat(&self.network).expect("an open file").st_ino
    }
}

fn path(namespace: &OwnedFd) -> String {
    format!("/proc/{}/fd/{}", std::process::id(), namespace.as_raw_fd())
}
