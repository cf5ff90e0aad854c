//! Ranks that disagree get a typed error on all ranks. The communicator continues if the ranks are still in step.

use crate::support::{Member, Plan, Setting, on_each_backend};
use rstest::rstest;
use rstest_reuse::apply;
use std::time::Duration;
use symmem::{
    Algorithm, CollectiveOptions, Communicator, LaunchEnvironment, Queue, ReduceOp, SignalPlacement,
};

const WORLD: usize = 3;

pub fn role(role: &str, member: &Member) {
    match role {
        "call" => call(member),
        "collective" => collective(member),
        "receipt" => receipt(member),
        "message" => message(member),
        "open" => {
            // The last rank differs.
            let odd = member.rank == WORLD - 1;
            let builder = member.builder();
            let builder = match member.argument.as_str() {
                _ if !odd => builder,
                "deadline" => builder.deadline(Duration::from_secs(77)),
                "placement" => builder.signal_placement(SignalPlacement::Host),
                "world" => {
                    let mut launch = member.launch();
                    (launch.world, launch.local_world) = (4, 4);
                    builder.launch(launch)
                }
                "generation" => builder.launch(LaunchEnvironment {
                    generation: 9,
                    ..member.launch()
                }),
                other => panic!("no such difference: {other}"),
            };
            member.tell("opened", &builder.build());
        }
        _ => panic!("no such role: {role}"),
    }
}

fn call(member: &Member) {
    let odd = member.rank == WORLD - 1;
    let communicator = member.join();
    let (first, second) = (buffer(&communicator), buffer(&communicator));
    let result = match (member.argument.as_str(), odd) {
        ("size", false) => communicator.allocate::<u32>(&[100]).map(drop),
        ("size", true) => communicator.allocate::<u32>(&[101]).map(drop),
        ("shape", false) => communicator.allocate::<u32>(&[10, 10]).map(drop),
        ("shape", true) => communicator.allocate::<u32>(&[100]).map(drop),
        ("type", false) => communicator.allocate::<u32>(&[100]).map(drop),
        ("type", true) => communicator.allocate::<f32>(&[100]).map(drop),
        ("order", false) => communicator.host_barrier(),
        ("order", true) => communicator.allocate::<u32>(&[100]).map(drop),
        ("buffer", false) => first.free(),
        ("buffer", true) => second.free(),
        ("nothing", false) => communicator.allocate::<u32>(&[0]).map(drop),
        ("nothing", true) => communicator.allocate::<u32>(&[1]).map(drop),
        ("too much", _) => communicator.allocate::<u64>(&[usize::MAX, 2]).map(drop),
        ("payload", false) => communicator.host_all_gather(b"small").map(drop),
        ("payload", true) => communicator.host_all_gather(&vec![0; 4 << 20]).map(drop),
        (other, _) => panic!("no such difference: {other}"),
    };
    member.tell("result", &result);
    member.tell("check", &communicator.check());
    // All ranks are in step, so everything continues.
    let again = communicator
        .allocate::<u32>(&[100])
        .and_then(|buffer| buffer.free());
    member.tell("again", &again);
    member.tell("finalized", &communicator.finalize());
}

/// Makes a collective whose arguments differ at the last rank.
fn collective(member: &Member) {
    let odd = member.rank == WORLD - 1;
    let pick = |what: &str, other: usize| match (member.argument == what, odd) {
        (true, true) => other,
        _ => 0,
    };
    let communicator = member.join();
    let mut stream = communicator.stream().expect("a stream");
    let buffers = [(); 2].map(|()| communicator.allocate::<i32>(&[300]).expect("memory"));
    let floats = communicator.allocate::<f32>(&[300]).expect("memory");
    let shorts = communicator.allocate::<u16>(&[300]).expect("memory");
    let call = |queue: &Queue| {
        let options = CollectiveOptions::new()
            .algorithm([None, Some(Algorithm::Ll)][pick("algorithm", 1)])
            .threads([None, Some(64)][pick("threads", 1)]);
        let operation = [ReduceOp::Sum, ReduceOp::Maximum][pick("reduction", 1)];
        let (at, count) = (pick("offset", 4), 64 + pick("count", 1));
        let destination = buffers[pick("buffer", 1)].slice(at..at + count)?;
        let source = buffers[1].slice(100..100 + count)?;
        let what = member.argument.as_str();
        match what {
            "root" => queue
                .with(&options)
                .broadcast(pick("root", 1), destination, source),
            "operation" if odd => queue.with(&options).broadcast(0, destination, source),
            "element" if odd => {
                let (destination, source) =
                    (floats.slice(..count)?, floats.slice(100..100 + count)?);
                queue
                    .with(&options)
                    .all_reduce(destination, source, operation)
            }
            "counts" => {
                let mut counts = [20; WORLD];
                counts[0] += pick("counts", 1);
                let whole = buffers[0].slice(..counts.iter().sum::<usize>())?;
                queue.with(&options).all_gather_v(whole, source, &counts)
            }
            "barrier" if !odd => queue.with(&options).barrier(),
            "sent" | "part" | "part's element" => {
                // The elements that rank 0 sends, and where they arrive.
                let mut received = [20; WORLD];
                received[0] += pick("sent", 1);
                let at = [0, 30 + pick("part", 300), 60];
                let (to, from) = (buffers[0].all(), buffers[1].all());
                if what == "part's element" && odd {
                    let (to, from) = (shorts.slice(..100)?, shorts.slice(150..250)?);
                    return queue
                        .with(&options)
                        .all_to_all_v(to, &received, &at, from, &[20; 3], &at);
                }
                queue
                    .with(&options)
                    .all_to_all_v(to, &received, &at, from, &[20; 3], &at)
            }
            _ => queue
                .with(&options)
                .all_reduce(destination, source, operation),
        }
    };
    let eager = call(&stream).and_then(|()| stream.synchronize());
    member.tell("result", &eager);
    // Arguments are compared while they are captured, because a replay cannot compare them.
    member.tell("captured", &stream.capture(call).map(drop));
    member.tell("check", &communicator.check());
    let again = stream
        .all_reduce(
            buffers[0].slice(..7).expect("a range"),
            buffers[1].slice(..7).expect("a range"),
            ReduceOp::Sum,
        )
        .and_then(|()| stream.synchronize());
    member.tell("again", &again);
    drop((buffers, floats, shorts));
    member.tell("finalized", &communicator.finalize());
}

#[apply(on_each_backend)]
fn a_checked_collective_that_differs_at_one_rank_fails_on_all_and_names_it(
    setting: Setting,
    #[values(
        "operation",
        "count",
        "element",
        "reduction",
        "root",
        "algorithm",
        "threads",
        "offset",
        "buffer",
        "counts",
        "barrier",
        "sent",
        "part's element"
    )]
    what: &str,
) {
    if crate::built::amount::sampled_out(4) {
        return;
    }
    // The comparison does not depend on the backend.
    if setting.is_device() && what != "count" && !crate::support::full() {
        return;
    }
    let mut world = Plan::new("mismatch/collective", WORLD, setting)
        .argument(what)
        .env("SYMMEM_CHECK", 1)
        .start();
    for key in ["result", "captured"] {
        for (rank, error) in world.expect(key).iter().enumerate() {
            // The rank that differs reports the first rank that it differs from.
            let other = if rank == WORLD - 1 { 0 } else { WORLD - 1 };
            assert!(
                error.starts_with("Mismatch") && error.contains(&format!("peer: {other}")),
                "{key} at rank {rank}: {error}"
            );
        }
    }
    assert_eq!(world.expect("check"), ["ok"; WORLD]);
    assert_eq!(world.expect("again"), ["ok"; WORLD]);
    assert_eq!(world.expect("finalized"), ["ok"; WORLD]);
    world.ends_well();
}

#[test]
fn a_checked_all_to_all_v_that_is_refused_at_one_rank_is_made_by_none() {
    let mut world = Plan::new("mismatch/collective", WORLD, Setting::Host)
        .argument("part")
        .env("SYMMEM_CHECK", 1)
        .start();
    for key in ["result", "captured"] {
        for (rank, error) in world.expect(key).iter().enumerate() {
            let right = match rank == WORLD - 1 {
                true => error.starts_with("InvalidArgument"),
                false => error.starts_with("Mismatch") && error.contains("peer: 2"),
            };
            assert!(right && error.contains("outside the range"), "{error}");
        }
    }
    assert_eq!(world.expect("again"), ["ok"; WORLD]);
    assert_eq!(world.expect("finalized"), ["ok"; WORLD]);
    world.ends_well();
}

/// Rank 0 sends what the last rank receives with other arguments or not at all. The rank between takes no part.
fn message(member: &Member) {
    let communicator = member.join();
    let stream = communicator.stream().expect("a stream");
    let buffer = communicator.allocate::<u32>(&[300]).expect("memory");
    let shorts = communicator.allocate::<u16>(&[300]).expect("memory");
    let fewer = CollectiveOptions::new().threads(64);
    let range = |count| buffer.slice(..count).expect("a range");
    let what = member.argument.as_str();
    let moved = match (member.rank, what) {
        (0, _) => stream.send(2, range(100)),
        (2, "count") => stream.recv(0, range(101)),
        (2, "element") => stream.recv(0, shorts.slice(..200).expect("a range")),
        (2, "threads") => stream.with(&fewer).recv(0, range(100)),
        (2, "nothing") => stream.recv(0, range(100)),
        _ => Ok(()),
    };
    let outcome = moved.and_then(|()| stream.synchronize());
    member.tell("result", &outcome);
    if what == "receipt" {
        return;
    }
    // Two concurrent sends are received one after the other, beside a ring.
    let parts = [buffer.slice(10..30), buffer.slice(40..70)].map(|part| part.expect("a range"));
    let pair = match member.rank {
        0 => {
            let mut exchange = stream.exchange();
            let added = parts.map(|part| exchange.send(2, part));
            added
                .into_iter()
                .collect::<symmem::Result<()>>()
                .and_then(|()| exchange.enqueue())
        }
        2 => parts.into_iter().try_for_each(|part| stream.recv(0, part)),
        _ => Ok(()),
    };
    let (next, before) = ((member.rank + 1) % WORLD, (member.rank + 2) % WORLD);
    let again = pair.and_then(|()| {
        let mut exchange = stream.exchange();
        exchange.send(next, parts[0])?;
        exchange.recv(before, buffer.slice(200..220)?)?;
        exchange.send(member.rank, parts[0])?;
        exchange.recv(member.rank, buffer.slice(100..120)?)?;
        exchange.enqueue()
    });
    member.tell("again", &again.and_then(|()| stream.synchronize()));
    drop((buffer, shorts));
    member.tell("finalized", &communicator.finalize());
}

#[apply(on_each_backend)]
fn a_checked_send_that_differs_from_its_receipt_fails_at_both_and_they_go_on(
    setting: Setting,
    #[values(
        ("count", "the number of elements"),
        ("element", "the size of an element"),
        ("threads", "the number of threads"),
        ("nothing", "")
    )]
    case: (&str, &str),
) {
    let (what, named) = case;
    if setting.is_device() && what != "count" && !crate::support::full() {
        return;
    }
    let mut world = Plan::new("mismatch/message", WORLD, setting)
        .argument(what)
        .env("SYMMEM_CHECK", 1)
        .start();
    let results = world.expect("result");
    for (rank, other) in [(0, 2), (2, 0)] {
        let result = &results[rank];
        match what {
            "nothing" => assert_eq!(result, "ok"),
            _ => assert!(
                result.starts_with("Mismatch")
                    && result.contains(&format!("peer: {other}"))
                    && result.contains(named),
                "{result}"
            ),
        }
    }
    assert_eq!(results[1], "ok");
    assert_eq!(world.expect("again"), ["ok"; WORLD]);
    assert_eq!(world.expect("finalized"), ["ok"; WORLD]);
    world.ends_well();
}

#[test]
fn a_checked_send_that_nobody_receives_names_the_rank_that_did_not_come() {
    let mut world = Plan::new("mismatch/message", WORLD, Setting::Host)
        .argument("receipt")
        .env("SYMMEM_CHECK", 1)
        .setup_deadline(Duration::from_secs(2))
        .start();
    let results = world.expect("result");
    assert!(
        results[0].contains("the matching receive of rank 2"),
        "{}",
        results[0]
    );
    world.ends_well();
}

/// Rank 0 sends less than rank 1 expects; rank 2 takes no part.
fn receipt(member: &Member) {
    let communicator = member.join();
    let outcome = send_and_expect_more(&communicator);
    member.tell("result", &outcome);
}

/// Rank 2 may be told of the failure by any of these calls.
fn send_and_expect_more(communicator: &Communicator) -> symmem::Result<()> {
    let stream = communicator.stream()?;
    let buffer = communicator.allocate::<u16>(&[300])?;
    let options = CollectiveOptions::default();
    match communicator.rank() {
        0 => stream.with(&options).send(1, buffer.slice(..100)?)?,
        1 => stream.with(&options).recv(0, buffer.slice(..101)?)?,
        _ => stream.barrier()?,
    }
    stream.synchronize()
}

#[apply(on_each_backend)]
fn a_receipt_of_another_size_than_was_sent_names_the_sender_and_both_sizes(setting: Setting) {
    let mut world = Plan::new("mismatch/receipt", WORLD, setting).start();
    let results = world.expect("result");
    assert!(
        results[1].starts_with("Mismatch")
            && results[1].contains("peer: 0")
            && results[1].contains("mine: \"202\"")
            && results[1].contains("theirs: \"200\""),
        "{}",
        results[1]
    );
    for result in [&results[0], &results[2]] {
        assert!(
            result.starts_with("PeerFailed") && result.contains("peer: 1"),
            "{result}"
        );
    }
    world.ends_well();
}

#[test]
fn checked_collectives_that_are_alike_on_all_ranks_pass() {
    let mut world = Plan::new("mismatch/collective", WORLD, Setting::Host)
        .argument("nothing")
        .env("SYMMEM_CHECK", 1)
        .start();
    for key in ["result", "captured", "check", "again", "finalized"] {
        assert_eq!(world.expect(key), ["ok"; WORLD], "{key}");
    }
    world.ends_well();
}

fn buffer(communicator: &Communicator) -> symmem::SymmetricBuffer<u8> {
    communicator.allocate(&[64]).expect("memory")
}

#[apply(on_each_backend)]
fn ranks_that_pass_something_else_all_fail_and_go_on(
    setting: Setting,
    #[values(
        ("size", "Mismatch"),
        ("shape", "Mismatch"),
        ("type", "Mismatch"),
        ("order", "Mismatch"),
        ("buffer", "Mismatch"),
        ("nothing", "Mismatch"),
        ("too much", "InvalidArgument")
    )]
    case: (&str, &str),
) {
    if crate::built::amount::sampled_out(4) {
        return;
    }
    let (what, variant) = case;
    let mut world = Plan::new("mismatch/call", WORLD, setting)
        .argument(what)
        .start();
    for error in world.expect("result") {
        assert!(error.starts_with(variant), "{error}");
    }
    assert_eq!(world.expect("check"), ["ok"; WORLD]);
    assert_eq!(world.expect("again"), ["ok"; WORLD]);
    assert_eq!(world.expect("finalized"), ["ok"; WORLD]);
    world.ends_well();
}

#[test]
fn a_payload_that_is_too_large_on_one_rank_fails_all_and_they_go_on() {
    let mut world = Plan::new("mismatch/call", WORLD, Setting::Host)
        .argument("payload")
        .start();
    let errors = world.expect("result");
    for error in &errors[..WORLD - 1] {
        assert!(
            error.starts_with("PeerFailed") && error.contains("can contribute"),
            "{error}"
        );
    }
    assert!(
        errors[WORLD - 1].starts_with("InvalidArgument"),
        "{errors:?}"
    );
    assert_eq!(world.expect("again"), ["ok"; WORLD]);
    world.ends_well();
}

#[apply(on_each_backend)]
fn ranks_that_open_with_other_options_all_fail(
    setting: Setting,
    #[values(
        ("deadline", "the deadline"),
        ("placement", "the signal placement"),
        ("world", "WorldMismatch"),
        ("generation", "generation")
    )]
    case: (&str, &str),
) {
    let (what, named) = case;
    let plan = Plan::new("mismatch/open", WORLD, setting).argument(what);
    // Another generation meets in another place, so the ranks miss each other.
    let mut world = plan.setup_deadline(Duration::from_secs(2)).start();
    for error in world.expect("opened") {
        let missed = what == "generation" && error.contains("Timeout");
        assert!(missed || error.contains(named), "{error}");
    }
    world.ends_well();
}

#[rstest]
fn a_variable_that_changes_kernels_must_be_the_same_everywhere(
    #[values(Setting::Host)] setting: Setting,
) {
    let plan = Plan::new("mismatch/open", WORLD, setting).argument("deadline");
    let mut world = plan.env_of(1, "SYMMEM_MULTICAST", "0").start();
    for error in world.expect("opened") {
        assert!(error.starts_with("Mismatch"), "{error}");
    }
    world.ends_well();
}
