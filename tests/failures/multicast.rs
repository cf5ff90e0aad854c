//! Multicast is set up by all ranks or by none, whatever fails, stalls or dies at any step of the setup.
//!
//! These tests run only over the fake driver. No other ranks ask for multicast, and these do not if the environment
//! forbids it.

use crate::built::{self, permitted, worlds::left_out};
use crate::support::{Member, Plan, Rank, Setting, World, fresh_name};
use rstest::rstest;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::{Duration, Instant};
use symmem::{
    Algorithm, CollectiveOperation, CollectiveOptions, Communicator, DeviceAddress, ElementType,
    F8E4M3, F8E5M2, MulticastSupport, ReduceOp, Reducible, Result, Stream, SymmetricBuffer,
};

mod back;
mod explained;
mod later;
mod left;
mod look_ups;
mod places;
mod room;
mod set_up;

use left::{Left, complaints, ends_with_what_is_stuck};
use places::{Place, chosen, clean_calls, for_each, places, set_up};

const WORLD: usize = 3;
/// Elements of a buffer: not a multiple of the vector size, and not divisible among the ranks.
const COUNT: usize = 5003;
/// Deadline of each setup step in tests where it expires. A busy machine takes seconds to open a device.
const SHORT: Duration = Duration::from_secs(8);

pub fn role(role: &str, member: &Member) {
    let opened = member.builder().build();
    member.tell("opened", &opened);
    let Ok(communicator) = opened else { return };
    tell_status(member, &communicator);
    match role {
        "rebuild" => return later::rebuild(member, communicator),
        "generations" => return room::generations(member, communicator),
        "room" => member.tell("used", &room::fill(member, &communicator)),
        "hold" => member.tell("used", &back::hold(member, &communicator)),
        "forbid" => member.tell("used", &back::forbid(&communicator)),
        _ => {}
    }
    if role == "linger" {
        member.ready();
    }
    if role == "use" {
        let used = use_it(member, &communicator);
        member.tell("used", &used);
        tell_status(member, &communicator);
    }
    if role == "f8" {
        let summed = sums_f8(&communicator, F8E4M3::from_f32, F8E4M3::to_f32)
            .and_then(|()| sums_f8(&communicator, F8E5M2::from_f32, F8E5M2::to_f32));
        member.tell("used", &summed);
    }
    if role == "explained" {
        let explained = explained::calls(member, &communicator);
        member.tell("used", &explained);
        member.say("explained", explained.unwrap_or_default().join(" "));
    }
    if role == "explain" {
        let explain = |(operation, bytes, element)| {
            let choice = communicator.explain(operation, bytes, element);
            choice.map_or_else(
                |error| error.to_string(),
                |explanation| {
                    let choice = explanation.choice().expect("one node");
                    choice.algorithm().name().into()
                },
            )
        };
        member.say(
            "explained",
            [
                (CollectiveOperation::AllReduce, 64 << 10, ElementType::Bf16),
                // Lamport packets add no integers.
                (CollectiveOperation::AllReduce, 128 << 10, ElementType::I32),
                (CollectiveOperation::AllReduce, 1 << 20, ElementType::Bf16),
                (
                    CollectiveOperation::ReduceScatter,
                    1 << 20,
                    ElementType::Bf16,
                ),
                (CollectiveOperation::AllGather, 1 << 20, ElementType::Bf16),
                (CollectiveOperation::Broadcast, 1 << 20, ElementType::Bf16),
            ]
            .map(explain)
            .join(" "),
        );
    }
    member.tell("finalized", &communicator.finalize());
}

fn tell_status(member: &Member, communicator: &Communicator) {
    let status = communicator.multicast();
    let reason = status.reason.unwrap_or_default();
    member.say("status", format!("{}: {reason}", status.support.name()));
}

/// Reduces in one shot, in two shots and in place, gathers, broadcasts and meets, with buffers that are allocated and
/// freed.
fn use_it(member: &Member, communicator: &Communicator) -> Result<()> {
    let stream = communicator.stream()?;
    let support = communicator.multicast().support;
    let by = |algorithm| {
        CollectiveOptions::new().algorithm(match support {
            MulticastSupport::None => None,
            _ => Some(algorithm),
        })
    };
    for _ in 0..2 {
        let world = communicator.world_size();
        let source = communicator.allocate::<u32>(&[COUNT])?;
        let destination = communicator.allocate::<u32>(&[world, COUNT])?;
        let views = [has_view(&source), has_view(&destination)];
        member.say("views", format!("{views:?}"));
        let given: Vec<u32> = (0..COUNT as u32)
            .map(|index| index << communicator.rank())
            .collect();
        source.write(&stream, 0, &given)?;
        let sum = ReduceOp::Sum;
        let (two, one) = (by(Algorithm::Multicast), by(Algorithm::MulticastOneShot));
        let first = destination.slice(..COUNT)?;
        for options in [&one, &two] {
            stream.with(options).all_reduce(first, source.all(), sum)?;
            expect(
                &stream,
                &destination,
                |index| index as u32 * ((1 << world) - 1),
                COUNT,
            )?;
        }
        stream.with(&two).all_gather(&destination, &source)?;
        let gathered = |at: usize| ((at % COUNT) as u32) << (at / COUNT);
        expect(&stream, &destination, gathered, world * COUNT)?;
        // A part that does not start with its allocation, and not at a multiple of 16 bytes.
        let (part, at) = (COUNT / world - 1, 3);
        let mine = destination.slice(COUNT + 1..COUNT + 1 + part)?;
        stream
            .with(&two)
            .reduce_scatter(mine, source.slice(at..at + part * world)?, sum)?;
        let scattered = |index: usize| {
            let element = at + part * communicator.rank() + index;
            element as u32 * ((1 << world) - 1)
        };
        expect_at(&stream, &destination, COUNT + 1, scattered, part)?;
        // Members of a group have no multicast object of their own.
        let color = (communicator.rank() > 0).then_some(0);
        if let Some(group) = communicator.split(color, 0)? {
            let options = two.group(&group);
            stream.with(&options).all_reduce(first, source.all(), sum)?;
            expect(
                &stream,
                &destination,
                |index| index as u32 * ((1 << world) - 2),
                COUNT,
            )?;
        }
        stream.with(&two).barrier()?;
        stream.with(&two).broadcast(1, &source, &source)?;
        expect(&stream, &source, |index| (index as u32) << 1, COUNT)?;
        source.free()?;
        // The other buffer is dropped; each rank releases it when it gets to it.
    }
    Ok(())
}

/// Sums fp8 numbers whose sums are all exact, with the multicast algorithms.
fn sums_f8<T: Reducible>(
    communicator: &Communicator,
    narrow: fn(f32) -> T,
    widen: fn(T) -> f32,
) -> Result<()> {
    let stream = communicator.stream()?;
    let source = communicator.allocate::<T>(&[COUNT])?;
    let destination = communicator.allocate::<T>(&[COUNT])?;
    // The numbers are 1, 2 or 3, one of each over all ranks.
    let number = |index: usize, rank: usize| ((index + rank) % WORLD) as f32 + 1.0;
    let given: Vec<T> = (0..COUNT)
        .map(|index| narrow(number(index, communicator.rank())))
        .collect();
    source.write(&stream, 0, &given)?;
    for algorithm in [Algorithm::Multicast, Algorithm::MulticastOneShot] {
        let options = CollectiveOptions::new().algorithm(algorithm);
        destination.write(&stream, 0, &[narrow(-1.0); COUNT])?;
        let sum = ReduceOp::Sum;
        stream
            .with(&options)
            .all_reduce(destination.all(), source.all(), sum)?;
        let mut seen = vec![narrow(0.0); COUNT];
        destination.read(&stream, 0, &mut seen)?;
        for (index, &seen) in seen.iter().enumerate() {
            let wanted: f32 = (0..WORLD).map(|rank| number(index, rank)).sum();
            assert_eq!(widen(seen), wanted, "element {index}");
        }
    }
    Ok(())
}

/// Whether a buffer has a multicast address. If so, checks that every element has one.
fn has_view(buffer: &SymmetricBuffer<u32>) -> bool {
    let Some(view) = buffer.multicast() else {
        return false;
    };
    let (base, last) = (view.address(), buffer.len() - 1);
    assert_eq!(view.len(), buffer.len());
    assert!(base != DeviceAddress(0) && base != buffer.local().address());
    assert_eq!(view.at(0), Some(base));
    assert_eq!(view.at(last), Some(DeviceAddress(base.0 + 4 * last as u64)));
    assert_eq!(view.at(last + 1), None);
    true
}

fn expect(
    stream: &Stream,
    buffer: &SymmetricBuffer<u32>,
    value: impl Fn(usize) -> u32,
    count: usize,
) -> Result<()> {
    expect_at(stream, buffer, 0, value, count)
}

fn expect_at(
    stream: &Stream,
    buffer: &SymmetricBuffer<u32>,
    at: usize,
    value: impl Fn(usize) -> u32,
    count: usize,
) -> Result<()> {
    let mut seen = vec![0; count];
    buffer.read(stream, at, &mut seen)?;
    for (index, &seen) in seen.iter().enumerate() {
        assert_eq!(seen, value(index), "element {index}");
    }
    Ok(())
}

/// Returns the plan of a world that asks for multicast, over the fake driver with devices behind a switch.
fn plan(role: &'static str) -> Plan {
    plan_of(role, WORLD)
}

fn plan_of(role: &'static str, world: usize) -> Plan {
    let libraries = built::fake_driver();
    assert!(
        libraries.join("libcuda.so.1").exists(),
        "only the fake driver may be used"
    );
    Plan::new(role, world, Setting::Cuda)
        .env("SYMMEM_LIBRARY_PATH", libraries.display())
        .env("FAKE_CUDA_MULTICAST_HARDWARE", 1)
        .env("SYMMEM_MULTICAST", 1)
}

/// Returns a file for each rank's trace of driver calls.
fn traces() -> [PathBuf; WORLD] {
    [0; WORLD].map(|_| Path::new(env!("CARGO_TARGET_TMPDIR")).join(fresh_name("trace")))
}

fn traced(mut plan: Plan, traces: &[PathBuf; WORLD]) -> Plan {
    for (rank, trace) in traces.iter().enumerate() {
        plan = plan.env_of(rank, "FAKE_DEVICE_TRACE", trace.display());
    }
    plan
}

/// Returns the kernels that a rank launched, each once.
fn launched(trace: &Path) -> BTreeSet<String> {
    launches(trace).into_iter().collect()
}

/// Returns the kernels that a rank launched, in order.
fn launches(trace: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(trace).unwrap_or_default();
    let _ = std::fs::remove_file(trace);
    // process thread launched name
    let named = text
        .lines()
        .filter_map(|line| line.split_once(" launched "));
    named.map(|(_, name)| name.to_owned()).collect()
}

fn calls(trace: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(trace).unwrap_or_default();
    let _ = std::fs::remove_file(trace);
    // process thread #number symbol = code
    let named = text.lines().filter(|line| line.contains(" = "));
    named
        .filter_map(|line| line.split(' ').nth(3))
        .map(str::to_owned)
        .collect()
}

/// Returns the multicast status, which all ranks report alike.
#[track_caller]
fn agreed(world: &mut World) -> String {
    let told = world.expect("status");
    assert!(told.iter().all(|status| *status == told[0]), "{told:?}");
    told[0].clone()
}

/// Runs a world that opens, with or without multicast, and leaves nothing behind. Returns the status that all report.
#[track_caller]
fn opens(plan: Plan) -> String {
    let mut world = plan.start();
    for opened in world.expect("opened") {
        assert_eq!(opened, "ok");
    }
    let status = agreed(&mut world);
    for finalized in world.expect("finalized") {
        assert_eq!(finalized, "ok");
    }
    world.ends_well();
    status
}

/// Runs a world that opens and works, with or without multicast, and leaves nothing behind. Returns the status that all
/// report before and after.
#[track_caller]
fn works(plan: Plan) -> [String; 2] {
    let mut world = plan.start();
    for opened in world.expect("opened") {
        assert_eq!(opened, "ok");
    }
    let before = agreed(&mut world);
    let views = [world.expect("views"), world.expect("views")].concat();
    for used in world.expect("used") {
        assert_eq!(used, "ok", "{before}");
    }
    let after = agreed(&mut world);
    // If nothing has failed, every buffer that fits has a multicast address.
    let expected = after == "HARDWARE: ";
    for seen in views {
        assert_eq!(seen, format!("{:?}", [expected; 2]), "{after}");
    }
    for finalized in world.expect("finalized") {
        assert_eq!(finalized, "ok");
    }
    world.ends_well();
    [before, after]
}

/// Returns how many calls of a function have returned.
fn made(trace: &Path, symbol: &str) -> usize {
    let text = std::fs::read_to_string(trace).unwrap_or_default();
    let call = format!(" {symbol} = ");
    text.lines().filter(|line| line.contains(&call)).count()
}

#[test]
fn all_ranks_set_it_up_in_order_use_it_and_give_it_back_in_order() {
    if !permitted() {
        return;
    }
    for (rank, calls) in clean_calls().iter().enumerate() {
        let of = |symbol| places(calls, symbol);
        let (created, joined) = (of("cuMulticastCreate"), of("cuMulticastAddDevice"));
        let (bound, unbound) = (of("cuMulticastBindMem"), of("cuMulticastUnbind"));
        assert_eq!((created.len(), joined.len()), (usize::from(rank == 0), 1));
        // The slots, and two buffers twice.
        assert_eq!((bound.len(), unbound.len()), (5, 5), "rank {rank}");
        assert!(created.iter().all(|&created| created < joined[0]));
        assert!(joined[0] < bound[0]);
        // The fake driver itself refuses any other order of binding, freeing and releasing.
        let released = of("cuMemRelease");
        assert!(unbound[4] < released[released.len() - 1]);
    }
}

#[test]
fn from_four_ranks_on_it_is_what_the_selector_takes() {
    if !permitted() {
        return;
    }
    for (world, chosen) in [
        (
            3,
            "LAMPORT PACKETS_TWO_SHOT LAMPORT_TWO_SHOT LAMPORT LAMPORT LAMPORT",
        ),
        (
            4,
            "LAMPORT MULTICAST_ONE_SHOT MULTICAST MULTICAST MULTICAST MULTICAST",
        ),
    ] {
        let mut world = plan_of("multicast/explain", world).start();
        assert_eq!(agreed(&mut world), "HARDWARE: ");
        for explained in world.expect("explained") {
            assert_eq!(explained, chosen);
        }
        world.ends_well();
    }
}

/// fp8 is summed by multicast only if an algorithm names it and the switch can sum fp8; otherwise through the members'
/// own addresses.
#[rstest]
#[case(100, "symmem_multicast_reduce_")]
#[case(90, "symmem_reduce_")]
fn floats_of_8_bits_are_summed_by_the_switch_that_can(
    #[case] architecture: u32,
    #[case] kernels: &str,
) {
    if !permitted() {
        return;
    }
    let traces = traces();
    let plan = traced(plan("multicast/f8"), &traces);
    let mut world = plan.env("FAKE_CUDA_ARCHITECTURE", architecture).start();
    assert_eq!(agreed(&mut world), "HARDWARE: ");
    assert_eq!(world.expect("used"), ["ok"; WORLD]);
    world.ends_well();
    for trace in traces {
        let launched = launched(&trace);
        let reduced: Vec<&str> = (launched.iter())
            .map(String::as_str)
            .filter(|name| name.contains("reduce"))
            .collect();
        let wanted = ["f8_e4m3", "f8_e5m2"].map(|element| format!("{kernels}{element}"));
        assert_eq!(reduced, wanted, "of {launched:?}");
    }
}
