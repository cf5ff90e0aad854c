//! Sockets of a rendezvous at `host:port`.

use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

/// Connections that the kernel completes and keeps until the store accepts them. With fewer, strangers that connect in
/// thousands would make a rank wait for the kernel's next attempt, a second later and then ever more; the kernel lowers
/// the number to `net.core.somaxconn`.
const QUEUE: i32 = 4096;

/// Time after which an attempt to connect gives way to a new one.
const ATTEMPT: Duration = Duration::from_secs(1);

/// The end of a connection that this process has.
#[derive(Clone, Copy)]
pub(super) enum Side {
    Accepted,
    Connected,
}

/// The addresses of a connection's ends.
#[derive(Debug)]
pub(super) struct Ends {
    from: SocketAddr,
    to: SocketAddr,
}

impl Ends {
    pub(super) fn of(socket: &TcpStream, side: Side) -> io::Result<Self> {
        let (local, peer) = (socket.local_addr()?, socket.peer_addr()?);
        let (from, to) = match side {
            Side::Accepted => (peer, local),
            Side::Connected => (local, peer),
        };
        Ok(Self { from, to })
    }

    /// Returns the host of the end that connected, as part of an address.
    pub(super) fn connecting_host(&self) -> String {
        match self.from.ip() {
            IpAddr::V4(host) => host.to_string(),
            IpAddr::V6(host) => format!("[{host}]"),
        }
    }
}

impl fmt::Display for Ends {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { from, to } = self;
        write!(formatter, "from {from} to {to}")
    }
}

/// Listens at `host:port`, without blocking.
pub(super) fn listen(address: &str) -> io::Result<OwnedFd> {
    let listener = TcpListener::bind(address)?;
    // It listens already; a second call only changes the length of the queue.
    rustix::net::listen(&listener, QUEUE)?;
    listener.set_nonblocking(true)?;
    Ok(listener.into())
}

/// Connects to the first address of `host:port` that answers, within a second for each. The host's name is looked up
/// without a deadline.
pub(super) fn connect(address: &str, until: Instant) -> io::Result<TcpStream> {
    let mut failure = io::Error::new(io::ErrorKind::NotFound, "the host has no address");
    for address in address.to_socket_addrs()? {
        match connect_to(&address, until) {
            Ok(stream) => return Ok(stream),
            Err(error) => failure = error,
        }
    }
    Err(failure)
}

fn connect_to(address: &SocketAddr, until: Instant) -> io::Result<TcpStream> {
    let left = until.saturating_duration_since(Instant::now());
    // A timeout of zero would be refused.
    let timeout = left.clamp(Duration::from_millis(1), ATTEMPT);
    let stream = TcpStream::connect_timeout(address, timeout)?;
    // While nobody listens, the kernel may give the connection the very port that it goes to: it is its own other end.
    if stream.local_addr()? == stream.peer_addr()? {
        return Err(io::ErrorKind::ConnectionRefused.into());
    }
    Ok(stream)
}
