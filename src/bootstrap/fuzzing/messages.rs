//! Frames, requests and replies, as bytes of a peer.

use std::error::Error;
use std::fmt::Debug;

use crate::bootstrap::frame::{Frame, HEADER_BYTES, MAX_BODY, MessageError};
use crate::bootstrap::reply::Reply;
use crate::bootstrap::request::Request;
use crate::fuzzing::heap;

/// Checks `bytes` as a stream of frames, and what follows the first byte as a body of the kind that it names.
pub fn check(bytes: &[u8]) {
    let mut rest = bytes;
    while let Some(frame) = next(rest) {
        let (whole, behind) = rest.split_at(HEADER_BYTES + frame.body.len());
        check_body(&frame);
        rest = behind;
        // What was parsed is all that there is to a frame.
        let again = crate::bootstrap::frame::frame(
            frame.request,
            frame.kind,
            frame.descriptors,
            frame.body,
        );
        assert_eq!(again, whole);
    }
    if let Some((&kind, body)) = bytes.split_first() {
        let body = &body[..body.len().min(MAX_BODY)];
        check_body(&Frame {
            request: 1,
            kind: kind.into(),
            descriptors: 0,
            body,
        });
    }
}

/// Returns the first frame of a stream, or `None` if there is no complete and valid one.
fn next(bytes: &[u8]) -> Option<Frame<'_>> {
    match heap::within(0, || Frame::parse(bytes)) {
        Ok(frame) => frame,
        Err(error) => {
            assert!(
                matches!(error, MessageError::TooLong(length) if length > MAX_BODY),
                "{error:?}"
            );
            says(&error, &MAX_BODY.to_string());
            None
        }
    }
}

/// Checks a body as a request and as a reply.
fn check_body(frame: &Frame<'_>) {
    let Frame {
        request,
        kind,
        descriptors,
        body,
    } = *frame;
    // The smallest item of a list takes 5 bytes here and 32 in memory, and a growing list up to twice its room.
    let most = 16 * body.len() + 1024;
    let parsed = heap::within(most, || Request::parse(kind, body));
    let encode = |message: &Request| message.encode(request, descriptors);
    // Of a foreign join only the beginning is read.
    let whole = |message: &Request| !matches!(message, Request::ForeignJoin { .. });
    survives(frame, parsed, Request::parse, encode, whole);
    let parsed = heap::within(most, || Reply::parse(kind, body));
    let encode = |message: &Reply| message.encode(request, descriptors);
    survives(frame, parsed, Reply::parse, encode, |_| true);
}

/// Checks that a message is the same after encoding and parsing, and has one encoding if it is read as a `whole`;
/// or that the error names the kind.
fn survives<M: PartialEq + Debug>(
    frame: &Frame<'_>,
    parsed: Result<M, MessageError>,
    parse: impl Fn(u16, &[u8]) -> Result<M, MessageError>,
    encode: impl Fn(&M) -> Vec<u8>,
    whole: impl Fn(&M) -> bool,
) {
    let message = match parsed {
        Ok(message) => message,
        Err(error) => return says(&error, &format!("kind {}", frame.kind)),
    };
    let bytes = encode(&message);
    let again = Frame::parse(&bytes)
        .expect("a message that was parsed is within the limits")
        .expect("an encoded message is complete");
    assert_eq!(bytes.len(), HEADER_BYTES + again.body.len());
    assert_eq!(
        (again.request, again.kind, again.descriptors),
        (frame.request, frame.kind, frame.descriptors)
    );
    if whole(&message) {
        assert_eq!(again.body, frame.body, "{message:?} has two encodings");
    }
    assert_eq!(parse(again.kind, again.body), Ok(message));
}

/// Checks that an error says what is wrong, with the value.
fn says(error: &dyn Error, value: &str) {
    let text = error.to_string();
    assert!(text.contains(value), "{text} does not say {value}");
}
