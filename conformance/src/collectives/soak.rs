//! Mixed collectives on several streams and channels at once, for a given time.
//!
//! The calls come in bursts. In a burst, each stream repeats one random collective: any operation,
//! algorithm, type, size and group, eager or captured. Every rank visits the streams in a different
//! order, since channels do not wait for each other. After each burst, all memory is compared.
//!
//! A crowded soak makes large calls with the selector's grids, on all channels and two groups, while a user's kernel
//! takes the device's units away. If the grids did not fit together, its ranks would wait for each other.

use super::case::{
    AlgorithmName, CollectiveCase, Members, Mode, OwnMemory, Reduction, StreamOwner, Values,
};
use super::lane::Lane;
use super::neighbor::Neighbor;
use super::plan;
use super::soak_case::{SoakCase, SoakLoad};
use crate::covering::Random;
use crate::dtype::Dtype;
use crate::findings::Findings;
use crate::length::{Length, OFFSETS};
use std::time::{Duration, Instant};
use symmem::backend::abi::{CAPABILITY_GRAPHS, Capabilities};
use symmem::{Communicator, Result, Stream};

/// The extent of bursts.
struct Extent {
    /// Number of bursts between two checks of the time.
    bursts: u64,
    /// Maximum size of a call's longest range, in bytes.
    bytes: usize,
    /// Maximum number of times that this size is halved.
    halvings: usize,
    /// Maximum number of repetitions of a call in a burst.
    calls: usize,
}

impl Extent {
    const fn of(soak: &SoakCase) -> Self {
        match soak.load {
            SoakLoad::Mixed | SoakLoad::Nccl => Self {
                bursts: 8,
                bytes: 256 << 10,
                halvings: 14,
                calls: 4,
            },
            SoakLoad::Crowded => Self {
                bursts: 1,
                bytes: 8 << 20,
                halvings: 4,
                calls: 24,
            },
        }
    }
}

/// The call of one stream in a burst.
pub struct Planned {
    pub case: CollectiveCase,
    /// Number of repetitions.
    pub calls: usize,
}

/// Returns the call of each stream in burst `number`; the same on all ranks. Over nodes no call is planned that groups over
/// nodes refuse: the members of a group inside a node would make it, and wait for calls of those who stopped.
pub fn burst(
    soak: &SoakCase,
    number: u64,
    capabilities: &Capabilities,
    (multicast, over_nodes): (bool, bool),
) -> Vec<Planned> {
    let mut random = Random(soak.seed ^ number.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let variants: Vec<_> = plan::variants()
        .into_iter()
        .filter(|variant| match soak.load {
            SoakLoad::Nccl => variant.algorithm == AlgorithmName::Vendor,
            _ => !variant.algorithm.is_nccl(),
        })
        .filter(|variant| multicast || !variant.algorithm.is_multicast())
        .collect();
    let has_graphs = capabilities.flags & CAPABILITY_GRAPHS != 0;
    let extent = Extent::of(soak);
    let crowded = soak.load == SoakLoad::Crowded;
    let mut planned = Vec::new();
    while planned.len() < soak.streams() {
        let variant = variants[random.below(variants.len())];
        let dtype = Dtype::ALL[random.below(Dtype::ALL.len())];
        let reduction = Reduction::ALL[random.below(Reduction::ALL.len())];
        let (dtype, reduction) = plan::reduced(variant, (dtype, reduction), &mut random);
        // Each power of two is equally likely, so that small calls are as frequent as large ones.
        let most = extent.bytes >> random.below(extent.halvings + 1);
        let captured = has_graphs && random.below(3) == 0;
        let members = match crowded {
            true => [Members::All, Members::Reversed][planned.len() % 2],
            false => Members::ALL[random.below(Members::ALL.len())],
        };
        let case = CollectiveCase {
            variant,
            dtype,
            reduction,
            length: Length::Around {
                bytes: random.below(most + 1).next_multiple_of(8),
                delta: random.below(3) as isize,
            },
            destination_offset: OFFSETS[random.below(OFFSETS.len())],
            source_offset: OFFSETS[random.below(OFFSETS.len())],
            in_place: plan::is_in_place(variant, random.below(2) == 1),
            mode: if captured {
                Mode::Captured
            } else {
                Mode::Eager
            },
            members: match crowded {
                true => members,
                false => plan::members(variant, members, &mut random),
            },
            own: OwnMemory::Neither,
            stream: StreamOwner::Library,
            channel: 0,
            blocks: match crowded {
                true => 0,
                false => [0, 1, 2, 4][random.below(4)],
            },
            values: plan::values(variant, random.below(Values::EXACT.len())),
            seed: random.number(),
        };
        // By the seed, since another draw would change all later calls.
        let own = OwnMemory::ALL[(case.seed >> 32) as usize % OwnMemory::ALL.len()];
        let case = CollectiveCase {
            own: plan::own_memory(variant, own),
            ..case
        };
        let refused = over_nodes && case.wraps_between_nodes();
        if case.missing(capabilities).is_none() && !refused {
            let calls = 1 + random.below(extent.calls);
            planned.push(Planned { case, calls });
        }
    }
    planned
}

/// Makes the calls of a burst, each lane on its own stream, and compares the results. A lane is `None` if
/// this rank is not a member. Launches `neighbor` between the calls.
pub fn run(
    communicator: &Communicator,
    planned: &[Planned],
    lanes: &[Option<Lane<'_>>],
    streams: &mut [Stream],
    mut neighbor: Option<&mut Neighbor>,
) -> Result<Findings> {
    let mut graphs = Vec::new();
    for ((planned, lane), stream) in planned.iter().zip(lanes).zip(&mut *streams) {
        let mut graph = None;
        if let Some(lane) = lane {
            lane.fill(stream, 0)?;
            if planned.case.mode == Mode::Captured {
                graph = Some(stream.capture(|queue| lane.enqueue(queue))?);
            }
        }
        graphs.push(graph);
    }
    let most = planned.iter().map(|planned| planned.calls).max();
    for call in 0..most.unwrap_or(0) {
        if let Some(neighbor) = neighbor.as_mut() {
            neighbor.launch()?;
        }
        for turn in 0..lanes.len() {
            let number = (turn + communicator.rank()) % lanes.len();
            let (Some(lane), true) = (&lanes[number], call < planned[number].calls) else {
                continue;
            };
            match &graphs[number] {
                Some(graph) => streams[number].launch_graph(graph)?,
                None => lane.enqueue(&streams[number])?,
            }
        }
    }
    let mut findings = Findings::new();
    for ((planned, lane), stream) in planned.iter().zip(lanes).zip(streams) {
        if let Some(lane) = lane
            && let Some(found) = lane.compare(stream, 0)?
        {
            findings.push(format!("{}: {found}", planned.case));
        }
    }
    if let Some(neighbor) = neighbor {
        neighbor.compare(&mut findings)?;
    }
    Ok(findings)
}

/// Runs bursts until the time is over or a burst has findings; all ranks stop after the same burst.
pub fn repeat(
    communicator: &Communicator,
    soak: &SoakCase,
    mut burst: impl FnMut(u64) -> Result<Findings>,
) -> Result<Findings> {
    let started = Instant::now();
    let limit = Duration::from_millis(soak.milliseconds);
    let mut findings = Findings::new();
    for number in 0.. {
        findings.extend(burst(number)?);
        if number % Extent::of(soak).bursts != 0 {
            continue;
        }
        // Stop if rank 0's time is over, or if any rank has findings.
        let is_over =
            (communicator.rank() == 0 && started.elapsed() >= limit) || !findings.is_empty();
        let answers = communicator.host_all_gather(&[u8::from(is_over)])?;
        if answers.iter().any(|answer| answer.as_slice() != [0]) {
            break;
        }
    }
    Ok(findings)
}
