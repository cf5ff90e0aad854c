//! Every message survives the round trip, no bytes make a parser panic, and no greeting but the right one is trusted.

use proptest::collection::vec;
use proptest::prelude::*;

use super::failure::Failure;
use super::frame::{Frame, HEADER_BYTES, MAX_BODY, MessageError, frame};
use super::handshake::Handshake;
use super::handshake::unix::hello;
use super::handshake::verdict::Verdict;
use super::handshake::verifier::Verifier;
use super::key::{Key, MAX_KEY};
use super::peer::PeerInformation;
use super::process::ProcessIdentity;
use super::reply::{Part, Reply};
use super::request::{MAX_NAME, MAX_REASON, MAX_VALUE, Request, VERSION, payload_limit};
use super::secret::Secret;
use super::stream::Transport;

fn peer() -> impl Strategy<Value = PeerInformation> {
    (
        any::<u32>(),
        any::<(u32, u64, u64)>(),
        any::<u32>(),
        ".{0,40}",
        ".{0,40}",
    )
        .prop_map(
            |(rank, (pid, start_time, namespace), uid, boot_id, node)| PeerInformation {
                rank,
                process: ProcessIdentity {
                    pid,
                    start_time,
                    namespace,
                },
                uid,
                boot_id,
                node,
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
        any::<u64>().prop_map(|silence| Request::Pulse { silence }),
        (any::<u32>(), any::<bool>(), ".{0,40}").prop_map(|(rank, died, reason)| Request::Blame {
            rank,
            died,
            reason
        }),
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
        (".{0,40}", vec(any::<u32>(), 0..72), ".{0,40}").prop_map(|(connection, ranks, reason)| {
            Failure::ConnectionLost {
                connection,
                ranks,
                reason,
            }
        }),
    ]
}

fn reply() -> impl Strategy<Value = Reply> {
    let part =
        (vec(any::<u8>(), 0..50), any::<bool>()).prop_map(|(payload, has_descriptor)| Part {
            payload,
            has_descriptor,
        });
    prop_oneof![
        (any::<bool>(), vec(peer(), 0..9)).prop_map(|(may_span_nodes, peers)| Reply::Welcome {
            may_span_nodes,
            peers
        }),
        ".{0,40}".prop_map(|name| Reply::Redirect { name }),
        Just(Reply::Done),
        vec(any::<u8>(), 0..200).prop_map(|bytes| Reply::Value { bytes }),
        any::<i64>().prop_map(|value| Reply::Sum { value }),
        vec(part, 0..9).prop_map(|parts| Reply::Gathered { parts }),
        failure().prop_map(Reply::Failure),
        Just(Reply::Pulse),
    ]
}

fn key() -> impl Strategy<Value = Key> {
    let secret = || "[0-9a-f]{64}".prop_map(|text| Secret::from_hex(&text).unwrap());
    prop_oneof![
        secret().prop_map(Key::Secret),
        (secret(), ".{0,40}").prop_map(|(secret, job)| Key::User { secret, job }),
        ".{0,40}".prop_map(Key::Job),
    ]
}

/// Hands `bytes` to the store's side in pieces of `pieces` bytes, in turn. Returns the answers, the verdict and how
/// many bytes it took.
fn hear(
    mut handshake: Handshake,
    key: &Key,
    bytes: &[u8],
    pieces: &[usize],
) -> (Vec<u8>, Verdict, usize) {
    let mut verifier = Verifier::new(key.clone());
    let mut pieces = pieces.iter().cycle();
    let (mut answers, mut taken) = (Vec::new(), 0);
    while taken < bytes.len() {
        let space = handshake.space();
        assert!(
            !space.is_empty(),
            "or else the store would take it for the end"
        );
        let count = space
            .len()
            .min(bytes.len() - taken)
            .min(*pieces.next().unwrap());
        space[..count].copy_from_slice(&bytes[taken..][..count]);
        taken += count;
        let step = handshake.advance(count, &mut verifier);
        answers.extend(step.answer);
        if step.verdict != Verdict::Pending {
            return (answers, step.verdict, taken);
        }
    }
    (answers, Verdict::Pending, taken)
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
    fn only_the_jobs_own_key_is_trusted_in_whatever_pieces_it_comes(
        own in key(), shown in key(), pieces in vec(1usize..20, 1..9)
    ) {
        let unix = || Handshake::new(Transport::Unix);
        let greeting = hello(&own);
        // The bytes behind the greeting belong to a message, and are not taken.
        let more = [greeting.as_slice(), b"message"].concat();
        let welcome = (b"welcome\n".to_vec(), Verdict::Trusted, greeting.len());
        prop_assert_eq!(hear(unix(), &own, &more, &pieces), welcome);
        let half = &greeting[..greeting.len() - 1];
        prop_assert_eq!(hear(unix(), &own, half, &pieces), (Vec::new(), Verdict::Pending, half.len()));
        prop_assume!(!own.is(shown.kind(), &shown.bytes()));
        let (answer, verdict, _) = hear(unix(), &own, &hello(&shown), &pieces);
        prop_assert_eq!(answer, b"refused\n");
        prop_assert!(matches!(verdict, Verdict::Refused(_)));
    }

    #[test]
    fn a_forged_greeting_is_refused_with_no_more_room_than_the_limit(
        mut bytes in vec(any::<u8>(), 12..400), has_magic: bool, kind in 0u8..5, own in key()
    ) {
        if has_magic {
            bytes[..8].copy_from_slice(b"symmem\0@");
            bytes[8] = kind;
        }
        let mut handshake = Handshake::new(Transport::Unix);
        handshake.space().copy_from_slice(&bytes[..11]);
        let step = handshake.advance(11, &mut Verifier::new(own.clone()));
        prop_assert!(step.verdict != Verdict::Trusted);
        if step.verdict == Verdict::Pending {
            let length = handshake.space().len();
            prop_assert!(has_magic && length <= MAX_KEY && length == usize::from(u16::from_le_bytes([bytes[9], bytes[10]])));
        }
        let (_, verdict, _) = hear(Handshake::new(Transport::Unix), &own, &bytes, &[7]);
        let length = usize::from(u16::from_le_bytes([bytes[9], bytes[10]]));
        let shown = bytes.get(11..11 + length);
        let allowed = has_magic && shown.is_some_and(|shown| own.is(kind, shown));
        prop_assert_eq!(verdict == Verdict::Trusted, allowed);
    }

    // Miri does not support getrandom, the source of the store's keys.
    #[cfg(feature = "tcp")]
    #[test]
    #[cfg_attr(miri, ignore)]
    fn no_bytes_are_a_proof(mut bytes in vec(any::<u8>(), 56..200), has_magic: bool, own in key()) {
        if has_magic {
            bytes[..8].copy_from_slice(b"symmem\0N");
        }
        let (answer, verdict, _) = hear(Handshake::new(Transport::Tcp), &own, &bytes, &[9, 1, 40]);
        prop_assert!(verdict != Verdict::Trusted);
        let is_greeting = has_magic && own.secret().is_some();
        prop_assert_eq!(answer, if is_greeting { b"refused\n".as_slice() } else { b"" });
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

#[test]
fn names_values_and_reasons_that_no_rank_sends_are_refused() {
    let text = |bytes| "t".repeat(bytes);
    let set = |key, value| Request::Set {
        key: text(key),
        value: vec![0; value],
    };
    let get = |key| Request::Get {
        key: text(key),
        deadline: 1,
    };
    let add = |key| Request::Add {
        key: text(key),
        amount: 1,
    };
    let gather = |tag| Request::AllGather {
        tag: text(tag),
        payload: Vec::new(),
        deadline: 1,
    };
    let fail = |reason| Request::Fail {
        reason: text(reason),
    };
    let (name, longer) = (MAX_NAME, MAX_NAME + 1);
    for (kept, refused) in [
        (set(name, 1), set(longer, 1)),
        (set(1, MAX_VALUE), set(1, MAX_VALUE + 1)),
        (get(name), get(longer)),
        (add(name), add(longer)),
        (gather(name), gather(longer)),
        (fail(MAX_REASON), fail(MAX_REASON + 1)),
    ] {
        let parse = |request: &Request| {
            let bytes = request.encode(1, 0);
            let frame = Frame::parse(&bytes).unwrap().unwrap();
            Request::parse(frame.kind, frame.body)
        };
        assert_eq!(parse(&kept), Ok(kept));
        assert!(matches!(parse(&refused), Err(MessageError::BadBody(_))));
    }
}

#[test]
fn what_the_store_repeats_of_a_request_is_still_a_message() {
    let (reason, tag) = ("r".repeat(MAX_REASON), "t".repeat(MAX_NAME));
    let bytes = vec![0; MAX_VALUE];
    for reply in [
        Reply::Failure(Failure::Failed { rank: 1, reason }),
        Reply::Failure(Failure::TagMismatch { rank: 1, tag }),
        Reply::Value { bytes },
    ] {
        assert!(reply.encode(1, 0).len() <= HEADER_BYTES + MAX_BODY);
    }
}
