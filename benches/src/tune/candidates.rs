//! What is tried for an operation at a size.

use crate::collectives::how::is_multicast;
use crate::report::Collective;
use symmem::Algorithm;
use symmem::backend::abi::{PACKET_BLOCKS, SLOT_BLOCKS};

/// Bytes below which copies are tried all at once only.
const LEAST_IN_STEP: u64 = 256 << 10;

/// One way to do an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Candidate {
    pub algorithm: Algorithm,
    /// Blocks and threads; `None` where no grid is chosen.
    pub grid: Option<(u32, u32)>,
    /// Copies under way at once; 0 for as many as there are.
    pub concurrent: u32,
}

impl Candidate {
    pub fn is_vendor(self) -> bool {
        self.algorithm == Algorithm::Nccl
    }

    /// Whether it can be gone by in a program that has so much.
    pub fn serves_with(self, present: Present) -> bool {
        (present.vendor || !self.is_vendor())
            && (present.multicast || !is_multicast(self.algorithm))
    }
}

/// What there is, and need not be wherever a table is read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Present {
    /// The vendor's library, open.
    pub vendor: bool,
    /// A switch's multicast, for the buffers of a call.
    pub multicast: bool,
}

impl Present {
    /// This, and each way to have less of it.
    pub fn or_less(self) -> impl Iterator<Item = Self> {
        let without = |it: bool| [false, true].into_iter().filter(move |&has| it || !has);
        without(self.vendor).flat_map(move |vendor| {
            without(self.multicast).map(move |multicast| Self { vendor, multicast })
        })
    }
}

/// The algorithms that an operation may have, and the sizes up to which each is worth a trial: packets
/// move twice the bytes, and one shot of an all-reduce moves everything to everybody.
fn algorithms(collective: Collective) -> &'static [(Algorithm, u64)] {
    const MIB: u64 = 1 << 20;
    const ANY: u64 = u64::MAX;
    const PACKETS: (Algorithm, u64) = (Algorithm::Ll, 4 * MIB);
    match collective {
        Collective::AllReduce => &[
            PACKETS,
            (Algorithm::LlTwoShot, 16 * MIB),
            (Algorithm::OneShot, 16 * MIB),
            (Algorithm::MulticastOneShot, 16 * MIB),
            (Algorithm::Multicast, ANY),
            (Algorithm::TwoShot, ANY),
            (Algorithm::Push, ANY),
            (Algorithm::CopyEngine, ANY),
        ],
        Collective::Reduce => &[
            PACKETS,
            (Algorithm::OneShot, ANY),
            (Algorithm::TwoShot, ANY),
        ],
        Collective::ReduceScatter => &[
            PACKETS,
            (Algorithm::OneShot, ANY),
            (Algorithm::Multicast, ANY),
            (Algorithm::Push, ANY),
        ],
        Collective::AllToAll => &[
            PACKETS,
            (Algorithm::Push, ANY),
            (Algorithm::Pull, ANY),
            (Algorithm::Swap, ANY),
            (Algorithm::CopyEngine, ANY),
        ],
        Collective::AllGather => &[
            PACKETS,
            (Algorithm::Multicast, ANY),
            (Algorithm::Push, ANY),
            (Algorithm::Pull, ANY),
            (Algorithm::CopyEngine, ANY),
        ],
        Collective::Broadcast => &[
            PACKETS,
            (Algorithm::Multicast, ANY),
            (Algorithm::Push, ANY),
            (Algorithm::Pull, ANY),
            (Algorithm::TwoShot, ANY),
        ],
        Collective::Gather | Collective::Scatter => {
            &[PACKETS, (Algorithm::Push, ANY), (Algorithm::Pull, ANY)]
        }
    }
}

/// Everything that is tried at a size.
pub(super) fn candidates(
    collective: Collective,
    bytes: u64,
    by_caller: bool,
    present: Present,
) -> Vec<Candidate> {
    // With a block for each 256 bytes a warp has one access to make: more would idle. And 64 MiB by
    // fewer than 16 blocks takes longer than all other trials together.
    let least = match bytes >> 20 {
        0..4 => 1,
        4..64 => 8,
        _ => 16,
    };
    let most = (bytes >> 8).clamp(1, u64::from(SLOT_BLOCKS)) as u32;
    let mut all = Vec::new();
    // First: what is far behind it is soon left.
    all.extend(present.vendor.then_some(Candidate {
        algorithm: Algorithm::Nccl,
        grid: None,
        concurrent: 0,
    }));
    for &(algorithm, limit) in algorithms(collective) {
        if bytes > limit || is_multicast(algorithm) && !present.multicast {
            continue;
        }
        if by_caller || algorithm == Algorithm::CopyEngine {
            // 0 is what the size is worth; one after the other or cut in two may be better here.
            let concurrents: &[u32] = if !by_caller && bytes >= LEAST_IN_STEP {
                &[0, 1, 2]
            } else {
                &[0]
            };
            all.extend(concurrents.iter().map(|&concurrent| Candidate {
                algorithm,
                grid: None,
                concurrent,
            }));
            continue;
        }
        let in_packets = matches!(algorithm, Algorithm::Ll | Algorithm::LlTwoShot);
        let most = if in_packets {
            most.min(PACKET_BLOCKS)
        } else {
            most
        };
        for blocks in [1, 2, 4, 8, 12, 16, 20, 24, 28, 32, 48, 64, 96, 128] {
            if blocks < least.min(most) || blocks > most {
                continue;
            }
            // Only copies can be one after the other, and small ones are over before that matters.
            let reduces = matches!(
                collective,
                Collective::AllReduce | Collective::Reduce | Collective::ReduceScatter
            );
            let copies = !reduces
                && matches!(
                    algorithm,
                    Algorithm::Push | Algorithm::Pull | Algorithm::Swap
                );
            let concurrents: &[u32] = if copies && bytes >= LEAST_IN_STEP {
                &[0, 1, 2]
            } else {
                &[0]
            };
            for threads in [256, 512, 1024] {
                all.extend(concurrents.iter().map(|&concurrent| Candidate {
                    algorithm,
                    grid: Some((blocks, threads)),
                    concurrent,
                }));
            }
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn multicast_is_tried_where_there_is_a_switch_and_an_operation_goes_by_it() {
        let goes = |collective, multicast| {
            let present = Present {
                vendor: false,
                multicast,
            };
            let all = candidates(collective, 1 << 20, false, present);
            all.iter().any(|one| is_multicast(one.algorithm))
        };
        let by_switch: Vec<Collective> = (Collective::ALL.into_iter())
            .filter(|&collective| goes(collective, true))
            .collect();
        use Collective as C;
        assert_eq!(
            by_switch,
            [C::AllReduce, C::AllGather, C::ReduceScatter, C::Broadcast]
        );
        assert!(Collective::ALL.iter().all(|&one| !goes(one, false)));
    }

    #[test]
    fn every_operation_has_candidates_at_every_size_and_packets_few_blocks() {
        for collective in Collective::ALL {
            for shift in [3, 10, 16, 20, 24, 30] {
                for by_caller in [true, false] {
                    let all = candidates(collective, 1 << shift, by_caller, Present::default());
                    assert!(!all.is_empty(), "{collective:?} {shift}");
                    for one in all.iter().filter(|one| one.algorithm == Algorithm::Ll) {
                        let blocks = one.grid.map_or(1, |(blocks, _)| blocks);
                        assert!(blocks <= PACKET_BLOCKS);
                    }
                }
            }
        }
    }
}
