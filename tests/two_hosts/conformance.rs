//! A sample of the conformance suite on two hosts with a slow wire that loses packets: everything is right, only later.

use std::process::ExitCode;
use std::time::Duration;
use symmem::backends::Selection;
use symmem::bootstrap::Secret;
use symmem_conformance::collectives::plan::{self as collectives, Sizes};
use symmem_conformance::{
    Case, Outcome, Placement, RanksPerNode, Totals, World, WorldOptions, plan, rank_main,
};
use two_hosts::{AGENT, Hosts, HostsOptions, INTERFACE};

/// Set for the processes that are ranks of a world.
const RANK: &str = "SYMMEM_CONFORMANCE_RANK";

/// Starts a rank on its host: two ranks are on each. The process is the rank itself, so its end is the rank's.
const ON_ITS_HOST: &str = r#"exec "$AGENT" "host$((SYMMEM_RANK / 2))" exec "$0" "$@""#;

/// One in this many cases of each sample runs.
const SHARES: (usize, usize) = (16, 128);

#[test]
fn with_delay_and_loss_every_case_of_a_sample_is_right() {
    const TEST: &str = "with_delay_and_loss_every_case_of_a_sample_is_right";
    let hosts = Hosts::new(&HostsOptions {
        delay: Some(Duration::from_millis(5)),
        loss: Some(0.01),
        ..HostsOptions::default()
    });
    let Ok(hosts) = hosts.map_err(|skip| skip.tell(TEST)) else {
        return;
    };
    if let Err(error) = symmem::network_library() {
        return eprintln!("skipped: {TEST}: {error}");
    }
    let mut world = World::launch(options(&hosts)).unwrap_or_else(|error| panic!("{error}"));
    let (mut totals, mut failed) = (Totals::default(), Vec::new());
    for record in world.run(&cases(), |_| ()) {
        totals.count(&record.outcome);
        if let Outcome::Failed(reason) = &record.outcome {
            failed.push(format!("{}: {reason}", record.case));
        }
    }
    println!("conformance: two-hosts: {totals}");
    assert!(failed.is_empty(), "{}", failed.join("\n"));
    world.finish().unwrap_or_else(|error| panic!("{error}"));
    // Most cases move bytes to the other host.
    assert!(totals.passed > 15, "{totals}");
    for bytes in hosts.bytes() {
        assert!(bytes.sent > 100 << 10, "{bytes:?}");
    }
    assert_eq!(hosts.leftovers(), [""; 0]);
}

fn options(hosts: &Hosts) -> WorldOptions {
    let ranks: RanksPerNode = "2x2".parse().unwrap();
    let own = std::env::current_exe().unwrap().into_os_string();
    let words = ["--exact", "conformance::rank_process", "--nocapture"].map(Into::into);
    let secret = Secret::random().unwrap().to_hex();
    let mut environment: Vec<(String, String)> = vec![
        (RANK.into(), "1".into()),
        ("AGENT".into(), AGENT.into()),
        ("SYMMEM_SECRET".into(), secret),
        (
            "SYMMEM_RENDEZVOUS".into(),
            format!("{}:29500", hosts[0].address()),
        ),
        ("UCX_TLS".into(), "tcp,self".into()),
        ("UCX_NET_DEVICES".into(), INTERFACE.into()),
    ];
    for host in hosts.iter() {
        environment.push((format!("TWO_HOSTS_{}", host.name()), host.nsenter()));
    }
    WorldOptions {
        backend: Selection::Named("host".into()),
        arguments: ["-c".into(), ON_ITS_HOST.into(), own]
            .into_iter()
            .chain(words)
            .collect(),
        environment: environment
            .into_iter()
            .map(|(name, value)| (name.into(), value.into()))
            .collect(),
        ..WorldOptions::new(ranks, "/bin/sh")
    }
}

fn cases() -> Vec<Case> {
    let transfers = plan::sample(1, plan::SEED).into_iter();
    let transfers = transfers
        .step_by(SHARES.0)
        .map(|(_, case)| Case::Transfer(case.over_nodes()));
    let collectives = collectives::sample(1, Sizes::Small, plan::SEED).into_iter();
    let collectives = collectives.step_by(SHARES.1).map(|(_, case)| case);
    let mut cases: Vec<Case> = transfers.chain(collectives).collect();
    // A world opens one communicator for each placement of signals, one after the other.
    cases.sort_by_key(|case| case.placement() != Placement::Device);
    cases
}

/// Not a test: the main function of a process of this file that was started as a rank.
#[test]
fn rank_process() {
    if std::env::var_os(RANK).is_some() && rank_main() != ExitCode::SUCCESS {
        std::process::exit(1);
    }
}
