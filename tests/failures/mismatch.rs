//! Ranks that do not agree: a typed error on all of them, and a communicator that goes on where the
//! ranks are still in step.

use crate::support::{Member, Plan, Setting};
use rstest::rstest;
use std::time::Duration;
use symmem::{Communicator, LaunchEnvironment, SignalPlacement};

const WORLD: usize = 3;

pub fn role(role: &str, member: &Member) {
    match role {
        "call" => call(member),
        "open" => {
            // The last rank differs.
            let odd = member.rank == WORLD - 1;
            let builder = member.builder();
            let builder = match member.argument.as_str() {
                _ if !odd => builder,
                "deadline" => builder.deadline(Duration::from_secs(77)),
                "placement" => builder.signal_placement(SignalPlacement::HOST),
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
        ("nothing", _) => communicator.allocate::<u32>(&[0]).map(drop),
        ("too much", _) => communicator.allocate::<u64>(&[usize::MAX, 2]).map(drop),
        ("payload", false) => communicator.host_all_gather(b"small").map(drop),
        ("payload", true) => communicator.host_all_gather(&vec![0; 4 << 20]).map(drop),
        (other, _) => panic!("no such difference: {other}"),
    };
    member.tell("result", &result);
    member.tell("check", &communicator.check());
    // All ranks are in step, so everything goes on.
    let again = communicator
        .allocate::<u32>(&[100])
        .and_then(|buffer| buffer.free());
    member.tell("again", &again);
    member.tell("finalized", &communicator.finalize());
}

fn buffer(communicator: &Communicator) -> symmem::SymmetricBuffer<u8> {
    communicator.allocate(&[64]).expect("memory")
}

#[rstest]
fn ranks_that_pass_something_else_all_fail_and_go_on(
    #[values(Setting::Host, Setting::Cuda)] setting: Setting,
    #[values(
        ("size", "Mismatch"),
        ("shape", "Mismatch"),
        ("type", "Mismatch"),
        ("order", "Mismatch"),
        ("buffer", "Mismatch"),
        ("nothing", "InvalidArgument"),
        ("too much", "InvalidArgument")
    )]
    case: (&str, &str),
) {
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
            error.starts_with("PeerFailed") && error.contains("can give"),
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

#[rstest]
fn ranks_that_open_with_other_options_all_fail(
    #[values(Setting::Host, Setting::Cuda)] setting: Setting,
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
    // A generation of its own is another meeting place: the ranks miss each other.
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
