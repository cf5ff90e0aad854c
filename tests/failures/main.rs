//! Tests of the failure model: every failure ends in an error and never in a hang.
//!
//! Ranks are processes, so that they can be killed and stopped. They run on the host backend and on the CUDA and HIP
//! backends over fake runtimes. `SYMMEM_TESTS=all` runs every case instead of a sample. `SYMMEM_TEST_DRIVER=system`
//! runs the themes that support it on the machine's own driver, `products` and `reduced_products` with as many ranks as `FAILURES_WORLD` says.

#[path = "../support/mod.rs"]
#[allow(dead_code, reason = "these tests load a plugin of their own")]
mod built;

mod abort;
mod calls;
mod collectives;
mod drain;
mod exporter;
mod injection;
mod local;
mod loss;
mod memory;
mod mismatch;
mod multicast;
mod products;
mod rebuild;
mod reduced_products;
mod rendezvous;
mod start;
mod support;
mod teardown;
mod waits;

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
        "abort" => abort::role(role, &member),
        "collectives" => collectives::role(role, &member),
        "drain" => drain::role(role, &member),
        "exporter" => exporter::role(role, &member),
        "injection" => injection::role(role, &member),
        "local" => local::role(role, &member),
        "memory" => memory::role(role, &member),
        "mismatch" => mismatch::role(role, &member),
        "multicast" => multicast::role(role, &member),
        "products" => products::role(role, &member),
        "rebuild" => rebuild::role(role, &member),
        "reduced_products" => reduced_products::role(role, &member),
        "rendezvous" => rendezvous::role(role, &member),
        "start" => start::role(role, &member),
        "teardown" => teardown::role(role, &member),
        "waits" => waits::role(role, &member),
        _ => panic!("no such theme: {theme}"),
    }
}
