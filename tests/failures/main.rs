//! The failure model, proved: an error, never a hang.
//!
//! Ranks are processes, so that they can be killed and stopped; they run on the host backend and on
//! the CUDA and HIP backends over fake runtimes. `SYMMEM_TEST_FULL=1` asks for every case, not a sample;
//! `SYMMEM_TEST_DRIVER=system` runs the themes that can on the machine's own driver, products on as many ranks as
//! `FAILURES_WORLD` says.

#[path = "../support/mod.rs"]
#[allow(dead_code, reason = "these tests load a plugin of their own")]
mod built;

mod abort;
mod calls;
mod collectives;
mod exporter;
mod injection;
mod memory;
mod mismatch;
mod multicast;
mod multicast_alike;
mod products;
mod rebuild;
mod rendezvous;
mod start;
mod support;
mod teardown;
mod waits;

use support::Member;

/// What a started rank does; see [`support::Plan`].
#[test]
fn rank() {
    // Run by itself it is no rank, and has nothing to do.
    let Some((role, member)) = Member::find() else {
        return;
    };
    let (theme, role) = role.split_once('/').expect("theme/role");
    match theme {
        "abort" => abort::role(role, &member),
        "collectives" => collectives::role(role, &member),
        "exporter" => exporter::role(role, &member),
        "injection" => injection::role(role, &member),
        "memory" => memory::role(role, &member),
        "mismatch" => mismatch::role(role, &member),
        "multicast" => multicast::role(role, &member),
        "products" => products::role(role, &member),
        "rebuild" => rebuild::role(role, &member),
        "rendezvous" => rendezvous::role(role, &member),
        "start" => start::role(role, &member),
        "teardown" => teardown::role(role, &member),
        "waits" => waits::role(role, &member),
        _ => panic!("no such theme: {theme}"),
    }
}
