//! Limits: slots of the switch, and room in a multicast object.

use super::*;
use symmem::{Builder, LaunchEnvironment};

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

/// Opens a second communicator of the same ranks beside the first, and a third once the first is gone.
pub fn generations(member: &Member, first: Communicator) {
    let another = |name: &str| {
        let (rank, world) = (member.rank as u32, member.world as u32);
        let job = format!("{}-{name}", std::env::var("FAILURES_JOB").expect("a job"));
        let launch = LaunchEnvironment::local(rank, world, job).expect("a rank of the world");
        let builder: Builder = member.builder().launch(launch);
        let opened = builder.build();
        member.tell("opened", &opened);
        opened.expect("opened")
    };
    let second = another("second");
    tell_status(member, &second);
    member.tell("used", &use_it(member, &second));
    member.tell("used", &use_it(member, &first));
    tell_status(member, &first);
    member.tell("finalized", &first.finalize());
    // The last rank may release its part after the others have left, so wait for it.
    member.tell("met", &second.host_barrier());
    let third = another("third");
    tell_status(member, &third);
    member.tell("used", &use_it(member, &third));
    member.tell("finalized", &third.finalize());
    member.tell("finalized", &second.finalize());
}

#[test]
fn a_communicator_that_finds_the_switch_full_works_beside_the_one_that_has_the_slot() {
    if !permitted() {
        return;
    }
    let mut world = plan("multicast/generations")
        .env("FAKE_CUDA_MULTICAST_SLOTS", 1)
        .start();
    assert_eq!(world.expect("opened"), ["ok"; WORLD]);
    assert_eq!(agreed(&mut world), "HARDWARE: ");
    assert_eq!(world.expect("opened"), ["ok"; WORLD]);
    let second = agreed(&mut world);
    assert!(
        second.starts_with("NONE: rank ") && second.contains("no slot left"),
        "{second}"
    );
    assert_eq!(world.expect("used"), ["ok"; WORLD], "the second");
    assert_eq!(world.expect("used"), ["ok"; WORLD], "the first");
    assert_eq!(agreed(&mut world), "HARDWARE: ");
    assert_eq!(world.expect("finalized"), ["ok"; WORLD]);
    assert_eq!(world.expect("met"), ["ok"; WORLD]);
    assert_eq!(world.expect("opened"), ["ok"; WORLD]);
    assert_eq!(agreed(&mut world), "HARDWARE: ", "the third");
    assert_eq!(world.expect("used"), ["ok"; WORLD], "the third");
    for _ in 0..2 {
        assert_eq!(world.expect("finalized"), ["ok"; WORLD]);
    }
    world.ends_well();
}

/// The old communicator keeps its slot until the new one exists.
#[test]
fn survivors_that_find_the_switch_full_go_without() {
    if !permitted() {
        return;
    }
    let mut world = plan("multicast/rebuild")
        .env("FAKE_CUDA_MULTICAST_SLOTS", 1)
        .env("FAKE_DEVICE_KILL", "cuMulticastUnbind:1")
        .env("FAKE_DEVICE_KILL_RANK", 1)
        .start();
    for survivor in world.ranks.iter_mut().filter(|rank| rank.number != 1) {
        assert_eq!(survivor.expect("status").1, "HARDWARE: ");
        let (_, error) = survivor.expect("used");
        assert!(error.starts_with("PeerDied"), "{error}");
        assert_eq!(survivor.expect("rebuilt").1, "ok");
        let (_, status) = survivor.expect("status");
        assert!(
            status.starts_with("NONE: rank ") && status.contains("no slot left"),
            "{status}"
        );
        assert_eq!(survivor.expect("used").1, "ok");
        assert_eq!(survivor.expect("finalized").1, "ok");
        survivor.ends_well();
    }
    assert!(!world.ranks[1].wait().success(), "it lives");
    assert_eq!(complaints(&world, 1), [""; 0]);
}

#[test]
fn an_object_without_room_for_the_slots_of_collectives_is_given_up() {
    if !permitted() {
        return;
    }
    let [status, _] = works(plan("multicast/use").env("SYMMEM_MULTICAST_BYTES", 1));
    assert!(
        status.starts_with("NONE: ") && status.contains("SYMMEM_MULTICAST_BYTES"),
        "{status}"
    );
}

/// Uses two buffers of this size in collectives, whether or not they are bound.
pub fn fill(member: &Member, communicator: &Communicator) -> Result<()> {
    let stream = communicator.stream()?;
    let bytes: usize = member.argument.parse().expect("bytes");
    let world = communicator.world_size() as u32;
    for _ in 0..2 {
        let buffers = [bytes / 4; 2].map(|count| communicator.allocate::<u32>(&[count]));
        let [first, second] = buffers;
        let (first, second) = (first?, second?);
        member.say(
            "views",
            format!("{:?}", [has_view(&first), has_view(&second)]),
        );
        for buffer in [&first, &second] {
            buffer.write(&stream, 0, &[7; COUNT])?;
            let range = buffer.slice(..COUNT)?;
            let by = CollectiveOptions::new().algorithm(Algorithm::Multicast);
            stream.with(&by).all_reduce(range, range, ReduceOp::Sum)?;
            expect(&stream, buffer, |_| 7 * world, COUNT)?;
        }
        first.free()?;
        second.free()?;
    }
    Ok(())
}

/// Returns the plan of a world that fills an object of `object` bytes with buffers of `buffer` bytes.
fn sized(object: u64, buffer: u64) -> Plan {
    plan("multicast/room")
        .env("SYMMEM_MULTICAST_BYTES", object)
        .argument(buffer)
}

/// Returns how many bytes of an object the slots of collectives take, and the granularity of an object's size.
pub fn slots_and_unit() -> (u64, u64) {
    let mut world = sized(1, 4 * COUNT as u64).start();
    let reason = agreed(&mut world);
    let words = reason.split(|other: char| !other.is_ascii_digit());
    let numbers: Vec<u64> = words.filter_map(|number| number.parse().ok()).collect();
    let [slots, unit] = numbers[..] else {
        panic!("{reason}");
    };
    (slots, unit)
}

#[test]
fn an_object_with_room_for_one_buffer_serves_the_one_that_comes_first() {
    if !permitted() {
        return;
    }
    let (slots, unit) = slots_and_unit();
    // In addition to the slots, there is room for at least one unit and for less than two.
    let mut world = sized(slots + unit, unit).start();
    assert_eq!(agreed(&mut world), "HARDWARE: ");
    // The second round uses the room that the first one freed.
    for _ in 0..2 {
        assert_eq!(world.expect("views"), ["[true, false]"; WORLD]);
    }
    assert_eq!(world.expect("used"), ["ok"; WORLD]);
    world.ends_well();
}
