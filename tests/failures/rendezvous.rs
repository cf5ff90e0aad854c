//! Ranks that die, hang or never arrive while the others meet, and processes that are not ranks and connect.

use crate::support::{Member, PATIENCE, Plan, Setting, fresh_name, on_each_backend};
use rstest::rstest;
use rstest_reuse::apply;
use std::io::{Read, Write};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixStream};
use std::time::{Duration, Instant};

pub fn role(role: &str, member: &Member) {
    match role {
        "open" => {
            member.ready();
            member.tell("opened", &member.builder().build());
        }
        _ => panic!("no such role: {role}"),
    }
}

#[apply(on_each_backend)]
fn a_rank_that_never_comes_is_named(setting: Setting, #[values(0, 1)] absent: usize) {
    let deadline = Duration::from_millis(1500);
    let plan = Plan::new("rendezvous/open", 3, setting).setup_deadline(deadline);
    let mut world = plan.without_rank(absent).start();
    world.ready();
    let start = Instant::now();
    world.go();
    for rank in &mut world.ranks {
        let (at, error) = rank.expect("opened");
        let waited = at.saturating_duration_since(start);
        assert!(
            error.contains("Timeout") && error.contains(&format!("[{absent}]")),
            "{error}"
        );
        assert!(waited < deadline + crate::support::SLACK, "took {waited:?}");
    }
    world.ends_well();
}

#[apply(on_each_backend)]
fn a_rank_killed_before_all_have_met_ends_the_meeting(
    setting: Setting,
    // Rank 0 holds the store.
    #[values(0, 1)] victim: usize,
) {
    // Rank 2 never arrives, so the others wait.
    let plan = Plan::new("rendezvous/open", 3, setting).without_rank(2);
    let mut world = plan.start();
    world.ready().go();
    std::thread::sleep(Duration::from_millis(150));
    let killed = world.ranks[victim].kill();
    let dead = world.ranks.remove(victim);
    let survivor = &mut world.ranks[0];
    let (at, error) = survivor.expect("opened");
    let detection = at.saturating_duration_since(killed);
    println!("{setting:?}: heard of rank {victim} in rendezvous after {detection:?}");
    assert!(
        error.contains("PeerDied") && error.contains(&format!("peer: {victim}")),
        "{error}"
    );
    // Rank 0 lingers for a second so that ranks that arrive late also get the reason.
    let limit = if victim == 0 {
        crate::support::detection()
    } else {
        crate::support::detection() * 2
    };
    assert!(detection < limit, "detected after {detection:?}");
    world.ends_well();
    drop(dead);
}

/// Waits until a rendezvous that was not there `before` has this number of connections, and their messages have arrived.
fn wait_for_connections(before: &[String], count: usize) {
    let start = Instant::now();
    loop {
        let sockets = std::fs::read_to_string("/proc/net/unix").expect("/proc");
        // State 03 is connected; the store's end of a connection has the name of its listener.
        let connected = sockets.lines().filter_map(|line| {
            let (fields, name) = line.rsplit_once(" @")?;
            (fields.split_whitespace().nth(5) == Some("03")).then_some(name)
        });
        let mut names: Vec<&str> = connected
            .filter(|name| !before.iter().any(|known| known == name))
            .collect();
        names.sort_unstable();
        if names.chunk_by(PartialEq::eq).any(|one| one.len() == count) {
            std::thread::sleep(Duration::from_millis(200));
            return;
        }
        assert!(start.elapsed() < PATIENCE, "not {count} connections");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Eight ranks, of which two come 0.3 s after a death: nobody waits for the setup's deadline, whichever rank died.
#[test]
fn ranks_that_come_after_a_death_are_told_of_it_however_many() {
    // Rank 0 holds the store.
    for victim in [1, 5, 0] {
        // Whoever listens for the late ranks does so for 0.8 s. A busy machine may keep one of them waiting for longer, or
        // the victim from reporting itself before its death; neither happens every time.
        let mut attempts = (0..5).map(|_| late_ranks_are_told_of(victim));
        assert!(attempts.any(|told| told), "in none of 5 attempts");
    }
}

/// Returns whether every survivor was told of the death within the time that it must take.
fn late_ranks_are_told_of(victim: usize) -> bool {
    let job = fresh_name("job");
    let ranks = |absent: std::ops::Range<usize>| {
        let plan = Plan::new("rendezvous/open", 8, Setting::Host).job(&job);
        let plan = plan.setup_deadline(crate::support::SLACK * 2);
        absent.fold(plan, Plan::without_rank).start()
    };
    let (mut early, mut late) = (ranks(6..8), ranks(0..6));
    early.ready();
    late.ready();
    let before = meeting_places();
    early.go();
    wait_for_connections(&before, 5);
    early.ranks[victim].kill();
    let dead = early.ranks.remove(victim);
    std::thread::sleep(Duration::from_millis(300));
    late.go();
    let gone = Instant::now();
    let told: Vec<bool> = (early.ranks.iter_mut())
        .chain(&mut late.ranks)
        .map(|rank| {
            let (at, error) = rank.expect("opened");
            let after = at.saturating_duration_since(gone);
            let rank = rank.number;
            println!("rank {rank} heard of rank {victim} {after:?} after the last came: {error}");
            let named = error.contains("PeerDied") && error.contains(&format!("peer: {victim}"));
            named && after < crate::support::detection()
        })
        .collect();
    early.ends_well();
    late.ends_well();
    drop(dead);
    told.iter().all(|told| *told)
}

#[rstest]
fn a_rank_killed_while_its_device_opens_ends_the_others(#[values(0, 1)] victim: usize) {
    // The victim's driver is slow, so all ranks have met and the others wait for it.
    let plan = Plan::new("rendezvous/open", 3, Setting::Cuda);
    let mut world = plan
        .env_of(
            victim,
            "FAKE_DEVICE_STALL",
            "cuDevicePrimaryCtxRetain:1:20000",
        )
        .start();
    world.ready().go();
    std::thread::sleep(Duration::from_millis(300));
    let killed = world.ranks[victim].kill();
    let dead = world.ranks.remove(victim);
    for rank in &mut world.ranks {
        let (at, error) = rank.expect("opened");
        let detection = at.saturating_duration_since(killed);
        println!("heard of rank {victim} in its start after {detection:?}");
        assert!(
            error.contains("PeerDied") && error.contains(&format!("peer: {victim}")),
            "{error}"
        );
        assert!(
            detection < crate::support::detection(),
            "detected after {detection:?}"
        );
    }
    world.ends_well();
    drop(dead);
}

/// Returns the names of the abstract sockets at which ranks of this user's jobs meet, as the kernel lists them.
fn meeting_places() -> Vec<String> {
    let sockets = std::fs::read_to_string("/proc/net/unix").expect("/proc");
    let names = sockets
        .lines()
        .filter_map(|line| line.rsplit_once(" @symmem-"));
    names.map(|(_, name)| format!("symmem-{name}")).collect()
}

#[test]
fn a_stranger_is_not_let_in_and_delays_nobody() {
    let before = meeting_places();
    let job = fresh_name("job");
    let plan = Plan::new("rendezvous/open", 2, Setting::Host).job(&job);
    let mut first = plan.without_rank(1).start();
    first.ready().go();
    let start = Instant::now();
    let place = loop {
        let places = meeting_places();
        // Other tests meet at the same time; connecting to their sockets does no harm.
        if let Some(place) = places.into_iter().find(|place| !before.contains(place)) {
            break place;
        }
        assert!(start.elapsed() < PATIENCE, "rank 0 does not listen");
        std::thread::sleep(Duration::from_millis(5));
    };
    let address = SocketAddr::from_abstract_name(place.as_bytes()).expect("a name");
    let knock = |words: &[u8]| {
        let mut stream = UnixStream::connect_addr(&address).ok()?;
        stream
            .set_read_timeout(Some(Duration::from_secs(10)))
            .ok()?;
        // Rank 0 may close the connection at once.
        let _ = stream.write_all(words);
        Some(stream)
    };
    // One connection stays silent; the other sends data that no rank sends, and is closed.
    let silent = knock(b"");
    let loud = knock(&[0xa5; 4096]);
    if let Some(mut loud) = loud {
        let mut answer = Vec::new();
        let _ = loud.read_to_end(&mut answer);
        assert!(
            answer.len() < 256,
            "a stranger received {} bytes",
            answer.len()
        );
    }
    let mut second = Plan::new("rendezvous/open", 2, Setting::Host)
        .job(&job)
        .without_rank(0)
        .start();
    second.ready().go();
    assert_eq!(first.expect("opened"), ["ok"]);
    assert_eq!(second.expect("opened"), ["ok"]);
    first.ends_well();
    second.ends_well();
    drop(silent);
}

#[test]
fn two_that_claim_one_rank_are_both_told() {
    let job = fresh_name("job");
    let start = |absent: usize| {
        let plan = Plan::new("rendezvous/open", 3, Setting::Host).job(&job);
        plan.without_rank(absent).without_rank(2).start()
    };
    let mut world = start(usize::MAX);
    world.ready().go();
    std::thread::sleep(Duration::from_millis(100));
    let mut twin = start(0);
    twin.ready().go();
    for error in world
        .expect("opened")
        .into_iter()
        .chain(twin.expect("opened"))
    {
        assert!(error.contains("RankTaken { rank: 1 }"), "{error}");
    }
    world.ends_well();
    twin.ends_well();
}
