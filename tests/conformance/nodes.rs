//! The suite on worlds over nodes: the cases of one node on each placement of four ranks, and skipped by name what only
//! kernels or one node can do. Ranks of this machine pose as nodes by `SYMMEM_NODE`, and UCX carries what goes between
//! them over TCP. Four ranks of one node run as any world does.

use crate::support::amount::{Amount, amount, left_out_below};
use crate::support::worlds::{Backend, account, end, is_full, options, refuse_failures};
use rstest::rstest;
use std::sync::LazyLock;
use symmem_conformance::collectives::plan::{self as collectives, Sizes};
use symmem_conformance::collectives::{SoakCase, SoakLoad};
use symmem_conformance::{
    Case, Outcome, RanksPerNode, Totals, World, norms, plan, products, reduced_products,
};

/// The placements; one sample is divided among them.
const PLACEMENTS: [&str; 3] = ["2x2", "4x1", "3+1"];

/// The reasons for which a case may be skipped over nodes.
const SKIPS: [&str; 10] = [
    "the device has no ",
    "an engine is of kernels, and only streams reach ranks of other nodes",
    "multicast is not available: the ranks are on several nodes",
    "sums of integers of 8 and 16 bits wrap before an average divides them",
    "the host backend has neither NCCL nor RCCL",
    "symmetric windows reach the ranks of one node only",
    "NCCL has a communicator of each rail, and the nodes have different numbers of ranks",
    "NCCL or RCCL does not carry this call between nodes",
    // GEMMs with communication, and norms.
    "its kernels address the memory of ranks of one node",
    "over nodes, norms and GEMMs with communication are all refused",
];

/// Every case of a subject's sample, and how many of them run: one in that many, for a sample and for a long run.
type Sampled = (Vec<(usize, Case)>, [usize; 2]);

static SAMPLE: LazyLock<[Sampled; 5]> = LazyLock::new(|| {
    let worlds = PLACEMENTS.len();
    let transfers = plan::sample(worlds, plan::SEED).into_iter();
    let transfers = transfers.map(|(world, case)| (world, Case::Transfer(case.over_nodes())));
    [
        (transfers.collect(), [1, 1]),
        (
            collectives::sample(worlds, Sizes::Small, plan::SEED),
            [16, 4],
        ),
        // Refused, each alike.
        (products::sample(worlds, plan::SEED), [64, 16]),
        (norms::sample(worlds, Sizes::Small, plan::SEED), [64, 16]),
        (reduced_products::sample(worlds, plan::SEED), [64, 16]),
    ]
});

fn cases(placement: &str) -> Vec<Case> {
    let mut cases: Vec<Case> = if is_full() {
        let transfers = plan::full(plan::SEED).map(Case::Transfer);
        transfers
            .chain(collectives::full(plan::SEED))
            .chain(products::full(plan::SEED))
            .chain(norms::full(plan::SEED))
            .chain(reduced_products::full(plan::SEED))
            .collect()
    } else {
        let number = PLACEMENTS.iter().position(|one| *one == placement);
        let of_world = |(cases, shares): &Sampled| -> Vec<Case> {
            let here = cases.iter().filter(|(world, _)| Some(*world) == number);
            let share = shares[usize::from(amount() == Amount::Long)];
            here.step_by(share).map(|(_, case)| case.clone()).collect()
        };
        SAMPLE.iter().flat_map(of_world).collect()
    };
    // A world opens one communicator for each placement of signals, one after the other.
    cases.sort_by_key(|case| case.placement() != symmem_conformance::Placement::Device);
    cases
}

/// Returns whether the machine has no UCX, and says so.
fn has_no_ucx(name: &str) -> bool {
    let missing = symmem::network_library().err();
    if let Some(error) = &missing {
        eprintln!("skipped: {name}: {error}");
    }
    missing.is_some()
}

#[rstest]
fn over_nodes(
    #[values(Backend::Host, Backend::Linked, Backend::HipLinked)] backend: Backend,
    #[values("2x2", "4x1", "3+1")] placement: &str,
) {
    let name = format!("{backend:?}-{placement}-nodes");
    // Above the driver HIP and CUDA are alike: on HIP a sample has one placement.
    let needed = match (backend, placement) {
        (Backend::HipLinked, "4x1" | "3+1") => Amount::Long,
        _ => Amount::Sample,
    };
    if left_out_below(needed, &name) || has_no_ucx(&name) {
        return;
    }
    let ranks: RanksPerNode = placement.parse().expect("a placement");
    let options = options(backend, ranks, false, &name);
    let mut world = World::launch(options).unwrap_or_else(|error| panic!("{name}: {error}"));
    let (mut totals, mut failed) = (Totals::default(), Vec::new());
    for record in world.run(&cases(placement), |_| ()) {
        totals.count(&record.outcome);
        match record.outcome {
            Outcome::Failed(reason) => failed.push(format!("{}: {reason}", record.case)),
            Outcome::Skipped(reason) if !SKIPS.iter().any(|known| reason.contains(known)) => {
                failed.push(format!("{} is skipped: {reason}", record.case));
            }
            Outcome::Skipped(_) | Outcome::Passed => {}
        }
    }
    let all = [
        plan::full_count(),
        collectives::full_count(),
        products::full(plan::SEED).count(),
        norms::full_count(),
        reduced_products::full_count(),
    ];
    account(&name, &totals, all.iter().sum());
    refuse_failures(&name, &failed);
    end(world, &name);
}

#[rstest]
fn calls_by_nccl_pass_one_after_the_other(#[values("2x2", "4x1")] placement: &str) {
    let name = format!("nccl-soak-{placement}");
    if placement != "4x1" && has_no_ucx(&name) {
        return;
    }
    let ranks: RanksPerNode = placement.parse().expect("a placement");
    let options = options(Backend::Linked, ranks, false, &name);
    let mut world = World::launch(options).unwrap_or_else(|error| panic!("{name}: {error}"));
    let soak = Case::Soak(SoakCase {
        milliseconds: 200,
        seed: plan::SEED,
        load: SoakLoad::Nccl,
    });
    for record in world.run(&[soak], |_| ()) {
        assert_eq!(record.outcome, Outcome::Passed);
    }
    end(world, &name);
}
