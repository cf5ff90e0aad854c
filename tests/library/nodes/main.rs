//! Worlds over nodes, on one machine: each rank is a process with the key of its node in `SYMMEM_NODE`, and all meet by
//! TCP.

#[path = "../backend.rs"]
mod backend;
#[path = "../../support/fakes.rs"]
#[allow(dead_code, reason = "these tests need the fake runtimes only")]
mod fakes;
#[path = "../../support/hip.rs"]
#[allow(dead_code, reason = "as above")]
mod hip;
mod loss;
mod meeting;
mod network;
mod support;
mod times;
mod work;

use support::Member;

/// The main function of a started rank; see [`support::Plan`].
#[test]
fn rank() {
    // Without a role this process is not a rank, and there is nothing to do.
    let Some((role, member)) = Member::find() else {
        return;
    };
    let (theme, role) = role.split_once('/').expect("theme/role");
    match theme {
        "loss" => loss::role(role, &member),
        "meeting" => meeting::role(role, &member),
        "network" => network::role(role, &member),
        "work" => work::role(role, &member),
        _ => panic!("no such theme: {theme}"),
    }
}
