//! Every message survives the round trip, and no bytes make the parser panic.

use proptest::collection::vec;
use proptest::prelude::*;

use super::failure::Failure;
use super::frame::{Frame, HEADER_BYTES, MAX_BODY, MessageError, frame};
use super::peer::PeerInformation;
use super::process::ProcessIdentity;
use super::reply::{Part, Reply};
use super::request::{MAX_NAME, Request, VERSION, payload_limit};

fn peer() -> impl Strategy<Value = PeerInformation> {
    (
        any::<u32>(),
        any::<(u32, u64, u64)>(),
        any::<u32>(),
        ".{0,40}",
    )
        .prop_map(
            |(rank, (pid, start_time, namespace), uid, boot_id)| PeerInformation {
                rank,
                process: ProcessIdentity {
                    pid,
                    start_time,
                    namespace,
                },
                uid,
                boot_id,
            },
        )
}

fn request() -> impl Strategy<Value = Request> {
    let bytes = || vec(any::<u8>(), 0..200);
    prop_oneof![
        (any::<u32>(), any::<u64>(), peer(), any::<u64>()).prop_map(
            |(world, generation, peer, deadline)| {
                Request::Join {
                    version: VERSION,
                    world,
                    generation,
                    peer,
                    deadline,
                }
            }
        ),
        (VERSION + 1.., any::<u32>())
            .prop_map(|(version, rank)| Request::ForeignJoin { version, rank }),
        (".{0,40}", bytes()).prop_map(|(key, value)| Request::Set { key, value }),
        (".{0,40}", any::<u64>()).prop_map(|(key, deadline)| Request::Get { key, deadline }),
        (".{0,40}", any::<i64>()).prop_map(|(key, amount)| Request::Add { key, amount }),
        (".{0,40}", bytes(), any::<u64>()).prop_map(|(tag, payload, deadline)| {
            Request::AllGather {
                tag,
                payload,
                deadline,
            }
        }),
        Just(Request::Leave),
        ".{0,40}".prop_map(|reason| Request::Fail { reason }),
    ]
}

fn failure() -> impl Strategy<Value = Failure> {
    let three = || any::<(u32, u32, u32)>();
    prop_oneof![
        any::<u32>().prop_map(|rank| Failure::Died { rank }),
        (any::<u32>(), ".{0,40}").prop_map(|(rank, reason)| Failure::Failed { rank, reason }),
        any::<u32>().prop_map(|rank| Failure::Left { rank }),
        vec(any::<u32>(), 0..72).prop_map(|missing| Failure::TimedOut { missing }),
        (any::<u32>(), ".{0,40}").prop_map(|(rank, tag)| Failure::TagMismatch { rank, tag }),
        any::<u32>().prop_map(|rank| Failure::RankTaken { rank }),
        three().prop_map(|(rank, world, expected)| Failure::WorldMismatch {
            rank,
            world,
            expected
        }),
        three().prop_map(|(rank, version, expected)| Failure::VersionMismatch {
            rank,
            version,
            expected
        }),
        any::<(u32, u64, u64)>().prop_map(|(rank, generation, expected)| {
            Failure::GenerationMismatch {
                rank,
                generation,
                expected,
            }
        }),
        any::<u32>().prop_map(|rank| Failure::OtherHost { rank }),
        ".{0,40}".prop_map(|key| Failure::NotACounter { key }),
        any::<u32>().prop_map(|rank| Failure::DescriptorLost { rank }),
    ]
}

fn reply() -> impl Strategy<Value = Reply> {
    let part =
        (vec(any::<u8>(), 0..50), any::<bool>()).prop_map(|(payload, has_descriptor)| Part {
            payload,
            has_descriptor,
        });
    prop_oneof![
        vec(peer(), 0..9).prop_map(|peers| Reply::Welcome { peers }),
        ".{0,40}".prop_map(|name| Reply::Redirect { name }),
        Just(Reply::Done),
        vec(any::<u8>(), 0..200).prop_map(|bytes| Reply::Value { bytes }),
        any::<i64>().prop_map(|value| Reply::Sum { value }),
        vec(part, 0..9).prop_map(|parts| Reply::Gathered { parts }),
        failure().prop_map(Reply::Failure),
    ]
}

proptest! {
    // Miri runs this file too, a thousand times slower.
    #![proptest_config(ProptestConfig {
        cases: if cfg!(miri) { 4 } else { 256 },
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn requests_survive_the_round_trip(request in request(), number: u64, descriptors: u16) {
        let bytes = request.encode(number, descriptors);
        let frame = Frame::parse(&bytes).unwrap().unwrap();
        prop_assert_eq!((frame.request, frame.descriptors), (number, descriptors));
        prop_assert_eq!(HEADER_BYTES + frame.body.len(), bytes.len());
        prop_assert_eq!(Request::parse(frame.kind, frame.body).unwrap(), request);
    }

    #[test]
    fn replies_survive_the_round_trip(reply in reply(), number: u64) {
        let bytes = reply.encode(number, 0);
        let frame = Frame::parse(&bytes).unwrap().unwrap();
        prop_assert_eq!(Reply::parse(frame.kind, frame.body).unwrap(), reply);
    }

    #[test]
    fn a_truncated_frame_is_incomplete_and_a_truncated_body_is_refused(request in request(), reply in reply()) {
        for bytes in [request.encode(1, 0), reply.encode(1, 0)] {
            for end in 0..bytes.len() {
                prop_assert_eq!(Frame::parse(&bytes[..end]), Ok(None));
            }
        }
        let foreign = matches!(request, Request::ForeignJoin { .. });
        for bytes in [request.encode(1, 0), reply.encode(1, 0)] {
            let frame = Frame::parse(&bytes).unwrap().unwrap();
            for end in 0..frame.body.len() {
                prop_assert!(foreign || Request::parse(frame.kind, &frame.body[..end]).is_err());
                prop_assert!(Reply::parse(frame.kind, &frame.body[..end]).is_err());
            }
        }
    }

    #[test]
    fn a_body_with_bytes_left_over_is_refused(reply in reply(), extra: u8) {
        let bytes = reply.encode(1, 0);
        let frame = Frame::parse(&bytes).unwrap().unwrap();
        let longer = [frame.body, &[extra]].concat();
        prop_assert_eq!(Reply::parse(frame.kind, &longer), Err(MessageError::BadBody(frame.kind)));
    }

    #[test]
    fn no_bytes_make_the_parser_panic(bytes in vec(any::<u8>(), 0..400), kind in 0u16..64) {
        let _ = Frame::parse(&bytes);
        let _ = Request::parse(kind, &bytes);
        let _ = Reply::parse(kind, &bytes);
    }
}

#[test]
fn a_frame_over_the_limit_is_refused_by_its_header_alone() {
    let mut header = frame(1, 2, 0, &[]);
    header[..4].copy_from_slice(&(MAX_BODY as u32 + 1).to_le_bytes());
    assert_eq!(
        Frame::parse(&header),
        Err(MessageError::TooLong(MAX_BODY + 1))
    );
    header[..4].copy_from_slice(&(MAX_BODY as u32).to_le_bytes());
    assert_eq!(Frame::parse(&header), Ok(None));
}

#[test]
fn a_count_that_the_body_cannot_hold_reserves_nothing() {
    assert_eq!(
        Reply::parse(38, &u32::MAX.to_le_bytes()),
        Err(MessageError::BadBody(38))
    );
}

#[test]
fn the_largest_gather_is_still_a_message() {
    for world in [1, 2, 7, 64, 72] {
        let part = Part {
            payload: vec![0; payload_limit(world)],
            has_descriptor: true,
        };
        let reply = Reply::Gathered {
            parts: vec![part; world as usize],
        };
        assert!(
            reply.encode(1, 0).len() <= HEADER_BYTES + MAX_BODY,
            "{world}"
        );
        let tag = "t".repeat(MAX_NAME);
        let request = Request::AllGather {
            tag,
            payload: vec![0; payload_limit(world)],
            deadline: 0,
        };
        assert!(
            request.encode(1, 1).len() <= HEADER_BYTES + MAX_BODY,
            "{world}"
        );
    }
}
