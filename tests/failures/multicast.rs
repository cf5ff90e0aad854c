//! Multicast: set up by all ranks or by none, whatever fails, stalls or dies at any step of it.
//!
//! Only over the fake driver: these are the only ranks that ask for multicast, and they do not where the
//! environment forbids it.

use crate::built::{self, permitted};
use crate::support::{Member, Plan, Setting, World, fresh_name};
use rstest::rstest;
use std::collections::{BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::{Duration, Instant};
use symmem::{
    Algorithm, CollectiveOperation, CollectiveOptions, Communicator, DeviceAddress, ElementType,
    F8E4M3, F8E5M2, MulticastSupport, ReduceOperation, Reducible, Result, Stream, SymmetricBuffer,
};

mod explained;
mod later;
mod way_back;

const WORLD: usize = 3;
/// Elements of a buffer: with edges, and not the same for each rank.
const COUNT: usize = 5003;
/// Bounds each step of the set-up where it is to run out.
const SHORT: Duration = Duration::from_secs(4);

pub fn role(role: &str, member: &Member) {
    let opened = member.builder().build();
    member.tell("opened", &opened);
    let Ok(communicator) = opened else { return };
    tell_status(member, &communicator);
    if role == "rebuild" {
        return later::rebuild(member, communicator);
    }
    if role == "forbid" {
        member.tell("used", &way_back::forbid(&communicator));
    }
    if role == "room" {
        member.tell("used", &later::fill(member, &communicator));
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
        let explain = |(operation, bytes)| {
            let choice = communicator.explain(operation, bytes, ElementType::BF16);
            choice.map_or_else(
                |error| error.to_string(),
                |choice| choice.algorithm.name().into(),
            )
        };
        member.say(
            "explained",
            [
                (CollectiveOperation::ALL_REDUCE, 64 << 10),
                (CollectiveOperation::ALL_REDUCE, 128 << 10),
                (CollectiveOperation::ALL_REDUCE, 1 << 20),
                (CollectiveOperation::REDUCE_SCATTER, 1 << 20),
                (CollectiveOperation::ALL_GATHER, 1 << 20),
                (CollectiveOperation::BROADCAST, 128 << 10),
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

/// Reduces in one shot, in two and in place, gathers, broadcasts and meets, with buffers that come and go.
fn use_it(member: &Member, communicator: &Communicator) -> Result<()> {
    let stream = communicator.stream()?;
    let support = communicator.multicast().support;
    let by = |algorithm| CollectiveOptions {
        algorithm: match support {
            MulticastSupport::NONE => Algorithm::AUTOMATIC,
            _ => algorithm,
        },
        ..CollectiveOptions::default()
    };
    for _ in 0..2 {
        let world = communicator.world();
        let source = communicator.allocate::<u32>(&[COUNT])?;
        let destination = communicator.allocate::<u32>(&[world, COUNT])?;
        let views = [has_view(&source), has_view(&destination)];
        member.say("views", format!("{views:?}"));
        let given: Vec<u32> = (0..COUNT as u32)
            .map(|index| index << communicator.rank())
            .collect();
        source.write(&stream, 0, &given)?;
        let sum = ReduceOperation::SUM;
        let (two, one) = (by(Algorithm::MULTICAST), by(Algorithm::MULTICAST_ONE_SHOT));
        let first = destination.range(0, COUNT)?;
        for options in [&one, &two] {
            stream.all_reduce_with(first, source.all(), sum, options)?;
            expect(
                &stream,
                &destination,
                |index| index as u32 * ((1 << world) - 1),
                COUNT,
            )?;
        }
        stream.all_gather(destination.all(), source.all(), &two)?;
        let gathered = |at: usize| ((at % COUNT) as u32) << (at / COUNT);
        expect(&stream, &destination, gathered, world * COUNT)?;
        // A part that does not begin where its allocation does, and not at a multiple of 16 bytes.
        let (part, at) = (COUNT / world - 1, 3);
        let mine = destination.range(COUNT + 1, part)?;
        stream.reduce_scatter(mine, source.range(at, part * world)?, sum, &two)?;
        let scattered = |index: usize| {
            let element = at + part * communicator.rank() + index;
            element as u32 * ((1 << world) - 1)
        };
        expect_at(&stream, &destination, COUNT + 1, scattered, part)?;
        // Members of a group have no object of their own.
        let colour = (communicator.rank() > 0).then_some(0);
        if let Some(group) = communicator.split(colour, 0)? {
            let options = CollectiveOptions {
                group: Some(&group),
                ..two
            };
            stream.all_reduce_with(first, source.all(), sum, &options)?;
            expect(
                &stream,
                &destination,
                |index| index as u32 * ((1 << world) - 2),
                COUNT,
            )?;
        }
        stream.group_barrier(&two)?;
        stream.broadcast(1, source.all(), source.all(), &two)?;
        expect(&stream, &source, |index| (index as u32) << 1, COUNT)?;
        source.free()?;
        // The other is dropped: each rank gives it up when it comes to that.
    }
    Ok(())
}

/// Sums floats of 8 bits by multicast's algorithms: of numbers of which every sum is exact.
fn sums_f8<T: Reducible>(
    communicator: &Communicator,
    narrow: fn(f32) -> T,
    widen: fn(T) -> f32,
) -> Result<()> {
    let stream = communicator.stream()?;
    let source = communicator.allocate::<T>(&[COUNT])?;
    let destination = communicator.allocate::<T>(&[COUNT])?;
    // 1, 2 or 3, and as many ranks in all.
    let number = |index: usize, rank: usize| ((index + rank) % WORLD) as f32 + 1.0;
    let given: Vec<T> = (0..COUNT)
        .map(|index| narrow(number(index, communicator.rank())))
        .collect();
    source.write(&stream, 0, &given)?;
    for algorithm in [Algorithm::MULTICAST, Algorithm::MULTICAST_ONE_SHOT] {
        let options = CollectiveOptions {
            algorithm,
            ..CollectiveOptions::default()
        };
        destination.write(&stream, 0, &[narrow(-1.0); COUNT])?;
        let sum = ReduceOperation::SUM;
        stream.all_reduce_with(destination.all(), source.all(), sum, &options)?;
        let mut seen = vec![narrow(0.0); COUNT];
        destination.read(&stream, 0, &mut seen)?;
        for (index, &seen) in seen.iter().enumerate() {
            let wanted: f32 = (0..WORLD).map(|rank| number(index, rank)).sum();
            assert_eq!(widen(seen), wanted, "element {index}");
        }
    }
    Ok(())
}

/// Whether a buffer has one address for all ranks' copies; that it has then one for each element.
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

/// Ranks over the fake driver, on devices behind a switch, that ask for multicast.
fn plan(role: &'static str) -> Plan {
    plan_of(role, WORLD)
}

fn plan_of(role: &'static str, world: usize) -> Plan {
    let libraries = built::fake_driver();
    assert!(
        libraries.join("libcuda.so.1").exists(),
        "never another driver"
    );
    Plan::new(role, world, Setting::Cuda)
        .env("SYMMEM_LIBRARY_PATH", libraries.display())
        .env("FAKE_CUDA_MULTICAST_HARDWARE", 1)
        .env("SYMMEM_MULTICAST", 1)
}

/// A file for what each rank's driver was called.
fn traces() -> [PathBuf; WORLD] {
    [0; WORLD].map(|_| Path::new(env!("CARGO_TARGET_TMPDIR")).join(fresh_name("trace")))
}

fn traced(mut plan: Plan, traces: &[PathBuf; WORLD]) -> Plan {
    for (rank, trace) in traces.iter().enumerate() {
        plan = plan.env_of(rank, "FAKE_DEVICE_TRACE", trace.display());
    }
    plan
}

/// The kernels that a rank gave to its streams, each once.
fn launched(trace: &Path) -> BTreeSet<String> {
    launches(trace).into_iter().collect()
}

/// The kernels that a rank gave to its streams, in order.
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

/// What every rank says of it, which is the same on all.
#[track_caller]
fn agreed(world: &mut World) -> String {
    let told = world.expect("status");
    assert!(told.iter().all(|status| *status == told[0]), "{told:?}");
    told[0].clone()
}

/// Opens, works, whatever came of multicast, and leaves nothing. What all say of it before and after.
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
    // As long as nothing has failed, all that fits is reached by one address.
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

/// Each rank's calls where nothing goes wrong.
fn clean_calls() -> &'static [Vec<String>; WORLD] {
    static CALLS: OnceLock<[Vec<String>; WORLD]> = OnceLock::new();
    CALLS.get_or_init(|| {
        let traces = traces();
        let status = works(traced(plan("multicast/use"), &traces));
        assert_eq!(status, ["HARDWARE: ", "HARDWARE: "]);
        traces.map(|trace| calls(&trace))
    })
}

fn places(calls: &[String], symbol: &str) -> Vec<usize> {
    let named = calls.iter().enumerate().filter(|(_, call)| *call == symbol);
    named.map(|(place, _)| place).collect()
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
        // The fake refuses every other order of binding, freeing and releasing.
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
        (3, "PACKETS PACKETS_TWO_SHOT TWO_SHOT ONE_SHOT PUSH PULL"),
        (
            4,
            "PACKETS MULTICAST_ONE_SHOT MULTICAST MULTICAST MULTICAST MULTICAST",
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

/// By name only, and by a switch only where it sums them: elsewhere by the members' own addresses.
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

/// A call of the set-up: whose, which, and the number of times that it is called until then.
type Place = (usize, &'static str, usize);

/// Every call of the set-up, on each rank that makes it.
fn set_up() -> Vec<Place> {
    let mut found = Vec::new();
    for (rank, calls) in clean_calls().iter().enumerate() {
        let first = |symbol| places(calls, symbol)[0];
        let (joined, bound) = (first("cuMulticastAddDevice"), first("cuMulticastBindMem"));
        let mut add = |symbol: &'static str, number: usize| found.push((rank, symbol, number));
        let until = |symbol: &str, end: usize| {
            places(calls, symbol)
                .iter()
                .filter(|&&place| place < end)
                .count()
        };
        if rank == 0 {
            add("cuMulticastGetGranularity", 1);
            add("cuMulticastGetGranularity", 2);
            add("cuMulticastCreate", 1);
            add(
                "cuMemExportToShareableHandle",
                until("cuMemExportToShareableHandle", joined),
            );
        } else {
            add(
                "cuMemImportFromShareableHandle",
                until("cuMemImportFromShareableHandle", joined),
            );
        }
        add("cuMulticastAddDevice", 1);
        add("cuMulticastBindMem", 1);
        for symbol in ["cuMemAddressReserve", "cuMemMap", "cuMemSetAccess"] {
            add(symbol, until(symbol, bound) + 1);
        }
    }
    found
}

/// Does this for each, a few at a time: children mostly wait.
fn for_each<T: Send>(items: Vec<T>, check: impl Fn(T) + Sync) {
    let items = std::sync::Mutex::new(items.into_iter());
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                while let Some(item) = { items.lock().expect("no panic").next() } {
                    check(item);
                }
            });
        }
    });
}

#[test]
fn a_call_that_fails_on_one_rank_has_all_go_without_for_the_same_reason() {
    if !permitted() {
        return;
    }
    for_each(set_up(), |(rank, symbol, number)| {
        let fails = plan("multicast/use")
            .env("FAKE_DEVICE_FAIL", format!("{symbol}:{number}"))
            .env("FAKE_DEVICE_FAIL_RANK", rank);
        let [before, after] = works(fails);
        assert!(
            before.starts_with(&format!("NONE: rank {rank}: ")) && before.contains(symbol),
            "{symbol}:{number} on rank {rank}: {before}"
        );
        assert_eq!(before, after);
    });
}

#[rstest]
#[case(2, "128 multicast objects")]
#[case(1, "without a reset of the GPUs")]
#[case(401, "fabric manager is down")]
#[case(802, "not ready yet")]
#[case(800, "does not permit it")]
#[case(801, "no multicast together")]
fn each_way_to_fail_says_what_to_do(#[case] code: u32, #[case] words: &str) {
    if !permitted() {
        return;
    }
    let fails =
        plan("multicast/use").env("FAKE_DEVICE_FAIL", format!("cuMulticastBindMem:1:{code}"));
    let [before, _] = works(fails.env("FAKE_DEVICE_FAIL_RANK", 2));
    assert!(
        before.starts_with("NONE: rank 2: ") && before.contains(words),
        "{before}"
    );
}

#[test]
fn a_switch_without_a_free_slot_is_told_from_a_device_without_memory() {
    if !permitted() {
        return;
    }
    let [before, _] = works(plan("multicast/use").env("FAKE_CUDA_MULTICAST_SLOTS", 0));
    assert!(
        before.starts_with("NONE: ") && before.contains("no slot left"),
        "{before}"
    );
}

#[test]
fn a_buffer_that_cannot_be_bound_is_reached_by_its_members_own_addresses() {
    if !permitted() {
        return;
    }
    // The slots are the first that is bound.
    let fails = plan("multicast/use")
        .env("FAKE_DEVICE_FAIL", "cuMulticastBindMem:2:401")
        .env("FAKE_DEVICE_FAIL_RANK", 1);
    let [before, after] = works(fails);
    assert_eq!(before, "HARDWARE: ");
    assert!(
        after.starts_with("HARDWARE: rank 1: ") && after.contains("fabric"),
        "{after}"
    );
}

#[test]
fn an_object_without_room_for_the_slots_of_collectives_is_given_up() {
    if !permitted() {
        return;
    }
    let mut world = plan("multicast/use")
        .env("SYMMEM_MULTICAST_BYTES", 1)
        .start();
    let status = agreed(&mut world);
    assert!(
        status.starts_with("NONE: ") && status.contains("SYMMEM_MULTICAST_BYTES"),
        "{status}"
    );
    assert_eq!(world.expect("used"), ["ok"; WORLD]);
    world.ends_well();
}

#[test]
fn what_fails_while_it_is_given_back_is_given_back_all_the_same() {
    if !permitted() {
        return;
    }
    for symbol in ["cuMulticastUnbind:1", "cuMulticastUnbind:5"] {
        let fails = plan("multicast/use").env("FAKE_DEVICE_FAIL", symbol);
        let status = works(fails.env("FAKE_DEVICE_FAIL_RANK", 1));
        assert_eq!(status, ["HARDWARE: ", "HARDWARE: "], "{symbol}");
    }
}

#[test]
fn a_call_that_never_returns_has_all_go_without_within_the_deadline() {
    if !permitted() {
        return;
    }
    let stalls = |(rank, symbol, number): Place| {
        let start = Instant::now();
        let mut world = plan("multicast/open")
            .env("FAKE_DEVICE_STALL", format!("{symbol}:{number}:forever"))
            .env("FAKE_DEVICE_STALL_RANK", rank)
            .setup_deadline(SHORT)
            .start();
        let status = agreed(&mut world);
        let what = format!("{symbol}:{number} on rank {rank}: {status}");
        assert!(
            status.starts_with("NONE: rank ") && status.contains("did not return"),
            "{what}"
        );
        assert_eq!(world.expect("finalized"), ["ok"; WORLD], "{what}");
        // A second look at the clock: three steps, and what the ranks do besides.
        assert!(start.elapsed() < 5 * SHORT, "{what}");
        ends_with_what_is_stuck(&mut world, &what);
    };
    for_each(set_up(), stalls);
}

/// All end well, and nothing was taken from under a call that goes on: that is left to the end of the process.
#[track_caller]
fn ends_with_what_is_stuck(world: &mut World, what: &str) {
    for rank in &mut world.ranks {
        rank.ends_well();
    }
    let report = world.report();
    for wrong in ["while it is bound", "let go of while", "released while"] {
        assert!(!report.contains(wrong), "{what}:\n{report}");
    }
}

#[test]
fn what_never_returns_while_it_is_given_back_keeps_nobody() {
    if !permitted() {
        return;
    }
    // Rank 1 fails to bind the slots, or to map the object.
    let failures = set_up().into_iter().filter(|(rank, symbol, _)| {
        *rank == 1 && ["cuMulticastBindMem", "cuMemMap"].contains(symbol)
    });
    for_each(failures.collect(), |(rank, symbol, number)| {
        let mut world = plan("multicast/open")
            .env("FAKE_DEVICE_FAIL", format!("{symbol}:{number}"))
            .env("FAKE_DEVICE_FAIL_RANK", rank)
            .env("FAKE_DEVICE_STALL", "cuMulticastUnbind:1:forever")
            .env("FAKE_DEVICE_STALL_RANK", 0)
            .setup_deadline(SHORT)
            .start();
        let status = agreed(&mut world);
        assert!(status.starts_with("NONE: rank 1: "), "{status}");
        assert_eq!(world.expect("finalized"), ["ok"; WORLD]);
        ends_with_what_is_stuck(&mut world, symbol);
    });
}

#[test]
fn a_rank_that_dies_at_any_step_is_an_error_of_all_others_and_nothing_is_left() {
    if !permitted() {
        return;
    }
    let all = set_up().into_iter();
    let deaths = all.flat_map(|place| [(place, ""), (place, ":after")]);
    for_each(deaths.collect(), |((rank, symbol, number), after)| {
        let mut world = plan("multicast/open")
            .env("FAKE_DEVICE_KILL", format!("{symbol}:{number}{after}"))
            .env("FAKE_DEVICE_KILL_RANK", rank)
            .setup_deadline(SHORT)
            .start();
        let what = format!("{symbol}:{number}{after} on rank {rank}");
        for survivor in world.ranks.iter_mut().filter(|other| other.number != rank) {
            let (_, error) = survivor.expect("opened");
            assert!(error.starts_with("PeerDied"), "{what}: {error}");
            survivor.ends_well();
        }
        assert!(!world.ranks[rank].wait().success(), "{what}: it lives");
        // Nobody can know that the creator dies just before the others import.
        let orphan = |line: &&str| rank == 0 && line.contains("the multicast object is gone");
        let report = world.report();
        let lines = report.lines().filter(|line| !line.starts_with("process "));
        let wrong: Vec<&str> = lines.filter(|line| !orphan(line)).collect();
        assert_eq!(wrong, [""; 0], "{what}");
    });
}

/// Names that each rank has asked the dynamic loader for.
fn look_ups(plan: Plan) -> Vec<String> {
    let preload = built::build(
        &["build", "--quiet", "-p", "symmem-look-ups", "--lib"],
        "libsymmem_look_ups.so",
    );
    let record = Path::new(env!("CARGO_TARGET_TMPDIR")).join(fresh_name("look-ups"));
    let recorded = plan
        .env("LD_PRELOAD", preload.display())
        .env("SYMMEM_TEST_LOOK_UPS", record.display());
    works(recorded);
    let text = std::fs::read_to_string(&record).expect("a record");
    let _ = std::fs::remove_file(&record);
    let names = text.lines().filter_map(|line| line.split_once(' '));
    names.map(|(_, name)| name.to_owned()).collect()
}

fn of_multicast(names: &[String]) -> HashMap<&str, usize> {
    let mut found = HashMap::new();
    for name in names.iter().filter(|name| name.contains("Multicast")) {
        *found.entry(name.as_str()).or_default() += 1;
    }
    found
}

/// Any switch of the field's, or nobody's asking, keeps even the names from being looked up.
#[rstest]
#[case::nobody_asks(&[("SYMMEM_MULTICAST", "")])]
#[case::something_else_is_said(&[("SYMMEM_MULTICAST", "maybe")])]
#[case::ours(&[("SYMMEM_MULTICAST", "0")])]
#[case::nccl(&[("NCCL_NVLS_ENABLE", "0")])]
#[case::nvshmem(&[("NVSHMEM_DISABLE_NVLS", "1")])]
#[case::torch(&[("TORCH_SYMM_MEM_DISABLE_MULTICAST", "1")])]
#[case::emulated(&[("SYMMEM_MULTICAST", "emulate")])]
#[case::emulated_where_it_is_forbidden(&[("SYMMEM_MULTICAST", "emulate"), ("NCCL_NVLS_ENABLE", "0")])]
fn not_one_function_is_looked_up_where_anything_forbids_it(#[case] variables: &[(&str, &str)]) {
    let mut quiet = plan("multicast/use");
    for (name, value) in variables {
        quiet = quiet.env(name, value);
    }
    let names = look_ups(quiet);
    assert!(names.iter().any(|name| name == "cuInit"), "{names:?}");
    assert_eq!(of_multicast(&names), HashMap::new());
}

/// Else the test above would prove nothing.
#[test]
fn functions_are_looked_up_once_by_each_rank_where_it_is_asked_for() {
    if !permitted() {
        return;
    }
    let names = look_ups(plan("multicast/use"));
    let found = of_multicast(&names);
    assert_eq!(found.get("cuMulticastCreate"), Some(&WORLD), "{found:?}");
    assert_eq!(found.len(), 5, "{found:?}");
}
