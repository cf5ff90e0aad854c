//! Where ranks meet: addresses, listeners and connections, all non-blocking underneath.

use std::fmt;
use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::{Errno, retry_on_intr};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, sockopt};

use crate::bootstrap::deadline::time_until;

/// Where rank 0 listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Address {
    /// A name in the abstract namespace of Unix sockets: no file, gone with its last holder.
    Unix(String),
    /// `host:port`.
    Tcp(String),
}

impl fmt::Display for Address {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unix(name) => write!(formatter, "the abstract Unix socket @{name}"),
            Self::Tcp(address) => formatter.write_str(address),
        }
    }
}

/// A socket that accepts ranks.
pub(super) enum Listener {
    Unix(UnixListener),
    Tcp(TcpListener),
}

impl Listener {
    pub(super) fn bind(address: &Address) -> io::Result<Self> {
        let listener = match address {
            Address::Unix(name) => {
                let name = std::os::unix::net::SocketAddr::from_abstract_name(name)?;
                let listener = UnixListener::bind_addr(&name)?;
                listener.set_nonblocking(true)?;
                Self::Unix(listener)
            }
            Address::Tcp(address) => {
                let listener = TcpListener::bind(address)?;
                listener.set_nonblocking(true)?;
                Self::Tcp(listener)
            }
        };
        Ok(listener)
    }

    /// A connection that waits to be accepted, or `WouldBlock`.
    pub(super) fn accept(&self) -> io::Result<Stream> {
        match self {
            Self::Unix(listener) => Stream::new(listener.accept()?.0.into(), Transport::Unix),
            Self::Tcp(listener) => {
                let (stream, _) = listener.accept()?;
                stream.set_nodelay(true)?;
                Stream::new(stream.into(), Transport::Tcp)
            }
        }
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Unix(listener) => listener.as_fd(),
            Self::Tcp(listener) => listener.as_fd(),
        }
    }
}

/// By which way a connection came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Transport {
    /// A Unix socket: the kernel vouched for the user, and descriptors can travel.
    Unix,
    /// TCP: good for finding the Unix socket only.
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
        Ok(Self { socket, transport })
    }

    /// Both ends of a connection within this process.
    pub(super) fn pair() -> io::Result<(Self, Self)> {
        let (left, right) = UnixStream::pair()?;
        let [left, right] = [left, right].map(|end| Self::new(end.into(), Transport::Unix));
        Ok((left?, right?))
    }

    /// Connect once. `ConnectionRefused` or `WouldBlock` mean that nobody listens there yet, or that
    /// the queue of the listener is full. A host name is looked up without a deadline.
    pub(super) fn connect(address: &Address, until: Instant) -> io::Result<Self> {
        match address {
            Address::Unix(name) => {
                let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
                let socket =
                    rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
                let name = rustix::net::SocketAddrUnix::new_abstract_name(name.as_bytes())?;
                // Non-blocking: a full queue says EAGAIN rather than wait without a deadline.
                retry_on_intr(|| rustix::net::connect(&socket, &name))?;
                Self::new(socket, Transport::Unix)
            }
            Address::Tcp(address) => {
                let mut failure =
                    io::Error::new(io::ErrorKind::NotFound, "the host has no address");
                for address in address.to_socket_addrs()? {
                    match Self::connect_tcp(&address, until) {
                        Ok(stream) => return Ok(stream),
                        Err(error) => failure = error,
                    }
                }
                Err(failure)
            }
        }
    }

    fn connect_tcp(address: &SocketAddr, until: Instant) -> io::Result<Self> {
        // Zero would be refused as a timeout.
        let timeout = until
            .saturating_duration_since(Instant::now())
            .max(Duration::from_millis(1));
        let stream = TcpStream::connect_timeout(address, timeout)?;
        stream.set_nodelay(true)?;
        Self::new(stream.into(), Transport::Tcp)
    }

    /// The user at the other end as the kernel knows it, or `None` over TCP.
    pub(super) fn peer_uid(&self) -> io::Result<Option<u32>> {
        match self.transport {
            Transport::Unix => Ok(Some(sockopt::socket_peercred(&self.socket)?.uid.as_raw())),
            Transport::Tcp => Ok(None),
        }
    }

    /// Receive what is there; descriptors beside it are dropped by the kernel. 0 is the end.
    pub(super) fn receive(&self, buffer: &mut [u8]) -> Result<usize, Errno> {
        retry_on_intr(|| rustix::net::recv(&self.socket, &mut *buffer, RecvFlags::DONTWAIT))
            .map(|(count, _)| count)
    }

    /// Send what fits.
    pub(super) fn send(&self, bytes: &[u8]) -> Result<usize, Errno> {
        retry_on_intr(|| {
            rustix::net::send(
                &self.socket,
                bytes,
                SendFlags::NOSIGNAL | SendFlags::DONTWAIT,
            )
        })
    }

    /// Wait until the stream is ready for `events`, closed or broken; `false` if `until` comes first.
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

    /// Fill `buffer`. `TIMEDOUT` at `until`, `CONNRESET` if the stream ends before.
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

    /// Send all of `bytes`. `TIMEDOUT` at `until`.
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
