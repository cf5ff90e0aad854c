//! How ranks of several nodes meet, and what goes wrong.

use super::support::{Member, Plan};
use std::time::Duration;
use symmem::Builder;

#[test]
fn without_a_secret_every_rank_says_what_to_set() {
    let mut job = Plan::new("meeting/fail", &["a", "b"])
        .env("SYMMEM_SECRET", "")
        .start();
    for rank in &mut job.ranks {
        let (text, _) = rank.hear("error");
        assert!(text.contains("set SYMMEM_SECRET to the same 64"), "{text}");
    }
}

#[test]
fn a_rank_with_another_secret_is_told() {
    let mut job = Plan::new("meeting/fail", &["a", "b"])
        .env_of(1, "SYMMEM_SECRET", "5a".repeat(32))
        .start();
    let (text, _) = job.ranks[1].hear("error");
    assert!(text.contains("SYMMEM_SECRET differs"), "{text}");
    // A stranger ends no rendezvous.
    let (text, _) = job.ranks[0].hear("error");
    assert!(text.contains("rank 1 did not arrive"), "{text}");
}

#[test]
fn ranks_with_another_world_size_are_named_on_every_node() {
    let mut job = Plan::new("meeting/fail", &["a", "a", "b"])
        .env_of(2, "SYMMEM_WORLD", 4)
        .env_of(2, "SYMMEM_LOCAL_WORLD", 4)
        .start();
    for rank in &mut job.ranks {
        let (text, _) = rank.hear("error");
        assert!(
            text.contains("rank 2 was started with a world size of 4, rank 0 with 3"),
            "{text}"
        );
    }
}

#[test]
fn a_second_job_at_the_same_port_is_told_and_the_first_goes_on() {
    let plan = Plan::new("meeting/wait", &["a", "b"]);
    // Its second rank waits until the other job has failed.
    let mut first = plan.start();
    first.ranks[0].hear("ready");
    first.ranks[1].hear("ready");
    first.ranks[0].go();
    std::thread::sleep(Duration::from_millis(300));
    let mut second = Plan::new("meeting/fail", &["c", "d"])
        .at_the_address_of(&plan)
        .start();
    for rank in &mut second.ranks {
        let (text, _) = rank.hear("error");
        assert!(text.contains("another job uses the address"), "{text}");
    }
    first.ranks[1].go();
    first.end();
}

#[test]
fn ranks_on_several_hosts_without_an_address_are_told_what_to_set() {
    let mut job = Plan::new("meeting/fail", &["", ""])
        .env("SYMMEM_RENDEZVOUS", "")
        .env("SYMMEM_LOCAL_WORLD", 1)
        .env("SYMMEM_LOCAL_RANK", 0)
        .start();
    for rank in &mut job.ranks {
        let (text, _) = rank.hear("error");
        assert!(
            text.contains("set SYMMEM_RENDEZVOUS to host:port"),
            "{text}"
        );
    }
}

pub fn role(role: &str, member: &Member) {
    match role {
        "wait" => {
            member.ready();
            let communicator = member.join();
            communicator.finalize().unwrap();
        }
        "fail" => {
            let joined = Builder::new()
                .setup_deadline(Duration::from_secs(3))
                .build();
            let error = joined.map(drop).unwrap_err();
            member.say("error", error);
        }
        _ => panic!("no such role: {role}"),
    }
}
