//! The candidates for an operation at a size.

use crate::collectives::how::is_multicast;
use crate::report::Collective;
use symmem::backend::abi::{
    AlgorithmCode, PACKET_BLOCKS, ReduceLamportArguments, ReduceOpCode, SLOT_BLOCKS,
};
use symmem::{Algorithm, ElementType};

/// Size in bytes from which limited numbers of concurrent copies are tried; below, only all at once.
const LEAST_IN_STEP: u64 = 256 << 10;

/// An algorithm with its geometry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Candidate {
    pub algorithm: Algorithm,
    /// Blocks and threads; `None` if the candidate does not set a grid.
    pub grid: Option<(u32, u32)>,
    /// Number of concurrent copies; 0 for the selector's choice.
    pub concurrent: u32,
}

impl Candidate {
    pub fn is_nccl(self) -> bool {
        self.algorithm == Algorithm::Nccl
    }

    /// Whether the candidate works with these features.
    pub fn serves_with(self, present: Features) -> bool {
        (present.vendor || !self.is_nccl())
            && (present.multicast || !is_multicast(self.algorithm))
            && (present.lamport || !AlgorithmCode::from(self.algorithm).is_lamport())
    }
}

/// Features of this run that a program that reads the table may not have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Features {
    /// NCCL or RCCL is open.
    pub vendor: bool,
    /// Hardware multicast reaches the buffers of a call.
    pub multicast: bool,
    /// Lamport packets can carry a call: those on other channels cannot be, nor sums of other element types.
    pub lamport: bool,
}

impl Features {
    /// Returns the features that an operation on elements of this type can use. Lamport packets move any type, and add
    /// some.
    pub fn of(self, collective: Collective, element: ElementType) -> Self {
        let adds = ReduceLamportArguments::can_carry(element.into(), ReduceOpCode::SUM);
        Self {
            lamport: self.lamport && (adds || !collective.reduces()),
            ..self
        }
    }

    /// Returns this set of features and all its subsets.
    pub fn or_less(self) -> impl Iterator<Item = Self> {
        let without = |it: bool| [false, true].into_iter().filter(move |&has| it || !has);
        without(self.vendor).flat_map(move |vendor| {
            without(self.multicast).flat_map(move |multicast| {
                without(self.lamport).map(move |lamport| Self {
                    vendor,
                    multicast,
                    lamport,
                })
            })
        })
    }
}

/// Returns the algorithms of an operation, and the size in bytes up to which each is tried. LL packets move
/// twice the bytes, and a one-shot all-reduce moves all elements to all ranks. Between two ranks, Lamport packets send as
/// much in a reduce-scatter of twice the size.
fn algorithms(collective: Collective) -> &'static [(Algorithm, u64)] {
    const MIB: u64 = 1 << 20;
    const ANY: u64 = u64::MAX;
    const PACKETS: (Algorithm, u64) = (Algorithm::Ll, 4 * MIB);
    const LAMPORT: (Algorithm, u64) = (Algorithm::Lamport, 16 * MIB);
    match collective {
        Collective::AllReduce => &[
            LAMPORT,
            (Algorithm::LamportTwoShot, 16 * MIB),
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
            LAMPORT,
            PACKETS,
            (Algorithm::OneShot, ANY),
            (Algorithm::TwoShot, ANY),
        ],
        Collective::ReduceScatter => &[
            (Algorithm::Lamport, 32 * MIB),
            PACKETS,
            (Algorithm::OneShot, ANY),
            (Algorithm::Multicast, ANY),
            (Algorithm::Push, ANY),
        ],
        Collective::AllToAll => &[
            LAMPORT,
            PACKETS,
            (Algorithm::Push, ANY),
            (Algorithm::Pull, ANY),
            (Algorithm::Swap, ANY),
            (Algorithm::CopyEngine, ANY),
        ],
        Collective::AllGather => &[
            LAMPORT,
            PACKETS,
            (Algorithm::Multicast, ANY),
            (Algorithm::Push, ANY),
            (Algorithm::Pull, ANY),
            (Algorithm::CopyEngine, ANY),
        ],
        Collective::Broadcast => &[
            LAMPORT,
            PACKETS,
            (Algorithm::Multicast, ANY),
            (Algorithm::Push, ANY),
            (Algorithm::Pull, ANY),
            (Algorithm::TwoShot, ANY),
        ],
        Collective::Gather | Collective::Scatter => &[
            LAMPORT,
            PACKETS,
            (Algorithm::Push, ANY),
            (Algorithm::Pull, ANY),
        ],
    }
}

/// Returns all candidates for a size.
pub(super) fn candidates(
    collective: Collective,
    bytes: u64,
    by_caller: bool,
    present: Features,
) -> Vec<Candidate> {
    // With one block per 256 bytes, a warp makes one access, so more blocks would idle. From 64 MiB on,
    // fewer than 16 blocks would take longer than all other trials together.
    let least = match bytes >> 20 {
        0..4 => 1,
        4..64 => 8,
        _ => 16,
    };
    let most = (bytes >> 8).clamp(1, u64::from(SLOT_BLOCKS)) as u32;
    let mut all = Vec::new();
    // First, so that much slower candidates are dropped early.
    all.extend(present.vendor.then_some(Candidate {
        algorithm: Algorithm::Nccl,
        grid: None,
        concurrent: 0,
    }));
    for &(algorithm, limit) in algorithms(collective) {
        let absent = is_multicast(algorithm) && !present.multicast
            || AlgorithmCode::from(algorithm).is_lamport() && !present.lamport;
        if bytes > limit || absent {
            continue;
        }
        if by_caller || algorithm == Algorithm::CopyEngine {
            // 0 is the selector's choice for the size; one copy at a time, or two, may be faster on this machine.
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
        // A block of Lamport packets holds few vectors: one and two blocks on each of an H100's 132 multiprocessors.
        let many: &[u32] = match algorithm {
            Algorithm::Lamport | Algorithm::LamportTwoShot => &[132, 264],
            _ => &[],
        };
        let blocks = [1, 2, 4, 8, 12, 16, 20, 24, 28, 32, 48, 64, 96, 128];
        for &blocks in blocks.iter().chain(many) {
            if blocks < least.min(most) || blocks > most {
                continue;
            }
            // Only copies can be limited in concurrency, and small ones end before that matters.
            let copies = !collective.reduces()
                && matches!(
                    algorithm,
                    Algorithm::Push | Algorithm::Pull | Algorithm::Swap
                );
            let concurrents: &[u32] = if copies && bytes >= LEAST_IN_STEP {
                &[0, 1, 2]
            } else {
                &[0]
            };
            // Lamport packets take few threads a block for few bytes, and kernels of at most 512. A move has marks beside its
            // data: 264 blocks of 256 threads hold 4 MiB of elements, those of 288 also the marks of 4 MiB.
            let threads: &[u32] = match algorithm {
                Algorithm::LamportTwoShot => &[64, 128, 256, 512],
                Algorithm::Lamport if collective.reduces() => &[64, 128, 256, 512],
                Algorithm::Lamport => &[64, 128, 256, 288, 512],
                _ => &[256, 512, 1024],
            };
            for &threads in threads {
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
            let present = Features {
                multicast,
                ..Features::default()
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

    const LAMPORT: Features = Features {
        vendor: false,
        multicast: false,
        lamport: true,
    };

    /// Returns the grids of Lamport packets that are tried for an operation on elements of a type.
    fn lamport_grids(collective: Collective, element: ElementType, bytes: u64) -> Vec<(u32, u32)> {
        let all = candidates(collective, bytes, false, LAMPORT.of(collective, element));
        let lamport = all
            .into_iter()
            .filter(|one| one.algorithm == Algorithm::Lamport);
        lamport.filter_map(|one| one.grid).collect()
    }

    #[test]
    fn lamport_packets_are_tried_for_moves_of_any_type_and_for_the_sums_that_they_carry() {
        use Collective as C;
        let tried = |element| {
            let all = C::ALL.into_iter();
            let tried = all.filter(|&one| !lamport_grids(one, element, 1 << 20).is_empty());
            tried.collect::<Vec<_>>()
        };
        assert_eq!(tried(ElementType::F16), C::ALL);
        let moves = C::ALL.into_iter().filter(|one| !one.reduces());
        let moves: Vec<_> = moves.collect();
        for element in [ElementType::I32, ElementType::U8, ElementType::F64] {
            assert_eq!(tried(element), moves, "{element:?}");
        }
        let without = Features::default().of(C::AllGather, ElementType::F16);
        assert!(!without.lamport);
    }

    #[test]
    fn lamport_packets_are_tried_up_to_twice_the_largest_row_and_on_every_multiprocessor() {
        use Collective as C;
        const MIB: u64 = 1 << 20;
        for (collective, most) in [
            (C::AllReduce, 16 * MIB),
            (C::AllGather, 16 * MIB),
            (C::AllToAll, 16 * MIB),
            // Of both shares, of which one is sent.
            (C::ReduceScatter, 32 * MIB),
        ] {
            let grids = |bytes| lamport_grids(collective, ElementType::F16, bytes);
            for grid in [(132, 512), (264, 256)] {
                assert!(grids(most).contains(&grid), "{collective:?}: {grid:?}");
            }
            assert_eq!(grids(2 * most), [], "{collective:?}");
            // A warp for each block.
            assert!(grids(32 << 10).iter().all(|&(blocks, _)| blocks <= 128));
        }
        let all = candidates(C::AllReduce, 16 * MIB, false, LAMPORT);
        let others = all
            .iter()
            .filter(|one| !AlgorithmCode::from(one.algorithm).is_lamport());
        let mut others = others.filter_map(|one| one.grid);
        assert!(others.all(|(blocks, _)| blocks <= 128));
    }

    #[test]
    fn every_operation_has_candidates_at_every_size_and_packets_few_blocks() {
        for collective in Collective::ALL {
            for shift in [3, 10, 16, 20, 24, 30] {
                for by_caller in [true, false] {
                    let all = candidates(collective, 1 << shift, by_caller, Features::default());
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
