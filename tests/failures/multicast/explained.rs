//! `explain` describes what the call then does.

use super::*;
use symmem::{CollectiveCall, Group};

/// Makes a rank first take all room of the multicast object.
const FULL: &str = "full";

/// Explains and then makes all-reduces that name multicast, and returns the explained algorithms.
pub fn calls(member: &Member, communicator: &Communicator) -> Result<Vec<String>> {
    use ReduceOp as R;
    let mut taken = Vec::new();
    if member.argument == FULL {
        taken.push(communicator.allocate::<u32>(&[COUNT])?);
        while taken.last().is_some_and(SymmetricBuffer::is_in_multicast) {
            taken.push(communicator.allocate::<u32>(&[COUNT])?);
        }
    }
    // The group has all ranks in order, but its own slots.
    let group = communicator.split(Some(0), communicator.rank() as u32)?;
    let by = |algorithm, group| CollectiveOptions::new().algorithm(algorithm).group(group);
    let two = by(Algorithm::Multicast, None);
    let one = by(Algorithm::MulticastOneShot, None);
    let split = by(Algorithm::Multicast, group.as_ref());
    let calls = [
        call::<u32>(communicator, R::Sum, false, &two)?,
        call::<u32>(communicator, R::Sum, true, &two)?,
        call::<u32>(communicator, R::Sum, false, &one)?,
        call::<u32>(communicator, R::Product, false, &two)?,
        call::<u32>(communicator, R::Product, false, &one)?,
        call::<i8>(communicator, R::Sum, false, &two)?,
        call::<F8E4M3>(communicator, R::Sum, false, &two)?,
        call::<u32>(communicator, R::Sum, false, &split)?,
    ];
    let explained = CollectiveCall {
        in_place: true,
        ..CollectiveCall::new(CollectiveOperation::AllReduce, 1 << 10, ElementType::U32)
    };
    let refused = communicator.explain_call(&explained, &one).unwrap_err();
    assert!(refused.to_string().contains("in place"), "{refused}");
    drop::<Option<Group>>(group);
    taken.into_iter().try_for_each(SymmetricBuffer::free)?;
    Ok(calls.into())
}

fn call<T: Reducible>(
    communicator: &Communicator,
    reduce: ReduceOp,
    in_place: bool,
    options: &CollectiveOptions<'_>,
) -> Result<String> {
    let stream = communicator.stream()?;
    let (to, from) = (
        communicator.allocate::<T>(&[COUNT])?,
        communicator.allocate::<T>(&[COUNT])?,
    );
    let bytes = (COUNT * size_of::<T>()) as u64;
    let explained = CollectiveCall {
        reduce,
        in_place,
        in_multicast: to.is_in_multicast() && from.is_in_multicast(),
        ..CollectiveCall::new(CollectiveOperation::AllReduce, bytes, T::TYPE)
    };
    let explanation = communicator.explain_call(&explained, options)?;
    let choice = explanation.choice().expect("one node");
    let source = if in_place { to.all() } else { from.all() };
    stream.with(options).all_reduce(to.all(), source, reduce)?;
    stream.synchronize()?;
    to.free()?;
    from.free()?;
    Ok(choice.algorithm().name().into())
}

#[rstest]
#[case::with_room_for_all_buffers(
    true,
    "MULTICAST MULTICAST MULTICAST_ONE_SHOT TWO_SHOT ONE_SHOT TWO_SHOT TWO_SHOT TWO_SHOT"
)]
#[case::with_no_room_for_buffers(
    false,
    "TWO_SHOT TWO_SHOT ONE_SHOT TWO_SHOT ONE_SHOT TWO_SHOT TWO_SHOT TWO_SHOT"
)]
fn a_call_goes_by_what_was_explained(#[case] room: bool, #[case] algorithms: &str) {
    if !permitted() {
        return;
    }
    let traces = traces();
    let mut plan = traced(plan("multicast/explained"), &traces);
    if !room {
        let (slots, _) = room::slots_and_unit();
        plan = plan.env("SYMMEM_MULTICAST_BYTES", slots).argument(FULL);
    }
    let mut world = plan.start();
    assert_eq!(agreed(&mut world), "HARDWARE: ");
    assert_eq!(world.expect("used"), ["ok"; WORLD]);
    for explained in world.expect("explained") {
        assert_eq!(explained, algorithms);
    }
    world.ends_well();
    for trace in traces {
        let launched = launches(&trace);
        let by_switch: Vec<bool> = (launched.iter())
            .filter(|name| name.contains("reduce"))
            .map(|name| name.starts_with("symmem_multicast_"))
            .collect();
        let said: Vec<bool> = (algorithms.split(' '))
            .map(|name| name.starts_with("MULTICAST"))
            .collect();
        assert_eq!(by_switch, said, "{launched:?}");
    }
}
