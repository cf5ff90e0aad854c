//! Single system calls on a stream socket, which do not block: `AGAIN` in place of a wait.

use std::os::fd::BorrowedFd;

use rustix::io::{Errno, retry_on_intr};
use rustix::net::{RecvFlags, SendFlags};

/// Receives what is there; the kernel drops descriptors beside it. 0 is the end.
pub(super) fn receive(socket: BorrowedFd<'_>, buffer: &mut [u8]) -> Result<usize, Errno> {
    retry_on_intr(|| rustix::net::recv(socket, &mut *buffer, RecvFlags::DONTWAIT))
        .map(|(count, _)| count)
}

/// Sends what fits. A peer that is gone is an error, not a SIGPIPE.
pub(super) fn send(socket: BorrowedFd<'_>, bytes: &[u8]) -> Result<usize, Errno> {
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    retry_on_intr(|| rustix::net::send(socket, bytes, flags))
}
