//! Payloads of collective host calls, which travel inside of the store's messages: handles of memory, multicast
//! offers and objects, the arguments of a split.

use crate::fuzzing::heap;
use crate::memory::multicast::wire::{self, Part, RankSupport};
use crate::memory::sharing;
use crate::world::group;

/// Most ranks whose messages one input holds.
const MOST_RANKS: usize = 4;

/// Checks `bytes` as each kind of payload.
pub fn check(bytes: &[u8]) {
    offer(bytes);
    if let Some(handle) = heap::within(0, || sharing::decode(bytes)) {
        assert_eq!(sharing::encode(&handle), bytes[..sharing::HANDLE_BYTES]);
    }
    if let Some((object, granularity)) = heap::within(0, || wire::decode(bytes)) {
        assert!(granularity > 0);
        assert_eq!(wire::encode(&object, granularity), bytes);
    }
    split(bytes);
    place(bytes);
}

/// A rank's offer survives encoding; the reason in it is cut if it is long.
fn offer(bytes: &[u8]) {
    // A byte that is not UTF-8 becomes one of three bytes.
    let Some(offer) = heap::within(8 * bytes.len() + 64, || RankSupport::decode(bytes)) else {
        return;
    };
    let again = RankSupport::decode(&offer.encode()).expect("as long as it was");
    assert_eq!(
        (again.support, again.kernels),
        (offer.support, offer.kernels)
    );
    assert!(offer.why.starts_with(&again.why));
}

/// Every rank finds itself once in its own group, and no rank is in the group of another color.
fn split(bytes: &[u8]) {
    let decoded: Option<Vec<_>> = bytes.chunks(9).map(group::decode).collect();
    let Some(arguments) = decoded else {
        return;
    };
    for (rank, &(color, key)) in arguments.iter().enumerate().take(MOST_RANKS) {
        assert_eq!(
            group::decode(&group::encode(color, key)),
            Some((color, key))
        );
        match group::members_of(&arguments, rank) {
            None => assert_eq!(color, None),
            Some((members, number)) => {
                assert_eq!(members[number], rank);
                assert!(members.iter().all(|&member| arguments[member].0 == color));
            }
        }
    }
}

/// A place for memory in the multicast object lies in the object, and no rank uses a byte of it.
fn place(bytes: &[u8]) {
    let Some((size, rest)) = bytes.split_first_chunk() else {
        return;
    };
    let size = u64::from_le_bytes(*size);
    let requests: Vec<&[u8]> = rest
        .chunks(rest.len().div_ceil(MOST_RANKS).max(1))
        .collect();
    let most = 4 * bytes.len() + 1024;
    match heap::within(most, || wire::place(requests.iter().copied(), size)) {
        Ok(None) => {}
        Ok(Some(found)) => {
            let end = found.offset + found.bytes;
            assert!(found.bytes > 0 && end <= size);
            for request in &requests {
                let taken: Vec<Part> = wire::decode_parts(&request[8..]);
                let apart = |part: &Part| {
                    part.bytes == 0
                        || part.offset >= end
                        || part.offset + part.bytes <= found.offset
                };
                assert!(taken.iter().all(apart), "{found:?} overlaps {taken:?}");
            }
        }
        Err(reason) => assert!(reason.contains("rank "), "{reason}"),
    }
}
