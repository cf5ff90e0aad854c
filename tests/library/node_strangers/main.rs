//! What strangers and mistakes do to a world over nodes as it is set up, and to its first collective: every rank gets a
//! typed error that says what to do, within the deadline, and nothing hangs.
//!
//! Hosts are network namespaces; without the rights for them, or without UCX, tests are skipped by name.
//! `SYMMEM_TEST_SECOND_UCX` names a `libucp.so.0` of another version than the installed one.

mod rank;
mod world;

use std::time::{Duration, Instant};
use world::{PORT, SETUP, World};

/// The program of a rank; does nothing in the test run itself.
#[test]
fn rank() {
    rank::run_if_asked();
}

/// Time beyond a deadline, however busy the machine is.
const SLACK: Duration = Duration::from_secs(15);

#[test]
fn a_firewall_that_drops_ucx_is_named_with_rank_node_and_what_to_open() {
    let Some(world) = World::on_hosts("a_firewall_that_drops_ucx", 2) else {
        return;
    };
    if !world.wall_off_ucx(1) {
        return;
    }
    let start = Instant::now();
    let said = world.run("join", |_| Vec::new());
    assert!(start.elapsed() < SETUP + SLACK, "{:?}", start.elapsed());
    println!("{said:#?}");
    for (rank, text) in said.iter().enumerate() {
        let other = 1 - rank;
        assert!(text.contains("UCX_NET_DEVICES"), "rank {rank}: {text}");
        assert!(text.contains("all ports"), "rank {rank}: {text}");
        let names = format!("rank {rank}, peer {other}, node {other}");
        let told = text.starts_with("PeerFailed") || text.contains(&names);
        assert!(told, "rank {rank}: {text}");
    }
    let own = said
        .iter()
        .filter(|text| text.starts_with("PeerUnreachable"));
    assert!(own.count() > 0, "{said:?}");
}

/// Time after which ranks that have met greet each other over UCX, for half of the set-up's deadline if nothing gets through.
const GREETING: Duration = Duration::from_secs(2);

#[test]
fn a_rank_that_dies_in_the_greeting_over_ucx_is_named_at_once() {
    let Some(world) = World::on_hosts("a_rank_that_dies_in_the_greeting_over_ucx", 2) else {
        return;
    };
    if !world.wall_off_ucx(1) {
        return;
    }
    for victim in [1, 0] {
        let [survivor, mut killed] =
            [1 - victim, victim].map(|rank| world.start(rank, "join", &[]));
        std::thread::sleep(GREETING);
        let start = Instant::now();
        killed.kill().expect("a child");
        let said = world::said(survivor);
        let named = said.starts_with(&format!("PeerDied {victim}"));
        assert!(named, "rank {victim} was killed: {said}");
        assert!(start.elapsed() < SLACK, "{:?}", start.elapsed());
        let _ = killed.wait();
    }
}

#[test]
fn a_link_that_is_cut_in_the_greeting_over_ucx_is_named_on_both_sides_within_the_silence() {
    let Some(world) = World::on_hosts("a_link_that_is_cut_in_the_greeting_over_ucx", 2) else {
        return;
    };
    if !world.wall_off_ucx(1) {
        return;
    }
    let silence = [("SYMMEM_SILENCE", "1".to_owned())];
    let ranks = [0, 1].map(|rank| world.start(rank, "join", &silence));
    std::thread::sleep(GREETING);
    let start = Instant::now();
    world.cut(1);
    for (rank, child) in ranks.into_iter().enumerate() {
        let said = world::said(child);
        let other = 1 - rank;
        let named = said.starts_with(&format!("PeerDied {other}"));
        assert!(named, "rank {rank}: {said}");
        assert!(start.elapsed() < SLACK, "{:?}", start.elapsed());
    }
}

#[test]
fn a_firewall_that_drops_the_rendezvous_is_named_within_the_deadline() {
    let Some(world) = World::on_hosts("a_firewall_that_drops_the_rendezvous", 2) else {
        return;
    };
    if !world.wall(0, &[format!("tcp dport {PORT} drop")]) {
        return;
    }
    let start = Instant::now();
    let said = world.run("join", |_| Vec::new());
    assert!(start.elapsed() < SETUP + SLACK, "{:?}", start.elapsed());
    assert!(said[0].contains("rank 1 did not arrive"), "{}", said[0]);
    let address = format!("10.77.0.1:{PORT}");
    assert!(said[1].contains(&address), "{}", said[1]);
}

#[test]
fn transports_and_devices_that_do_not_exist_are_refused_with_the_words_of_ucx() {
    for (variable, value) in [("UCX_TLS", "nonsense"), ("UCX_NET_DEVICES", "nonsense0")] {
        let Some(world) = World::on_loopback("transports_that_do_not_exist", 2) else {
            return;
        };
        let start = Instant::now();
        let said = world.run("join", |rank| match rank {
            1 => vec![(variable, value.to_owned())],
            _ => Vec::new(),
        });
        assert!(start.elapsed() < SETUP + SLACK, "{:?}", start.elapsed());
        let own = &said[1];
        assert!(!own.starts_with("joined"), "{variable}: {own}");
        assert!(own.contains("UCX"), "{variable}: {own}");
        assert!(!said[0].starts_with("joined"), "{variable}: {}", said[0]);
    }
}

#[test]
fn a_collective_of_other_sizes_on_another_node_is_a_mismatch() {
    for role in ["all_reduce", "all_gather", "broadcast"] {
        let Some(world) = World::on_loopback("a_collective_of_other_sizes", 2) else {
            return;
        };
        let said = world.run(role, |_| Vec::new());
        let told = said.iter().any(|text| text.starts_with("Mismatch"));
        assert!(told, "{role}: {said:?}");
        for text in &said {
            // A rank that only sends is done, or hears of the other's failure.
            let known = ["Mismatch", "PeerFailed", "joined"];
            let known = known.iter().any(|kind| text.starts_with(kind));
            assert!(known, "{role}: {text}");
        }
    }
}

#[test]
fn a_process_that_dies_while_others_are_awaited_is_named_before_the_deadline() {
    let Some(world) = World::on_loopback("a_process_that_dies_while_others_are_awaited", 3) else {
        return;
    };
    let start = Instant::now();
    // Rank 2 never comes.
    let mut ranks = vec![world.start(0, "join", &[]), world.start(1, "join", &[])];
    std::thread::sleep(Duration::from_secs(1));
    let killed = Instant::now();
    ranks[1].kill().expect("a child");
    let said = world::said(ranks.remove(0));
    assert!(said.starts_with("PeerDied 1"), "{said}");
    assert!(killed.elapsed() < SETUP - Duration::from_secs(1) || start.elapsed() < SETUP);
    let _ = ranks.remove(0).wait();
}

#[test]
fn ranks_with_another_version_of_ucx_work_together_or_say_why_not() {
    let Some(other) = std::env::var_os("SYMMEM_TEST_SECOND_UCX") else {
        eprintln!(
            "skipped: ranks_with_another_version_of_ucx: SYMMEM_TEST_SECOND_UCX names no libucp.so.0"
        );
        return;
    };
    let other = other.into_string().expect("a path");
    let Some(world) = World::on_loopback("ranks_with_another_version_of_ucx", 2) else {
        return;
    };
    let start = Instant::now();
    let said = world.run("sum", |rank| match rank {
        1 => vec![("SYMMEM_UCX_LIBRARY", other.clone())],
        _ => Vec::new(),
    });
    assert!(start.elapsed() < SETUP + SLACK, "{:?}", start.elapsed());
    println!("{said:?}");
    let joined = said.iter().filter(|text| text.starts_with("joined"));
    match joined.count() {
        2 => {}
        0 => assert!(said.iter().all(|text| !text.is_empty()), "{said:?}"),
        _ => panic!("one rank goes on alone: {said:?}"),
    }
}
