//! Messages in Lamport packets that are longer than a part of an inbox.

use crate::world::world;
use symmem::{
    Algorithm, CollectiveCall, CollectiveOperation, CollectiveOptions, Communicator, DeviceAddress,
    ElementType, ReduceOp, Result,
};

/// On this backend a part of two ranks has 512 KiB. Neither is a multiple of the other, and the last vector is partial.
const COUNT: usize = 3 * (512 << 10) / 4 + 1001;

/// Numbers that sum exactly, but for every seventh, whose bits are those that stand for no packet.
fn words(rank: usize, length: usize) -> Vec<u32> {
    (0..length)
        .map(|index| match (index + rank) % 7 {
            0 => u32::MAX,
            _ => ((rank * 1000 + index % 997) as f32).to_bits(),
        })
        .collect()
}

fn moves_and_sums(communicator: &Communicator) -> Result<()> {
    let (rank, world) = (communicator.rank(), communicator.world_size());
    let stream = communicator.stream()?;
    let options = CollectiveOptions::new().algorithm(Algorithm::Lamport);
    let by_lamport = |operation, element, parts: usize| -> Result<()> {
        let call = CollectiveCall::new(operation, (parts * COUNT * 4) as u64, element);
        let explanation = communicator.explain_call(&call, &options)?;
        let choice = explanation.choice().expect("one node");
        assert_eq!(choice.algorithm(), Algorithm::Lamport, "{operation:?}");
        Ok(())
    };
    let calls = stream.with(&options);

    by_lamport(CollectiveOperation::AllToAll, ElementType::U32, world)?;
    // Each part starts at a multiple of 16.
    let part = COUNT.next_multiple_of(4);
    let source = communicator.allocate::<u32>(&[world * part])?;
    let destination = communicator.allocate::<u32>(&[world * part])?;
    let given = words(rank, world * part);
    let arrived: Vec<u32> = (0..world)
        .flat_map(|from| words(from, world * part)[rank * part..][..part].to_vec())
        .collect();
    for in_place in [false, true] {
        let to = if in_place { &source } else { &destination };
        source.write(&stream, 0, &given)?;
        stream.barrier()?;
        calls.all_to_all(to, &source)?;
        let mut seen = vec![0; world * part];
        to.read(&stream, 0, &mut seen)?;
        assert!(seen == arrived, "all-to-all, in place: {in_place}");
        stream.barrier()?;
    }

    by_lamport(CollectiveOperation::AllGather, ElementType::U32, world)?;
    source.write(&stream, 0, &given)?;
    calls.all_gather(&destination, source.slice(..part)?)?;
    let mut seen = vec![0; world * part];
    destination.read(&stream, 0, &mut seen)?;
    let gathered: Vec<u32> = (0..world)
        .flat_map(|from| words(from, world * part)[..part].to_vec())
        .collect();
    assert!(seen == gathered, "all-gather");
    stream.barrier()?;

    let number = |rank: usize, index: usize| (rank * 10 + index % 89) as f32;
    let sum = |index: usize| (0..world).map(|rank| number(rank, index)).sum::<f32>();
    let sums = |seen: &[f32], first: usize| {
        let mut seen = seen.iter().enumerate();
        seen.all(|(index, &seen)| seen == sum(first + index))
    };
    let source = communicator.allocate::<f32>(&[world * part])?;
    let destination = communicator.allocate::<f32>(&[world * part])?;
    let given: Vec<f32> = (0..world * part).map(|index| number(rank, index)).collect();
    source.write(&stream, 0, &given)?;
    by_lamport(CollectiveOperation::AllReduce, ElementType::F32, 1)?;
    calls.all_reduce(
        destination.slice(..COUNT)?,
        source.slice(..COUNT)?,
        ReduceOp::Sum,
    )?;
    let mut seen = vec![0.0; COUNT];
    destination.read(&stream, 0, &mut seen)?;
    assert!(sums(&seen, 0), "all-reduce");
    by_lamport(CollectiveOperation::ReduceScatter, ElementType::F32, world)?;
    calls.reduce_scatter(destination.slice(..part)?, &source, ReduceOp::Sum)?;
    let mut seen = vec![0.0; part];
    destination.read(&stream, 0, &mut seen)?;
    assert!(sums(&seen, rank * part), "reduce-scatter");
    stream.barrier()
}

/// Makes `calls` in worlds of two and three ranks, which must leak nothing.
fn in_small_worlds(calls: impl Fn(&Communicator) -> Result<()> + Sync) {
    for ranks in [2, 3] {
        for result in world(ranks, |communicator| {
            calls(&communicator)?;
            communicator.finalize()
        }) {
            let leaks = result.expect("every call succeeds");
            assert!(leaks.is_empty(), "{leaks:?}");
        }
    }
}

#[test]
fn what_a_part_cannot_hold_takes_several_launches() {
    in_small_worlds(moves_and_sums);
}

/// Bytes of a part that takes several launches and is no multiple of 16, so that every part but the first starts at an odd
/// address. Symmetric buffers at such addresses have 1 MiB at most.
const ODD: usize = (1 << 20) - 23;

/// Returns what a rank sends in an all-to-all of such parts.
fn odd_parts(rank: usize, world: usize) -> Vec<u8> {
    let bytes = words(rank, world * ODD / 4 + 1).into_iter();
    let bytes = bytes.flat_map(u32::to_le_bytes);
    bytes.take(world * ODD).collect()
}

/// Returns what arrives at a rank, between `before` bytes and one that stay.
fn odd_parts_at(rank: usize, world: usize, before: usize) -> Vec<u8> {
    let parts = (0..world).map(|member| odd_parts(member, world)[rank * ODD..][..ODD].to_vec());
    [
        vec![0xee; before],
        parts.collect::<Vec<_>>().concat(),
        vec![0xee],
    ]
    .concat()
}

fn moves_odd_parts(communicator: &Communicator) -> Result<()> {
    let (rank, world) = (communicator.rank(), communicator.world_size());
    let stream = communicator.stream()?;
    let options = CollectiveOptions::new().algorithm(Algorithm::Lamport);
    let bytes = world * ODD;
    for own_memory in [false, true] {
        let operation = CollectiveOperation::AllToAll;
        let mut call = CollectiveCall::new(operation, bytes as u64, ElementType::U8);
        (call.own_memory, call.aligned) = (own_memory, false);
        let explanation = communicator.explain_call(&call, &options)?;
        let choice = explanation.choice().expect("one node");
        assert_eq!(choice.algorithm(), Algorithm::Lamport, "{own_memory}");
    }

    let source = communicator.allocate::<u8>(&[1 + bytes])?;
    let destination = communicator.allocate::<u8>(&[2 + bytes + 1])?;
    source.write(&stream, 1, &odd_parts(rank, world))?;
    destination.write(&stream, 0, &vec![0xee; 2 + bytes + 1])?;
    let (to, from) = (
        destination.slice(2..2 + bytes)?,
        source.slice(1..1 + bytes)?,
    );
    stream.with(&options).all_to_all(to, from)?;
    let mut seen = vec![0; 2 + bytes + 1];
    destination.read(&stream, 0, &mut seen)?;
    assert!(
        seen == odd_parts_at(rank, world, 2),
        "buffers, {rank} of {world}"
    );

    // Memory that only its rank knows lies elsewhere on each.
    let (before, after) = (1 + 2 * rank, 3);
    let given = [vec![0; before], odd_parts(rank, world)].concat();
    let mut seen = vec![0xee; after + bytes + 1];
    let address = |first: *const u8| DeviceAddress(first.expose_provenance() as u64);
    let from = address(given[before..].as_ptr());
    let to = address(seen[after..].as_mut_ptr().cast_const());
    // SAFETY: nothing else touches the vectors until the stream is drained.
    let (from, to) = unsafe {
        let from = communicator.device_slice::<u8>(from, bytes)?;
        (from, communicator.device_slice::<u8>(to, bytes)?)
    };
    stream.with(&options).all_to_all(to, from)?;
    stream.synchronize()?;
    assert!(
        seen == odd_parts_at(rank, world, after),
        "own memory, {rank} of {world}"
    );
    stream.barrier()
}

#[test]
fn parts_that_take_several_launches_may_begin_and_end_at_any_byte() {
    in_small_worlds(moves_odd_parts);
}
