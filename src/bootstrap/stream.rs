//! Addresses, listeners and connections of the rendezvous, all non-blocking underneath.

mod raw;
#[cfg(feature = "tcp")]
mod sealed;
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
use rustix::net::{AddressFamily, SocketFlags, SocketType, sockopt};

use crate::bootstrap::deadline::time_until;
#[cfg(feature = "tcp")]
use crate::bootstrap::stream::sealed::Sealed;

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
#[derive(Debug)]
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

    /// Returns the port of a socket over TCP.
    #[cfg(feature = "tcp")]
    pub(super) fn port(&self) -> io::Result<u16> {
        let address = rustix::net::getsockname(&self.socket)?;
        let address = std::net::SocketAddr::try_from(address)?;
        Ok(address.port())
    }

    /// Accepts a waiting connection; `WouldBlock` if there is none.
    pub(super) fn accept(&self) -> io::Result<Stream> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = retry_on_intr(|| rustix::net::accept_with(&self.socket, flags))?;
        match self.transport {
            Transport::Unix => Ok(Stream::unix(socket)),
            #[cfg(feature = "tcp")]
            Transport::Tcp => Stream::tcp(socket.into(), tcp::Side::Accepted),
        }
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
    /// TCP: good for finding the Unix socket, and for ranks of several nodes, which pass no descriptors.
    #[cfg(feature = "tcp")]
    Tcp,
}

/// A connection between a rank and the store. Over TCP it is sealed once the handshake is over: whoever reads and writes
/// messages here need not know.
#[derive(Debug)]
pub(super) struct Stream {
    socket: OwnedFd,
    pub(super) transport: Transport,
    /// The addresses of both ends, of a connection that others than the kernel carry.
    #[cfg(feature = "tcp")]
    ends: Option<tcp::Ends>,
    #[cfg(feature = "tcp")]
    sealed: Option<Box<Sealed>>,
}

impl Stream {
    /// Makes a stream of a non-blocking Unix socket.
    fn unix(socket: OwnedFd) -> Self {
        Self {
            socket,
            transport: Transport::Unix,
            #[cfg(feature = "tcp")]
            ends: None,
            #[cfg(feature = "tcp")]
            sealed: None,
        }
    }

    #[cfg(feature = "tcp")]
    fn tcp(socket: std::net::TcpStream, side: tcp::Side) -> io::Result<Self> {
        socket.set_nonblocking(true)?;
        socket.set_nodelay(true)?;
        Ok(Self {
            ends: Some(tcp::Ends::of(&socket, side)?),
            socket: socket.into(),
            transport: Transport::Tcp,
            sealed: None,
        })
    }

    /// Makes both ends of a connection within this process.
    pub(super) fn pair() -> io::Result<(Self, Self)> {
        let (left, right) = UnixStream::pair()?;
        left.set_nonblocking(true)?;
        right.set_nonblocking(true)?;
        Ok((Self::unix(left.into()), Self::unix(right.into())))
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
                Ok(Self::unix(socket))
            }
            #[cfg(feature = "tcp")]
            Address::Tcp(address) => Self::tcp(tcp::connect(address, until)?, tcp::Side::Connected),
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

    /// Returns the addresses of both ends of a connection over TCP, which others can cut or alter; `None` for a Unix
    /// socket, which ends only if the process at the other end closes it or dies.
    pub(super) fn connection(&self) -> Option<String> {
        #[cfg(feature = "tcp")]
        if let Some(ends) = &self.ends {
            return Some(ends.to_string());
        }
        None
    }

    /// Returns the host of this end of a connection that this process made over TCP.
    #[cfg(feature = "tcp")]
    pub(super) fn own_host(&self) -> Option<String> {
        self.ends.as_ref().map(tcp::Ends::connecting_host)
    }

    /// Authenticates and encrypts with `keys` all that is sent and received from now on. `prefix`, which is not, travels in
    /// front of the first bytes that are sent, and with them.
    #[cfg(feature = "tcp")]
    pub(super) fn seal(&mut self, keys: snow::TransportState, prefix: &[u8]) {
        self.sealed = Some(Box::new(Sealed::new(keys, prefix)));
    }

    /// Receives what is there, at most `buffer.len()` bytes; the kernel drops descriptors beside it. 0 is the end. `AGAIN`
    /// if nothing is there; `BADMSG` if something is that the other end did not send.
    ///
    /// `poll` does not report the rest of a sealed record of which a buffer under 16 KiB took a part.
    pub(super) fn receive(&self, buffer: &mut [u8]) -> Result<usize, Errno> {
        #[cfg(feature = "tcp")]
        if let Some(sealed) = &self.sealed {
            return sealed.receive(self.socket.as_fd(), buffer);
        }
        raw::receive(self.socket.as_fd(), buffer)
    }

    /// Takes what fits of `bytes`, and sends it now or with [`Stream::flush`].
    pub(super) fn send(&self, bytes: &[u8]) -> Result<usize, Errno> {
        #[cfg(feature = "tcp")]
        if let Some(sealed) = &self.sealed {
            return sealed.send(self.socket.as_fd(), bytes);
        }
        raw::send(self.socket.as_fd(), bytes)
    }

    /// Hands the kernel what [`Stream::send`] took and the kernel did not. Returns whether nothing is left.
    pub(super) fn flush(&self) -> Result<bool, Errno> {
        #[cfg(feature = "tcp")]
        if let Some(sealed) = &self.sealed {
            return sealed.flush(self.socket.as_fd());
        }
        Ok(true)
    }

    /// Returns whether the kernel has all that [`Stream::send`] took.
    pub(super) fn is_flushed(&self) -> bool {
        #[cfg(feature = "tcp")]
        if let Some(sealed) = &self.sealed {
            return sealed.is_flushed();
        }
        true
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

    /// Repeats `step` whenever the stream is ready for `events`, until it returns something else than `AGAIN`.
    /// `TIMEDOUT` at `until`.
    fn repeat<T>(
        &self,
        events: PollFlags,
        until: Instant,
        mut step: impl FnMut() -> Result<T, Errno>,
    ) -> Result<T, Errno> {
        loop {
            match step() {
                Err(Errno::AGAIN) => {
                    if !self.wait(events, until)? {
                        return Err(Errno::TIMEDOUT);
                    }
                }
                result => return result,
            }
        }
    }

    /// Fills `buffer`. `TIMEDOUT` at `until`, `CONNRESET` if the stream ends before.
    pub(super) fn receive_exact(&self, buffer: &mut [u8], until: Instant) -> Result<(), Errno> {
        let mut filled = 0;
        while filled < buffer.len() {
            match self.repeat(PollFlags::IN, until, || self.receive(&mut buffer[filled..]))? {
                0 => return Err(Errno::CONNRESET),
                count => filled += count,
            }
        }
        Ok(())
    }

    /// Sends all of `bytes`. `TIMEDOUT` at `until`.
    pub(super) fn send_all(&self, mut bytes: &[u8], until: Instant) -> Result<(), Errno> {
        while !bytes.is_empty() {
            let count = self.repeat(PollFlags::OUT, until, || self.send(bytes))?;
            bytes = &bytes[count..];
        }
        self.repeat(PollFlags::OUT, until, || match self.flush()? {
            true => Ok(()),
            false => Err(Errno::AGAIN),
        })
    }
}

impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
