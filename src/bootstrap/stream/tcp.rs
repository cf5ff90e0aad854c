//! Sockets of a rendezvous at `host:port`.

use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

/// Listens at `host:port`, without blocking.
pub(super) fn listen(address: &str) -> io::Result<OwnedFd> {
    let listener = TcpListener::bind(address)?;
    listener.set_nonblocking(true)?;
    Ok(listener.into())
}

/// Connects to the first address of `host:port` that answers. The host's name is looked up without a deadline.
pub(super) fn connect(address: &str, until: Instant) -> io::Result<OwnedFd> {
    let mut failure = io::Error::new(io::ErrorKind::NotFound, "the host has no address");
    for address in address.to_socket_addrs()? {
        match connect_to(&address, until) {
            Ok(stream) => return Ok(stream.into()),
            Err(error) => failure = error,
        }
    }
    Err(failure)
}

fn connect_to(address: &SocketAddr, until: Instant) -> io::Result<TcpStream> {
    // A timeout of zero would be refused.
    let timeout = until
        .saturating_duration_since(Instant::now())
        .max(Duration::from_millis(1));
    TcpStream::connect_timeout(address, timeout)
}
