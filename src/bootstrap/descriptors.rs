//! File descriptors that travel beside the bytes of a Unix stream (`SCM_RIGHTS`, see unix(7)).
//!
//! The descriptors of a message are sent with its first byte, in one batch. The kernel delivers each
//! batch in a `recvmsg` of its own, so batches and messages pair up in order.

use std::collections::VecDeque;
use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::{Errno, retry_on_intr};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags,
};

use crate::backend::abi::MAX_RANKS;

/// The descriptors of one message.
#[derive(Debug)]
pub(super) struct Batch {
    pub(super) descriptors: Vec<OwnedFd>,
    /// The kernel dropped some: this process has no free descriptor.
    pub(super) truncated: bool,
}

/// Sends what fits of `bytes`, with `descriptors` (at most [`MAX_RANKS`]) beside the first byte. Does not
/// block: `Errno::AGAIN` if nothing fits.
pub(super) fn send(
    socket: impl AsFd,
    bytes: &[u8],
    descriptors: &[BorrowedFd<'_>],
) -> Result<usize, Errno> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_RANKS))];
    // NOSIGNAL: a peer that is gone is an error, not a SIGPIPE.
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    retry_on_intr(|| {
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !descriptors.is_empty() && !control.push(SendAncillaryMessage::ScmRights(descriptors)) {
            return Err(Errno::INVAL);
        }
        rustix::net::sendmsg(&socket, &[IoSlice::new(bytes)], &mut control, flags)
    })
}

/// Receives what is there into `buffer`, and the batch of descriptors beside it, if any, into `batches`. 0 is
/// the end of the stream. Does not block: `Errno::AGAIN` if nothing is there.
pub(super) fn receive(
    socket: impl AsFd,
    buffer: &mut [u8],
    batches: &mut VecDeque<Batch>,
) -> Result<usize, Errno> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_RANKS))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
    let received = retry_on_intr(|| {
        rustix::net::recvmsg(&socket, &mut [IoSliceMut::new(buffer)], &mut control, flags)
    })?;
    let mut descriptors = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = message {
            descriptors.extend(rights);
        }
    }
    let truncated = received.flags.contains(ReturnFlags::CTRUNC);
    if truncated || !descriptors.is_empty() {
        batches.push_back(Batch {
            descriptors,
            truncated,
        });
    }
    Ok(received.bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::MetadataExt;
    use std::os::unix::net::UnixStream;

    fn inode(descriptor: impl AsFd) -> u64 {
        rustix::fs::fstat(descriptor).unwrap().st_ino
    }

    #[test]
    fn batches_arrive_with_the_messages_they_were_sent_with() {
        let (left, right) = UnixStream::pair().unwrap();
        let (one, two) = (
            std::fs::File::open("/proc/self/stat").unwrap(),
            std::fs::File::open("/dev/null").unwrap(),
        );
        assert_eq!(send(&left, b"plain", &[]), Ok(5));
        assert_eq!(send(&left, b"first", &[one.as_fd()]), Ok(5));
        assert_eq!(send(&left, b"second", &[two.as_fd(), one.as_fd()]), Ok(6));
        let (mut bytes, mut batches) = (Vec::new(), VecDeque::new());
        while bytes.len() < 16 {
            let mut buffer = [0; 64];
            let count = receive(&right, &mut buffer, &mut batches).unwrap();
            bytes.extend_from_slice(&buffer[..count]);
        }
        assert_eq!(bytes, b"plainfirstsecond");
        let counts: Vec<usize> = batches
            .iter()
            .map(|batch| batch.descriptors.len())
            .collect();
        assert_eq!(counts, [1, 2]);
        assert_eq!(
            inode(&batches[1].descriptors[0]),
            two.metadata().unwrap().ino()
        );
        let flags = rustix::io::fcntl_getfd(&batches[0].descriptors[0]).unwrap();
        assert!(
            flags.contains(rustix::io::FdFlags::CLOEXEC),
            "no child inherits it"
        );
    }

    #[test]
    fn a_peer_that_is_gone_is_an_error_and_an_end() {
        let (left, right) = UnixStream::pair().unwrap();
        assert_eq!(
            receive(&left, &mut [0; 8], &mut VecDeque::new()),
            Err(Errno::AGAIN)
        );
        drop(right);
        assert_eq!(send(&left, b"x", &[]), Err(Errno::PIPE));
        assert_eq!(receive(&left, &mut [0; 8], &mut VecDeque::new()), Ok(0));
    }
}
