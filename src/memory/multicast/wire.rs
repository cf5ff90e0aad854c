//! The messages of the multicast setup as bytes, and the decisions that all ranks derive from them alike: what
//! their backends offer, the object, and the parts of it in use.

use crate::backend::abi::{ExportedHandle, MulticastSupportCode, ShareKindCode, Status};
use crate::backend::{Backend, Failure, Multicast as _};

/// One rank's offer: what its backend supports.
pub struct RankSupport {
    pub support: MulticastSupportCode,
    /// A digest of the resident grids of the multicast kernels on its device.
    pub kernels: u64,
    pub why: String,
}

impl RankSupport {
    /// Queries the backend.
    pub fn of(backend: &Backend, kernels: u64) -> Self {
        let none = |failure: Failure| Self {
            support: MulticastSupportCode::NONE,
            kernels,
            why: failure.message,
        };
        match backend.multicast_support() {
            // A plugin that is older than multicast does not support it.
            Err(failure) => none(failure),
            Ok(MulticastSupportCode::NONE) => match backend.multicast_granularity(1, 1) {
                Err(failure) => none(failure),
                Ok(_) => none(Failure::new(Status::UNSUPPORTED, "", "no reason was given")),
            },
            Ok(support) => Self {
                support,
                kernels,
                why: String::new(),
            },
        }
    }

    /// Encodes the offer.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = self.support.0.to_le_bytes().to_vec();
        bytes.extend(self.kernels.to_le_bytes());
        // Longer reasons are cut.
        bytes.extend(self.why.chars().take(512).collect::<String>().as_bytes());
        bytes
    }

    /// Decodes an offer; `None` if it is too short.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let (support, rest) = bytes.split_first_chunk()?;
        let (kernels, why) = rest.split_first_chunk()?;
        Some(Self {
            support: MulticastSupportCode(u32::from_le_bytes(*support)),
            kernels: u64::from_le_bytes(*kernels),
            why: String::from_utf8_lossy(why).into_owned(),
        })
    }
}

/// Returns the support that all ranks have in common, or the reason why there is none; the same on every rank.
pub fn agreed(
    offers: &[RankSupport],
    kind: ShareKindCode,
    sharers: u32,
) -> std::result::Result<MulticastSupportCode, String> {
    let first = offers[0].support;
    for (rank, offer) in offers.iter().enumerate() {
        match offer.support {
            MulticastSupportCode::NONE => return Err(format!("rank {rank}: {}", offer.why)),
            support if support != first => {
                let (mine, theirs) = (first.name(), support.name());
                return Err(format!(
                    "rank 0 supports {mine}, rank {rank} supports {theirs}"
                ));
            }
            _ if offer.kernels != offers[0].kernels => {
                return Err(format!(
                    "rank {rank}: its device can hold different grids of the multicast kernels than rank 0's"
                ));
            }
            _ => {}
        }
    }
    match first {
        MulticastSupportCode::EMULATED => Ok(first),
        MulticastSupportCode::HARDWARE if offers.len() == 1 => {
            Err("a world of one rank does not need it".into())
        }
        MulticastSupportCode::HARDWARE if sharers > 1 => Err(format!(
            "{sharers} ranks share a device, which can join a multicast object only once"
        )),
        MulticastSupportCode::HARDWARE if kind != ShareKindCode::VMM_FILE_DESCRIPTOR => {
            Err(format!(
                "memory shared by {} cannot be bound to a multicast object",
                kind.name()
            ))
        }
        MulticastSupportCode::HARDWARE => Ok(first),
        other => Err(format!("support {} is unknown to this version", other.0)),
    }
}

/// A part of the object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// Offset of its first byte.
    pub offset: u64,
    /// Bytes.
    pub bytes: u64,
}

impl Part {
    fn end(self) -> u64 {
        self.offset + self.bytes
    }
}

/// Returns the first free part of `bytes` bytes.
fn first_fit(mut taken: Vec<Part>, size: u64, bytes: u64) -> Option<Part> {
    taken.sort_by_key(|part| part.offset);
    let mut offset = 0;
    for part in taken {
        if part.offset >= offset && part.offset - offset >= bytes {
            break;
        }
        offset = offset.max(part.end());
    }
    let fits = bytes > 0 && size.checked_sub(offset)? >= bytes;
    fits.then_some(Part { offset, bytes })
}

/// Encodes a rank's message before its memory is bound: the bytes to bind, and the parts that it uses.
pub fn encode_request(bytes: u64, parts: &[Part]) -> Vec<u8> {
    [&bytes.to_le_bytes()[..], &encode_parts(parts)].concat()
}

/// Returns the part to bind on every rank, or `None` if there is no room. All ranks evaluate the same messages,
/// so all find the same part.
///
/// # Errors
/// The reason, if ranks would bind different sizes.
pub fn place<'a>(
    requests: impl Iterator<Item = &'a [u8]>,
    size: u64,
) -> std::result::Result<Option<Part>, String> {
    let (mut first, mut taken) = (None, Vec::new());
    for (rank, request) in requests.enumerate() {
        let (bytes, parts) = request
            .split_first_chunk()
            .ok_or_else(|| format!("rank {rank} did not send the size of the memory to bind"))?;
        let bytes = u64::from_le_bytes(*bytes);
        let first = *first.get_or_insert(bytes);
        if bytes != first {
            return Err(format!(
                "rank 0 has {first} bytes to bind, rank {rank} has {bytes}"
            ));
        }
        taken.extend(decode_parts(parts));
    }
    Ok(first_fit(taken, size, first.unwrap_or(0)))
}

/// Encodes parts.
fn encode_parts(parts: &[Part]) -> Vec<u8> {
    let numbers = parts.iter().flat_map(|part| [part.offset, part.bytes]);
    numbers.flat_map(u64::to_le_bytes).collect()
}

/// Decodes a peer's parts; leaves out damaged ones, and ones that exceed the address space.
pub fn decode_parts(bytes: &[u8]) -> Vec<Part> {
    let (parts, _) = bytes.as_chunks::<16>();
    let number = |half: &[u8]| {
        half.iter()
            .rev()
            .fold(0, |sum, &byte| sum << 8 | u64::from(byte))
    };
    let part = |bytes: &[u8; 16]| Part {
        offset: number(&bytes[..8]),
        bytes: number(&bytes[8..]),
    };
    let sound = |part: &Part| part.offset.checked_add(part.bytes).is_some();
    parts.iter().map(part).filter(sound).collect()
}

/// Encodes an object: device, bytes, the backend's opaque handle, and the granularity.
pub fn encode(exported: &ExportedHandle, granularity: u64) -> Vec<u8> {
    let mut bytes = exported.kind.0.to_le_bytes().to_vec();
    bytes.extend_from_slice(&exported.device.to_le_bytes());
    bytes.extend_from_slice(&exported.bytes.to_le_bytes());
    bytes.extend_from_slice(&exported.opaque);
    bytes.extend_from_slice(&granularity.to_le_bytes());
    bytes
}

/// Decodes an object; `None` if it is too short or its granularity is 0.
pub fn decode(bytes: &[u8]) -> Option<(ExportedHandle, u64)> {
    let (kind, rest) = bytes.split_first_chunk()?;
    let (device, rest) = rest.split_first_chunk()?;
    let (size, rest) = rest.split_first_chunk()?;
    let (opaque, rest) = rest.split_first_chunk()?;
    let granularity = u64::from_le_bytes(rest.try_into().ok()?);
    let exported = ExportedHandle {
        kind: ShareKindCode(u32::from_le_bytes(*kind)),
        device: u32::from_le_bytes(*device),
        offset: 0,
        bytes: u64::from_le_bytes(*size),
        address: 0,
        opaque: *opaque,
        descriptor: -1,
        reserved: 0,
    };
    (granularity > 0).then_some((exported, granularity))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(offset: u64, bytes: u64) -> Part {
        Part { offset, bytes }
    }

    #[test]
    fn a_part_is_the_first_place_that_no_rank_uses() {
        assert_eq!(first_fit(vec![], 8, 4), Some(part(0, 4)));
        let ranks = || vec![part(4, 2), part(0, 2), part(4, 4), part(0, 2)];
        assert_eq!(first_fit(ranks(), 16, 2), Some(part(2, 2)));
        assert_eq!(first_fit(ranks(), 16, 3), Some(part(8, 3)));
        assert_eq!(first_fit(ranks(), 16, 8), Some(part(8, 8)));
        assert_eq!(first_fit(ranks(), 16, 9), None);
        assert_eq!(first_fit(vec![], 8, 0), None);
        // A peer's message need not be valid.
        assert_eq!(first_fit(vec![part(100, 1)], 8, 8), Some(part(0, 8)));
        assert_eq!(first_fit(vec![part(0, u64::MAX)], 8, 8), None);
    }

    #[test]
    fn all_ranks_bind_as_many_bytes_at_the_same_place_or_none_does() {
        let place = |requests: &[Vec<u8>]| place(requests.iter().map(Vec::as_slice), 16);
        let requests = [
            encode_request(4, &[part(0, 4)]),
            encode_request(4, &[part(0, 4), part(4, 4)]),
        ];
        assert_eq!(place(&requests), Ok(Some(part(8, 4))));
        assert_eq!(place(&[encode_request(17, &[])]), Ok(None));
        // A rank that rounded differently.
        let other = [
            encode_request(4, &[]),
            encode_request(4, &[]),
            encode_request(8, &[]),
        ];
        let why = place(&other).unwrap_err();
        assert!(why.contains("4 bytes to bind, rank 2 has 8"), "{why}");
        assert!(place(&[vec![0; 7]]).unwrap_err().contains("rank 0"));
    }

    #[test]
    fn parts_survive_their_way_and_impossible_ones_are_left_out() {
        let parts = [part(0, 4096), part(1 << 40, u64::from(u32::MAX))];
        assert_eq!(decode_parts(&encode_parts(&parts)), parts);
        let mut sent = encode_parts(&[part(u64::MAX, 2)]);
        sent.push(7);
        assert_eq!(decode_parts(&sent), []);
    }

    #[test]
    fn an_object_survives_its_way_and_a_short_one_is_refused() {
        let exported = ExportedHandle {
            kind: ShareKindCode::VMM_FILE_DESCRIPTOR,
            device: 3,
            offset: 0,
            bytes: 1 << 30,
            address: 0,
            opaque: [7; 64],
            descriptor: -1,
            reserved: 0,
        };
        let sent = encode(&exported, 2 << 20);
        let (found, granularity) = decode(&sent).expect("whole");
        assert_eq!(
            (found.device, found.bytes, found.opaque),
            (3, 1 << 30, [7; 64])
        );
        assert_eq!((found.kind, granularity), (exported.kind, 2 << 20));
        assert!(decode(&sent[1..]).is_none());
        assert!(decode(&encode(&exported, 0)).is_none());
        let offer = RankSupport {
            support: MulticastSupportCode::HARDWARE,
            kernels: 9,
            why: "it is off".into(),
        };
        let offer = RankSupport::decode(&offer.encode());
        let offer = offer.expect("whole");
        assert_eq!(
            (offer.support, offer.kernels, &*offer.why),
            (MulticastSupportCode::HARDWARE, 9, "it is off")
        );
        assert!(RankSupport::decode(&[1, 0, 0]).is_none());
    }

    fn offers(supports: &[MulticastSupportCode]) -> Vec<RankSupport> {
        let offer = |&support| RankSupport {
            support,
            kernels: 9,
            why: "it is off".into(),
        };
        supports.iter().map(offer).collect()
    }

    #[test]
    fn all_ranks_have_it_or_none_and_the_first_that_lacks_it_is_named() {
        use MulticastSupportCode as S;
        let kind = ShareKindCode::VMM_FILE_DESCRIPTOR;
        let (two, hardware) = (offers(&[S::HARDWARE; 2]), offers(&[S::HARDWARE]));
        assert_eq!(agreed(&two, kind, 1), Ok(S::HARDWARE));
        assert_eq!(
            agreed(&offers(&[S::EMULATED]), ShareKindCode::MEMORY_FILE, 2),
            Ok(S::EMULATED)
        );
        let mut unlike = offers(&[S::HARDWARE; 2]);
        unlike[1].kernels = 8;
        let without = [
            (
                agreed(&unlike, kind, 1),
                "rank 1: its device can hold different",
            ),
            (
                agreed(&offers(&[S::HARDWARE, S::NONE]), kind, 1),
                "rank 1: it is off",
            ),
            (
                agreed(&offers(&[S::HARDWARE, S::EMULATED]), kind, 1),
                "rank 1 supports EMULATED",
            ),
            (agreed(&two, kind, 2), "2 ranks share"),
            (agreed(&two, ShareKindCode::LEGACY_IPC, 1), "LEGACY_IPC"),
            (agreed(&hardware, kind, 1), "one rank"),
            (agreed(&offers(&[S(9); 2]), kind, 1), "unknown"),
        ];
        for (agreed, words) in without {
            let reason = agreed.unwrap_err();
            assert!(reason.contains(words), "{reason}");
        }
    }
}
