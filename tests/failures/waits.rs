//! A peer is killed or stopped while others wait for it, in every kind of wait.

use crate::support::{Member, Plan, Setting, however_memory_is_shared, wherever_signals_live};
use rstest::rstest;
use rstest_reuse::apply;
use std::time::Duration;
use symmem::{Communicator, Error, Result, SignalPlacement, Stream, SymmetricBuffer};

const WORLD: usize = 3;

/// Waits on the device, or on the host through rank 0's store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wait {
    Signal,
    Barrier,
    Replay,
    HostBarrier,
    Allocate,
    Free,
    Finalize,
}

impl Wait {
    fn parse(name: &str) -> Self {
        use Wait::*;
        [
            Signal,
            Barrier,
            Replay,
            HostBarrier,
            Allocate,
            Free,
            Finalize,
        ]
        .into_iter()
        .find(|wait| format!("{wait:?}") == name)
        .expect("a wait's name")
    }

    fn on_the_host(self) -> bool {
        matches!(
            self,
            Self::HostBarrier | Self::Allocate | Self::Free | Self::Finalize
        )
    }
}

pub fn role(role: &str, member: &Member) {
    let (what, victim) = member.argument.split_once(' ').expect("wait and victim");
    let victim: usize = victim.parse().expect("a rank");
    let communicator = member.join();
    let stream = communicator.stream().expect("a stream");
    // `FAILURES_ELEMENTS` gives victims more memory than a test needs, which the operating system takes longer to free.
    let elements = std::env::var("FAILURES_ELEMENTS").ok();
    let elements = elements.map(|text| text.parse().expect("a number of elements"));
    let big = elements.unwrap_or(if role == "transfer" {
        16 << 20
    } else {
        1 << 10
    });
    let buffer = communicator.allocate::<u32>(&[2 * big]).expect("memory");
    member.ready();
    if member.rank == victim {
        // If the victim survives, it learns that the others gave up on it.
        let error = loop {
            match communicator.check() {
                Ok(()) => std::thread::sleep(Duration::from_millis(5)),
                Err(error) => break error,
            }
        };
        member.say("done", format!("{error:#?} {error}"));
        return;
    }
    // Reported at once, because a driver takes a good part of a second to close the device.
    let tell = |error: Error| member.say("done", format!("{error:#?} {error}"));
    match role {
        "wait" => {
            let what = Wait::parse(what);
            wait(what, victim, communicator, stream, buffer, tell).unwrap_err();
        }
        "transfer" => loop {
            let (one, other) = (buffer.slice(..big), buffer.slice(big..2 * big));
            let (one, other) = (one.expect("half"), other.expect("half"));
            let moved = stream
                .put(victim, one, other)
                .and_then(|()| stream.synchronize());
            if let Err(error) = moved {
                break tell(error);
            }
            member.say("moved", "");
        },
        _ => panic!("no such role: {role}"),
    }
}

fn wait(
    what: Wait,
    victim: usize,
    communicator: Communicator,
    mut stream: Stream,
    buffer: SymmetricBuffer<u32>,
    tell: impl Fn(Error),
) -> Result<()> {
    let outcome = match what {
        Wait::Signal => stream
            .wait_signal(victim, 3)
            .and_then(|()| stream.synchronize()),
        Wait::Barrier => stream.barrier().and_then(|()| stream.synchronize()),
        Wait::Replay => {
            let on_device = communicator.signal_placement() == SignalPlacement::Device;
            let graph = stream.capture(|queue| {
                if on_device {
                    queue.wait_signal(victim, 5)?;
                }
                queue.barrier()
            })?;
            let outcome = stream
                .launch_graph(&graph)
                .and_then(|()| stream.synchronize());
            if let Err(error) = &outcome {
                tell(error.clone());
            }
            return outcome;
        }
        Wait::HostBarrier => communicator.host_barrier(),
        Wait::Allocate => communicator.allocate::<u32>(&[8]).map(drop),
        Wait::Free => buffer.free(),
        Wait::Finalize => {
            let outcome = communicator.finalize().map(drop);
            if let Err(error) = &outcome {
                tell(error.clone());
            }
            return outcome;
        }
    };
    if let Err(error) = &outcome {
        tell(error.clone());
    }
    outcome
}

#[apply(wherever_signals_live)]
fn survivors_of_a_kill_hear_of_it_within_a_second(
    setting: Setting,
    #[values(
        Wait::Signal,
        Wait::Barrier,
        Wait::Replay,
        Wait::HostBarrier,
        Wait::Allocate,
        Wait::Free,
        Wait::Finalize
    )]
    wait: Wait,
    // Rank 0 also holds the store.
    #[values(0, 2)] victim: usize,
) {
    if crate::built::amount::sampled_out(4) {
        return;
    }
    let plan = Plan::new("waits/wait", WORLD, setting).argument(format!("{wait:?} {victim}"));
    let mut world = plan.start();
    world.ready().go();
    // Time to begin the wait.
    std::thread::sleep(Duration::from_millis(60));
    let killed = world.ranks[victim].kill();
    let dead = world.ranks.remove(victim);
    for rank in &mut world.ranks {
        let (heard, error) = rank.expect("done");
        let detection = heard.saturating_duration_since(killed);
        println!(
            "{setting:?} {wait:?}: rank {} heard of rank {victim} after {detection:?}",
            rank.number
        );
        assert!(
            error.contains("PeerDied") && error.contains(&format!("peer: {victim}")),
            "{error}"
        );
        assert!(
            detection < crate::support::detection(),
            "detected after {detection:?}: {error}"
        );
    }
    world.ends_well();
    drop(dead);
}

/// Rank 0 holds the store, by which ranks that wait on the host hear of a death.
#[rstest]
fn a_kill_is_heard_of_within_a_second_though_rank_0_is_stopped(
    #[values(Wait::HostBarrier, Wait::Allocate, Wait::Barrier)] wait: Wait,
) {
    let victim = 2;
    let plan = Plan::new("waits/wait", WORLD, Setting::Host).argument(format!("{wait:?} {victim}"));
    let mut world = plan.start();
    world.ready();
    world.ranks[0].stop();
    world.go();
    // Time to begin the wait.
    std::thread::sleep(Duration::from_millis(60));
    let killed = world.ranks[victim].kill();
    let dead = world.ranks.remove(victim);
    let (heard, error) = world.ranks[1].expect("done");
    let detection = heard.saturating_duration_since(killed);
    println!("{wait:?}: heard after {detection:?}: {error}");
    let named = error.contains("PeerDied") && error.contains(&format!("peer: {victim}"));
    assert!(named, "{error}");
    assert!(detection < crate::support::detection(), "{detection:?}");
    world.ranks[0].resume();
    let (_, error) = world.ranks[0].expect("done");
    assert!(
        error.contains("PeerDied") || error.contains("PeerFailed"),
        "{error}"
    );
    for rank in &mut world.ranks {
        rank.ends_well();
    }
    drop(dead);
}

#[rstest]
fn a_stopped_rank_is_given_up_at_the_deadline_by_name(
    #[values(
        Setting::Host,
        Setting::HostWithHostSignals,
        Setting::Cuda,
        Setting::CudaWithHostSignals,
        Setting::Hip,
        Setting::HipWithHostSignals
    )]
    setting: Setting,
    #[values(
        Wait::Signal,
        Wait::Barrier,
        Wait::Replay,
        Wait::HostBarrier,
        Wait::Allocate,
        Wait::Free,
        Wait::Finalize
    )]
    wait: Wait,
    #[values(0, 2)] victim: usize,
) {
    if crate::built::amount::sampled_out(4) {
        return;
    }
    // Waits on the store do not depend on where signals live, and little on the call.
    let same = setting.placement() == SignalPlacement::Host
        || !crate::support::full() && matches!(wait, Wait::Free | Wait::Finalize);
    if wait.on_the_host() && same {
        return;
    }
    let deadline = Duration::from_millis(if wait.on_the_host() { 2500 } else { 800 });
    let mut plan = Plan::new("waits/wait", WORLD, setting).argument(format!("{wait:?} {victim}"));
    plan = match wait.on_the_host() {
        true => plan.setup_deadline(deadline),
        false => plan.deadline(deadline),
    };
    let mut world = plan.start();
    world.ready();
    let stopped = world.ranks[victim].stop();
    world.go();
    let mut given_up = Vec::new();
    for rank in world.ranks.iter_mut().filter(|rank| rank.number != victim) {
        let (heard, error) = rank.expect("done");
        let waited = heard.saturating_duration_since(stopped);
        // Of all ranks, before one fails the test.
        println!(
            "{setting:?} {wait:?}: rank {} gave up on rank {victim} after {waited:?}: {error}",
            rank.number
        );
        given_up.push((waited, error));
    }
    for (waited, error) in given_up {
        // The first rank that gives up names the peer and the call; the other may learn it from that rank.
        let named = error.contains("Timeout") || error.contains("PeerFailed");
        assert!(
            named && error.contains(&format!("rank {victim}")),
            "{error}"
        );
        assert!(
            waited < deadline + crate::support::SLACK,
            "took {waited:?}: {error}"
        );
    }
    world.ranks[victim].resume();
    let (_, error) = world.ranks[victim].expect("done");
    // When a rank that holds the store wakes up, the others have already left or died.
    assert!(
        error.contains("PeerFailed") || error.contains("PeerDied"),
        "{error}"
    );
    for rank in &mut world.ranks {
        rank.ends_well();
    }
}

#[apply(however_memory_is_shared)]
fn a_kill_in_the_middle_of_a_large_transfer_ends_it(setting: Setting) {
    let victim = 1;
    let plan = Plan::new("waits/transfer", WORLD, setting).argument(format!("put {victim}"));
    let mut world = plan.start();
    world.ready().go();
    world.ranks[0].expect("moved");
    let killed = world.ranks[victim].kill();
    let dead = world.ranks.remove(victim);
    for rank in &mut world.ranks {
        let (heard, error) = rank.expect("done");
        let detection = heard.saturating_duration_since(killed);
        println!(
            "{setting:?} transfer: rank {} heard after {detection:?}",
            rank.number
        );
        assert!(
            error.contains("PeerDied") && error.contains("peer: 1"),
            "{error}"
        );
        assert!(
            detection < crate::support::detection(),
            "detected after {detection:?}: {error}"
        );
    }
    world.ends_well();
    drop(dead);
}
