//! Runs one case: makes its calls, each with new data, and compares the results.

use super::case::{CollectiveCase, Mode};
use super::lane::{Lane, Site};
use super::multicast::MulticastKernels;
use crate::buffers::Memory;
use crate::findings::{Fault, Findings};
use std::time::Duration;
use symmem::backend::abi::CAPABILITY_GRAPHS;
use symmem::{Algorithm, Error, Result, Stream};

/// Delay of a rank that `stagger` delays.
const LATE: Duration = Duration::from_micros(300);

/// Returns the number of lanes of a case.
pub fn lanes(case: &CollectiveCase) -> usize {
    match case.mode {
        Mode::Concurrent => 2,
        Mode::Eager | Mode::Captured => 1,
    }
}

/// Runs a case with one set of buffers and one stream per lane.
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

/// Returns a finding if a case that should run multicast kernels would run another algorithm.
fn strays(lanes: &[Lane<'_>], case: &CollectiveCase, site: Site<'_>) -> Result<Option<String>> {
    let communicator = site.communicator;
    if !case.variant.algorithm.is_multicast()
        || !case.uses_multicast(
            communicator.world_size(),
            MulticastKernels::of(communicator),
        )
    {
        return Ok(None);
    }
    let named: Option<Algorithm> = case.variant.algorithm.into();
    for lane in lanes {
        let by = lane.selected_algorithm()?;
        if by != named {
            let (by, named) = [by, named]
                .map(|one| one.map_or("none", Algorithm::name))
                .into();
            return Ok(Some(format!("the call would use {by} instead of {named}")));
        }
    }
    Ok(None)
}

/// Delays every other rank, in turn: ranks in lockstep would hide a rank that does not wait.
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

/// Alternates eager rounds with replays of the same work.
fn captured(lane: &Lane<'_>, stream: &mut Stream, site: Site<'_>) -> Result<Findings> {
    let mut findings = Findings::new();
    if site.communicator.capabilities().flags & CAPABILITY_GRAPHS == 0 {
        // Without graphs, a capture must fail as unsupported.
        let refused = stream.capture(|_| Ok(()));
        if !matches!(refused, Err(Error::Unsupported { .. })) {
            findings.push("a capture was not refused as unsupported".into());
        }
        return Ok(findings);
    }
    let graph = stream.capture(|queue| lane.enqueue(queue))?;
    // Number of graph launches per round; 0 means that the round is eager.
    for (round, launches) in [0, 1, 3, 0, 2].into_iter().enumerate() {
        let round = round as u32;
        lane.fill(stream, round)?;
        stagger(site, round);
        if launches == 0 {
            lane.enqueue(stream)?;
        }
        // An absent rank has captured an empty graph, which not every driver can launch.
        for _ in 0..launches * u32::from(!site.planted(Fault::Absent)) {
            stream.launch_graph(&graph)?;
        }
        let found = lane.compare(stream, round)?;
        findings.extend(found.map(|found| format!("round {round}, a replay: {found}")));
    }
    Ok(findings)
}
