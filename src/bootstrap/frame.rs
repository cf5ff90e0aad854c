//! Frames: the encoding of the store's messages in a stream of bytes.
//!
//! A frame is a header of 16 bytes (length of the body, kind, count of file descriptors that travel
//! beside it, number of the request it belongs to) and a body of at most [`MAX_BODY`] bytes. All
//! integers are little-endian; text and byte strings carry their length before them. Parsing is a pure
//! function over bytes: it never panics and never reserves memory that a length merely claims.

use crate::bootstrap::codec::Reader;

/// Most bytes of a body.
pub(super) const MAX_BODY: usize = 1 << 20;

/// Bytes of a frame's header.
pub(super) const HEADER_BYTES: usize = 16;

/// The number of a message that answers no request.
pub(super) const UNSOLICITED: u64 = 0;

/// The reason why bytes are not a message.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum MessageError {
    #[error("a body of {0} bytes is over the limit of {MAX_BODY}")]
    TooLong(usize),
    #[error("a message of unknown kind {0}")]
    UnknownKind(u16),
    #[error("a message of kind {0} with a wrong length or an invalid value")]
    BadBody(u16),
}

/// A complete frame at the head of a buffer.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Frame<'a> {
    pub(super) request: u64,
    pub(super) kind: u16,
    pub(super) descriptors: u16,
    pub(super) body: &'a [u8],
}

impl<'a> Frame<'a> {
    /// Returns the first frame in `bytes`, or `None` if it is incomplete. It takes `HEADER_BYTES + body.len()`
    /// bytes.
    pub(super) fn parse(bytes: &'a [u8]) -> Result<Option<Self>, MessageError> {
        let mut reader = Reader(bytes);
        let (Some(length), Some(kind), Some(descriptors), Some(request)) =
            (reader.u32(), reader.u16(), reader.u16(), reader.u64())
        else {
            return Ok(None);
        };
        let length = length as usize;
        if length > MAX_BODY {
            return Err(MessageError::TooLong(length));
        }
        Ok(reader.take(length).map(|body| Self {
            request,
            kind,
            descriptors,
            body,
        }))
    }
}

/// Returns a frame as bytes. `body` is at most [`MAX_BODY`] long; callers check their users' data.
pub(super) fn frame(request: u64, kind: u16, descriptors: u16, body: &[u8]) -> Vec<u8> {
    debug_assert!(body.len() <= MAX_BODY);
    let mut bytes = Vec::with_capacity(HEADER_BYTES + body.len());
    bytes.extend_from_slice(&(body.len() as u32).to_le_bytes());
    bytes.extend_from_slice(&kind.to_le_bytes());
    bytes.extend_from_slice(&descriptors.to_le_bytes());
    bytes.extend_from_slice(&request.to_le_bytes());
    bytes.extend_from_slice(body);
    bytes
}
