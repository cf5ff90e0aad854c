//! The survivors of a death rebuild the communicator, whichever rank died and whichever dies meanwhile.

use crate::support::{
    Member, PATIENCE, Plan, Random, Setting, however_memory_is_shared, resources,
    wherever_signals_live,
};
use rstest::rstest;
use rstest_reuse::apply;
use std::time::Duration;
use symmem::{Communicator, Error, Result};

const WORLD: usize = 4;

/// Every rank puts its number to its neighbor, which checks it: memory, signals and barriers work.
pub fn ring(communicator: &Communicator) -> Result<()> {
    let (rank, world) = (communicator.rank(), communicator.world_size());
    let stream = communicator.stream()?;
    let outbox = communicator.allocate::<u64>(&[512])?;
    let inbox = communicator.allocate::<u64>(&[512])?;
    let left = (rank + world - 1) % world;
    for round in 0..10 {
        let value = |rank: usize| rank as u64 * 1000 + round;
        outbox.write(&stream, 0, &[value(rank); 512])?;
        stream.put_signal((rank + 1) % world, inbox.all(), outbox.all(), 0)?;
        stream.wait_signal(left, 0)?;
        let mut received = [0; 512];
        inbox.read(&stream, 0, &mut received)?;
        assert_eq!(received, [value(left); 512], "round {round}");
        stream.barrier()?;
    }
    outbox.free()?;
    inbox.free()
}

/// Uses the communicator until it fails, and returns the error.
fn use_up(communicator: &Communicator) -> Error {
    loop {
        if let Err(error) = ring(communicator) {
            return error;
        }
    }
}

pub fn role(role: &str, member: &Member) {
    let before = resources();
    let mut communicator = member.join();
    match role {
        // Works until a rank dies, then continues with the survivors until the world has the size that the test gives.
        "until" => {
            let wanted: usize = member.argument.parse().expect("a size of the world");
            member.ready();
            let mut error = use_up(&communicator);
            member.say("heard", format!("{error:#?}"));
            loop {
                communicator = match communicator.rebuild() {
                    Ok(communicator) => communicator,
                    Err(error) => return member.say("failed", format!("{error:#?} {error}")),
                };
                let place = (communicator.rank(), communicator.world_size());
                member.say("rebuilt", format!("{place:?}"));
                let checked = ring(&communicator).and_then(|()| communicator.host_barrier());
                if let Err(next) = checked {
                    error = next;
                } else if communicator.world_size() == wanted {
                    break;
                } else {
                    error = use_up(&communicator);
                }
                assert!(matches!(error, Error::PeerDied { .. }), "{error}");
            }
            assert!(communicator.generation() > 0);
            communicator.finalize().expect("nobody else dies");
            // Not even the first join of a process may leave a descriptor open.
            if !member.setting.is_device() {
                // A real driver may keep descriptors while the process lives.
                assert_eq!(resources().0, before.0, "descriptors");
            }
            member.say("done", "");
        }
        _ => panic!("no such role: {role}"),
    }
}

#[apply(wherever_signals_live)]
fn survivors_go_on_whoever_was_killed(
    setting: Setting,
    // Rank 0 holds the store.
    #[values(0, 2)] victim: usize,
) {
    if crate::built::amount::sampled_out(4) {
        return;
    }
    let plan = Plan::new("rebuild/until", WORLD, setting).argument(WORLD - 1);
    let mut world = plan.start();
    world.ready().go();
    std::thread::sleep(Duration::from_millis(40));
    world.ranks[victim].kill();
    let dead = world.ranks.remove(victim);
    for (new, rank) in world.ranks.iter_mut().enumerate() {
        let (_, error) = rank.expect("heard");
        assert!(error.contains(&format!("peer: {victim}")), "{error}");
        let (_, place) = rank.expect("rebuilt");
        assert_eq!(place, format!("{:?}", (new, WORLD - 1)), "the old order");
    }
    world.expect("done");
    world.ends_well();
    drop(dead);
}

#[apply(however_memory_is_shared)]
fn a_rank_that_dies_during_the_rebuild_is_left_out_as_well(
    setting: Setting,
    #[values(0, 1, 2, 3, 4, 5, 6, 7, 8, 9)] run: u64,
) {
    if crate::built::amount::sampled_out(4) {
        return;
    }
    if !crate::support::full() && run >= if setting == Setting::Host { 4 } else { 2 } {
        return;
    }
    let mut random = Random::new(run);
    let first = random.below(WORLD as u64) as usize;
    // In half of the runs the second victim is the lowest survivor, which would hold the new store.
    let lowest = usize::from(first == 0);
    let second = match run % 2 {
        0 => lowest,
        _ => (first + 1 + random.below(WORLD as u64 - 1) as usize) % WORLD,
    };
    let plan = Plan::new("rebuild/until", WORLD, setting).argument(WORLD - 2);
    let mut world = plan.start();
    world.ready().go();
    std::thread::sleep(Duration::from_millis(20));
    world.ranks[first].kill();
    let survivor = (0..WORLD).find(|rank| ![first, second].contains(rank));
    world.ranks[survivor.expect("two are left")].expect("heard");
    let pause = Duration::from_micros(random.below(30_000));
    println!("rank {first} is killed, and rank {second} after another {pause:?}");
    std::thread::sleep(pause);
    world.ranks[second].kill();
    let (dead, alive) = std::mem::take(&mut world.ranks)
        .into_iter()
        .partition(|rank| [first, second].contains(&rank.number));
    world.ranks = alive;
    world.expect("done");
    world.ends_well();
    drop::<Vec<_>>(dead);
}

#[rstest]
fn a_stopped_rank_holds_a_rebuild_up_to_the_deadline_and_is_named(
    #[values(
        Setting::Host,
        Setting::Cuda,
        Setting::CudaLegacy,
        Setting::Hip,
        Setting::HipVmm
    )]
    setting: Setting,
) {
    if crate::built::amount::sampled_out(4) {
        return;
    }
    let limit = Duration::from_millis(1500);
    let (victim, stopped) = (1, 2);
    let mut world = Plan::new("rebuild/until", WORLD, setting)
        .argument(WORLD - 1)
        .setup_deadline(limit)
        .start();
    world.ready().go();
    std::thread::sleep(Duration::from_millis(40));
    world.ranks[stopped].stop();
    world.ranks[victim].kill();
    for rank in [0, 3] {
        let rank = &mut world.ranks[rank];
        let (heard, _) = rank.expect("heard");
        let (failed, error) = rank.expect("failed");
        assert!(
            error.contains("Timeout") && error.contains(&format!("rank {stopped} did not arrive")),
            "{error}"
        );
        let waited = failed.saturating_duration_since(heard);
        assert!(waited < limit + crate::support::SLACK, "{waited:?}");
    }
    // The stopped rank wakes up and rebuilds alone.
    world.ranks[stopped].resume();
    world.ranks[stopped].expect("heard");
    for rank in [0, 3] {
        world.ranks[rank].ends_well();
    }
    let (_, place) = world.ranks[stopped].expect_within("rebuilt", PATIENCE);
    assert_eq!(place, "(0, 1)", "the others have left");
}
