//! Addresses, listeners and connections of the rendezvous, all non-blocking underneath.

#[cfg(feature = "tcp")]
mod tcp;

use std::fmt;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::time::Instant;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::{Errno, retry_on_intr};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, sockopt};

use crate::bootstrap::deadline::time_until;

/// Address at which rank 0 listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Address {
    /// A name in the abstract namespace of Unix sockets: without a file, and gone with its last holder.
    Unix(String),
    /// `host:port`.
    #[cfg(feature = "tcp")]
    Tcp(String),
}

impl fmt::Display for Address {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unix(name) => write!(formatter, "the abstract Unix socket @{name}"),
            #[cfg(feature = "tcp")]
            Self::Tcp(address) => formatter.write_str(address),
        }
    }
}

/// A socket that accepts ranks.
pub(super) struct Listener {
    socket: OwnedFd,
    transport: Transport,
}

impl Listener {
    pub(super) fn bind(address: &Address) -> io::Result<Self> {
        let (socket, transport) = match address {
            Address::Unix(name) => {
                let name = std::os::unix::net::SocketAddr::from_abstract_name(name)?;
                let listener = UnixListener::bind_addr(&name)?;
                listener.set_nonblocking(true)?;
                (listener.into(), Transport::Unix)
            }
            #[cfg(feature = "tcp")]
            Address::Tcp(address) => (tcp::listen(address)?, Transport::Tcp),
        };
        Ok(Self { socket, transport })
    }

    /// Accepts a waiting connection; `WouldBlock` if there is none.
    pub(super) fn accept(&self) -> io::Result<Stream> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = retry_on_intr(|| rustix::net::accept_with(&self.socket, flags))?;
        Stream::new(socket, self.transport)
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Transport of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Transport {
    /// A Unix socket: the kernel vouches for the user, and descriptors can travel.
    Unix,
    /// TCP: good for finding the Unix socket only.
    #[cfg(feature = "tcp")]
    Tcp,
}

/// A connection between a rank and the store.
#[derive(Debug)]
pub(super) struct Stream {
    socket: OwnedFd,
    pub(super) transport: Transport,
}

impl Stream {
    fn new(socket: OwnedFd, transport: Transport) -> io::Result<Self> {
        rustix::io::ioctl_fionbio(&socket, true)?;
        #[cfg(feature = "tcp")]
        if transport == Transport::Tcp {
            sockopt::set_tcp_nodelay(&socket, true)?;
        }
        Ok(Self { socket, transport })
    }

    /// Makes both ends of a connection within this process.
    pub(super) fn pair() -> io::Result<(Self, Self)> {
        let (left, right) = UnixStream::pair()?;
        let [left, right] = [left, right].map(|end| Self::new(end.into(), Transport::Unix));
        Ok((left?, right?))
    }

    /// Connects once. `ConnectionRefused` or `WouldBlock` mean that no process listens there yet, or that the
    /// listener's queue is full. The lookup of a host name has no deadline.
    #[cfg_attr(
        not(feature = "tcp"),
        expect(
            unused_variables,
            reason = "only TCP waits for an answer to a connection"
        )
    )]
    pub(super) fn connect(address: &Address, until: Instant) -> io::Result<Self> {
        match address {
            Address::Unix(name) => {
                let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
                let socket =
                    rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
                let name = rustix::net::SocketAddrUnix::new_abstract_name(name.as_bytes())?;
                // Non-blocking: a full queue returns EAGAIN instead of waiting without a deadline.
                retry_on_intr(|| rustix::net::connect(&socket, &name))?;
                Self::new(socket, Transport::Unix)
            }
            #[cfg(feature = "tcp")]
            Address::Tcp(address) => Self::new(tcp::connect(address, until)?, Transport::Tcp),
        }
    }

    /// Returns whether it is a Unix socket, which carries file descriptors.
    pub(super) fn carries_descriptors(&self) -> bool {
        self.transport == Transport::Unix
    }

    /// Returns the user at the other end as the kernel reports it, or `None` over TCP.
    pub(super) fn peer_uid(&self) -> io::Result<Option<u32>> {
        match self.transport {
            Transport::Unix => Ok(Some(sockopt::socket_peercred(&self.socket)?.uid.as_raw())),
            #[cfg(feature = "tcp")]
            Transport::Tcp => Ok(None),
        }
    }

    /// Receives what is there; the kernel drops descriptors beside it. 0 is the end.
    pub(super) fn receive(&self, buffer: &mut [u8]) -> Result<usize, Errno> {
        retry_on_intr(|| rustix::net::recv(&self.socket, &mut *buffer, RecvFlags::DONTWAIT))
            .map(|(count, _)| count)
    }

    /// Sends what fits.
    pub(super) fn send(&self, bytes: &[u8]) -> Result<usize, Errno> {
        retry_on_intr(|| {
            rustix::net::send(
                &self.socket,
                bytes,
                SendFlags::NOSIGNAL | SendFlags::DONTWAIT,
            )
        })
    }

    /// Waits until the stream is ready for `events`, closed or broken; returns `false` if `until` comes first.
    pub(super) fn wait(&self, events: PollFlags, until: Instant) -> Result<bool, Errno> {
        loop {
            let mut polled = [PollFd::new(&self.socket, events)];
            match poll(&mut polled, Some(&time_until(Some(until)))) {
                Ok(0) if Instant::now() >= until => return Ok(false),
                Ok(0) | Err(Errno::INTR) => {}
                Ok(_) => return Ok(true),
                Err(error) => return Err(error),
            }
        }
    }

    /// Fills `buffer`. `TIMEDOUT` at `until`, `CONNRESET` if the stream ends before.
    pub(super) fn receive_exact(&self, buffer: &mut [u8], until: Instant) -> Result<(), Errno> {
        let mut filled = 0;
        while filled < buffer.len() {
            match self.receive(&mut buffer[filled..]) {
                Ok(0) => return Err(Errno::CONNRESET),
                Ok(count) => filled += count,
                Err(Errno::AGAIN) => {
                    if !self.wait(PollFlags::IN, until)? {
                        return Err(Errno::TIMEDOUT);
                    }
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Sends all of `bytes`. `TIMEDOUT` at `until`.
    pub(super) fn send_all(&self, mut bytes: &[u8], until: Instant) -> Result<(), Errno> {
        while !bytes.is_empty() {
            match self.send(bytes) {
                Ok(count) => bytes = &bytes[count..],
                Err(Errno::AGAIN) => {
                    if !self.wait(PollFlags::OUT, until)? {
                        return Err(Errno::TIMEDOUT);
                    }
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
