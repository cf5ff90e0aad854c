//! Collectives that must fail on every rank alike and leave the communicator working; and collectives with no elements,
//! which must succeed.

use super::case::{AlgorithmName, Collective, CollectiveVariant};
use super::check::check as check_case;
use super::lane::{Lane, Site};
use super::plan;
use super::refusal_case::RefusalCase;
use crate::buffers::{Buffers, Memory};
use crate::dtype::with_element;
use crate::findings::Findings;
use symmem::backend::abi::SLOT_BLOCKS;
use symmem::{CollectiveOptions, Error, ReduceOp, Reducible, Result, Stream};

/// The case that runs after all refusals; it determines the size of the buffers.
pub const AFTER: CollectiveVariant = CollectiveVariant {
    operation: Collective::AllGather,
    algorithm: AlgorithmName::Automatic,
};

/// Makes each call and checks its error; then moves data to show that the communicator still works.
pub fn check(
    site: Site<'_>,
    refusal: &RefusalCase,
    streams: &mut [Stream],
    memories: &[Box<dyn Memory>],
) -> Result<Findings> {
    let mut findings = Findings::new();
    // With one rank, every algorithm is a copy, and none is refused.
    if site.communicator.world_size() > 1 {
        unserved(site, refusal, &streams[0], &*memories[0], &mut findings)?;
    }
    with_element!(refusal.dtype, T => {
        arguments::<T>(site, &streams[0], memories[0].of(), &mut findings)?;
        nothing::<T>(site, &streams[0])?;
    });
    findings.extend(check_case(
        site,
        &refusal.case(AFTER, false),
        streams,
        memories,
    )?);
    Ok(findings)
}

/// Adds a finding unless the call was refused as an invalid argument.
fn expect(findings: &mut Findings, call: &str, outcome: Result<()>) {
    match outcome {
        Err(Error::InvalidArgument { .. }) => {}
        Ok(()) => findings.push(format!("{call} was not refused")),
        Err(error) => findings.push(format!("{call} was refused for another reason: {error}")),
    }
}

/// Makes every operation with every algorithm that does not support it, or not in this form (in or out of place). Over
/// nodes both forms are supported, since no peer reads the operands.
fn unserved(
    site: Site<'_>,
    refusal: &RefusalCase,
    stream: &Stream,
    memory: &dyn Memory,
    findings: &mut Findings,
) -> Result<()> {
    let over_nodes = site.communicator.nodes() > 1;
    for operation in Collective::ALL {
        for algorithm in AlgorithmName::ALL {
            let variant = CollectiveVariant {
                operation,
                algorithm,
            };
            let serves = plan::algorithms(operation).contains(&algorithm);
            let mut refused = |in_place| -> Result<()> {
                let case = refusal.case(variant, in_place);
                let lane = Lane::new(site, &case, 0, memory, stream)?;
                let how = if in_place { " in place" } else { "" };
                if lane.is_empty() {
                    return Ok(());
                }
                expect(findings, &format!("{variant}{how}"), lane.enqueue(stream));
                Ok(())
            };
            if !serves || plan::is_refused_out_of_place(variant) && !over_nodes {
                refused(false)?;
            } else if !over_nodes && plan::is_refused_in_place(variant) {
                refused(true)?;
            }
        }
    }
    Ok(())
}

/// Makes calls with arguments that no algorithm accepts.
fn arguments<T: Reducible>(
    site: Site<'_>,
    stream: &Stream,
    buffers: &Buffers<T>,
    findings: &mut Findings,
) -> Result<()> {
    let world = site.communicator.world_size();
    let Buffers {
        destination,
        source,
        ..
    } = buffers;
    let options = CollectiveOptions::new().deadline(site.deadline);
    let plain = stream.with(&options);
    let (to, from) = (destination.slice(..8)?, source.slice(..8)?);
    let (longer, all) = (source.slice(..9)?, destination.slice(..8 * world)?);
    let (low, high) = (destination.slice(..8)?, destination.slice(4..12)?);
    let sum = ReduceOp::Sum;
    let none = vec![0; world + 1];
    let mut refused = |call: &str, outcome| expect(findings, call, outcome);

    refused(
        "an all-reduce of unequal lengths",
        plain.all_reduce(to, longer, sum),
    );
    refused(
        "an all-reduce onto half of its source",
        plain.all_reduce(low, high, sum),
    );
    refused(
        "a reduce to an invalid rank",
        plain.reduce(world, to, from, sum),
    );
    refused(
        "a broadcast from an invalid rank",
        plain.broadcast(world, to, from),
    );
    refused(
        "an all-gather into too little",
        plain.all_gather(all, longer),
    );
    refused(
        "an all-gather with one count too many",
        plain.all_gather_v(to, from, &none),
    );
    refused(
        "a reduce-scatter of too much",
        plain.reduce_scatter(to, source.slice(..8 * world + 1)?, sum),
    );
    refused("a send to an invalid rank", plain.send(world, from));
    refused("a receive from an invalid rank", plain.recv(world, to));
    refused(
        "an invalid channel",
        stream.with(&options.channel(99)).all_reduce(to, from, sum),
    );
    if world > 1 {
        let wide = options.blocks(SLOT_BLOCKS + 1);
        refused(
            "more blocks than there are slots",
            stream.with(&wide).all_reduce(to, from, sum),
        );
        refused(
            "an all-to-all of unequal parts",
            plain.all_to_all(destination.slice(..world + 1)?, source.slice(..world + 1)?),
        );
    }
    Ok(())
}

/// Makes collectives with no elements, which must succeed.
fn nothing<T: Reducible>(site: Site<'_>, stream: &Stream) -> Result<()> {
    let world = site.communicator.world_size();
    let empty = site.communicator.allocate::<T>(&[0])?;
    let options = CollectiveOptions::new().deadline(site.deadline);
    let calls = stream.with(&options);
    let (sum, none) = (ReduceOp::Sum, vec![0; world]);
    calls.all_reduce(&empty, &empty, sum)?;
    calls.reduce(0, &empty, &empty, sum)?;
    calls.reduce_scatter(&empty, &empty, sum)?;
    calls.all_gather(&empty, &empty)?;
    calls.all_gather_v(&empty, &empty, &none)?;
    calls.broadcast(0, &empty, &empty)?;
    calls.all_to_all(&empty, &empty)?;
    calls.all_to_all_v(&empty, &none, &none, &empty, &none, &none)?;
    calls.gather(0, &empty, &empty)?;
    calls.scatter(0, &empty, &empty)?;
    calls.exchange().enqueue()?;
    stream.synchronize_within(site.deadline)?;
    empty.free()
}
