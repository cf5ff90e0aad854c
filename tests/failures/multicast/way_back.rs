//! Giving back what multicast took, and leaving early, whatever changed meanwhile.

use super::*;
use crate::support::DETECTION;

/// Forbids multicast once two buffers are bound, as a program may before it starts another library; then gives
/// one of them back, and drops the other.
pub fn forbid(communicator: &Communicator) -> Result<()> {
    let [first, second] = [(); 2].map(|()| communicator.allocate::<u32>(&[COUNT]));
    let (first, second) = (first?, second?);
    assert!(has_view(&first) && has_view(&second));
    // SAFETY: no other thread of this process reads the environment now: the ranks' own threads do not.
    unsafe { std::env::set_var("NCCL_NVLS_ENABLE", "0") };
    first.free()?;
    drop(second);
    // What is new is reached without it: nothing more may be called.
    let third = communicator.allocate::<u32>(&[COUNT])?;
    assert!(!has_view(&third));
    third.free()
}

#[test]
fn what_is_bound_is_given_back_though_the_environment_forbids_multicast_by_now() {
    if !permitted() {
        return;
    }
    let mut world = plan("multicast/forbid").start();
    assert_eq!(agreed(&mut world), "HARDWARE: ");
    assert_eq!(world.expect("used"), ["ok"; WORLD]);
    assert_eq!(world.expect("finalized"), ["ok"; WORLD]);
    world.ends_well();
}

/// While one rank's call never returns, another dies: nobody waits for the first one's deadline.
#[rstest]
fn a_death_is_heard_of_within_a_second_by_a_rank_that_is_stuck_and_by_one_that_waits_for_it(
    #[values(0, 1)] stuck: usize,
) {
    if !permitted() {
        return;
    }
    let victim = 2;
    let mut world = plan("multicast/open")
        .env("FAKE_DEVICE_STALL", "cuMulticastBindMem:1:forever")
        .env("FAKE_DEVICE_STALL_RANK", stuck)
        .env("FAKE_DEVICE_KILL", "cuMulticastBindMem:1")
        .env("FAKE_DEVICE_KILL_RANK", victim)
        .start();
    assert!(!world.ranks[victim].wait().success());
    let death = Instant::now();
    for survivor in &mut world.ranks[..victim] {
        let (heard, error) = survivor.expect("opened");
        assert!(error.starts_with("PeerDied"), "{error}");
        let detection = heard.saturating_duration_since(death);
        assert!(detection < DETECTION, "only after {detection:?}: {error}");
        survivor.ends_well();
    }
}
