//! Runs one case: makes its calls, with new data each time, and compares.

use super::case::{CollectiveCase, Mode};
use super::lane::{Lane, Site};
use super::multicast::MulticastKernels;
use crate::buffers::Memory;
use crate::findings::{Fault, Findings};
use std::time::Duration;
use symmem::backend::abi::CAPABILITY_GRAPHS;
use symmem::{Algorithm, Error, Result, Stream};

/// How late a rank is that is made to be late.
const LATE: Duration = Duration::from_micros(300);

/// Lanes of a case.
pub fn lanes(case: &CollectiveCase) -> usize {
    match case.mode {
        Mode::Concurrent => 2,
        Mode::Eager | Mode::Captured => 1,
    }
}

/// Runs a case with buffers and a stream for each lane.
pub fn check(
    site: Site<'_>,
    case: &CollectiveCase,
    streams: &mut [Stream],
    memories: &[Box<dyn Memory>],
) -> Result<Findings> {
    let mut lanes = Vec::new();
    for (number, (memory, stream)) in memories.iter().zip(&*streams).enumerate() {
        lanes.push(Lane::new(site, case, number, &**memory, stream)?);
    }
    if let Some(other) = strays(&lanes, case, site)? {
        return Ok(vec![other]);
    }
    match case.mode {
        Mode::Eager | Mode::Concurrent => eager(&lanes, streams, site),
        Mode::Captured => captured(&lanes[0], &mut streams[0], site),
    }
}

/// What a case that is to go by multicast would go by otherwise, and show nothing of it.
fn strays(lanes: &[Lane<'_>], case: &CollectiveCase, site: Site<'_>) -> Result<Option<String>> {
    let communicator = site.communicator;
    if !case.way.algorithm.is_multicast()
        || !case.goes_by_multicast(
            communicator.world_size(),
            MulticastKernels::of(communicator),
        )
    {
        return Ok(None);
    }
    let named: Option<Algorithm> = case.way.algorithm.into();
    for lane in lanes {
        let by = lane.goes_by()?;
        if Some(by) != named {
            let (by, named) = (by.name(), named.map_or("", Algorithm::name));
            return Ok(Some(format!("it would go by {by}, and not by {named}")));
        }
    }
    Ok(None)
}

/// Lets every other rank be late in turn: ranks in lockstep would hide that one does not wait.
fn stagger(site: Site<'_>, round: u32) {
    if (site.communicator.rank() + round as usize) % 2 == 1 {
        std::thread::sleep(LATE);
    }
}

fn eager(lanes: &[Lane<'_>], streams: &[Stream], site: Site<'_>) -> Result<Findings> {
    let mut findings = Findings::new();
    for round in 0..2 {
        for (lane, stream) in lanes.iter().zip(streams) {
            lane.fill(stream, round)?;
        }
        stagger(site, round);
        for (lane, stream) in lanes.iter().zip(streams) {
            lane.enqueue(stream)?;
        }
        for (number, (lane, stream)) in lanes.iter().zip(streams).enumerate() {
            let found = lane.compare(stream, round)?;
            findings.extend(found.map(|found| format!("round {round}, stream {number}: {found}")));
        }
    }
    Ok(findings)
}

/// Eager rounds and replays of the same work, in turn.
fn captured(lane: &Lane<'_>, stream: &mut Stream, site: Site<'_>) -> Result<Findings> {
    let mut findings = Findings::new();
    if site.communicator.capabilities().flags & CAPABILITY_GRAPHS == 0 {
        // Nothing can be captured: say by which error.
        let refused = stream.capture(|_| Ok(()));
        if !matches!(refused, Err(Error::Unsupported { .. })) {
            findings.push("a capture was not refused as unsupported".into());
        }
        return Ok(findings);
    }
    let graph = stream.capture(|queue| lane.enqueue(queue))?;
    // How often the graph is launched; 0 stands for the same work, eager.
    for (round, launches) in [0, 1, 3, 0, 2].into_iter().enumerate() {
        let round = round as u32;
        lane.fill(stream, round)?;
        stagger(site, round);
        if launches == 0 {
            lane.enqueue(stream)?;
        }
        // A rank that is absent has captured nothing, which not every driver can launch.
        for _ in 0..launches * u32::from(!site.planted(Fault::Absent)) {
            stream.launch_graph(&graph)?;
        }
        let found = lane.compare(stream, round)?;
        findings.extend(found.map(|found| format!("round {round}, a replay: {found}")));
    }
    Ok(findings)
}
