//! A rank is killed in the middle of a product that gathers, eager and replayed, in every way to do it.

use crate::support::{DETECTION, Member, Plan, Random, Setting, full};
use half::bf16;
use rstest::rstest;
use std::time::Duration;
use symmem::{
    Communicator, GemmAlgorithm, GemmOptions, GemmShape, GemmTransport, Graph, Matrix, Operands,
    Result,
};

const WORLD: usize = 3;

/// Every way that the host backend has.
const WAYS: [(GemmAlgorithm, GemmTransport); 6] = [
    (GemmAlgorithm::Baseline, GemmTransport::Automatic),
    (GemmAlgorithm::Pipeline, GemmTransport::Get),
    (GemmAlgorithm::Pipeline, GemmTransport::Put),
    (GemmAlgorithm::Pull, GemmTransport::Automatic),
    (GemmAlgorithm::Push, GemmTransport::Put),
    (GemmAlgorithm::Push, GemmTransport::Kernel),
];

/// Makes the product again and again until it fails.
fn use_up(
    communicator: &Communicator,
    way: usize,
    replayed: bool,
    begin: impl FnOnce(),
) -> Result<()> {
    let (algorithm, transport) = WAYS[way];
    let shape = GemmShape::new(100, 16, 48);
    let options = GemmOptions {
        algorithm,
        transport,
        ..GemmOptions::default()
    };
    let operation = communicator.all_gather_gemm::<bf16>(&shape, &options)?;
    let stream = communicator.stream()?;
    let a = communicator.allocate::<bf16>(&[shape.shard_elements(WORLD)])?;
    let b = communicator.allocate::<bf16>(&[shape.k * shape.n])?;
    let c = communicator.allocate::<bf16>(&[shape.m * shape.n])?;
    let operands = Operands {
        a: a.all(),
        b: Matrix::of(b.all(), shape.k, shape.n)?,
        c: Matrix::of(c.all(), shape.m, shape.n)?,
        bias: None,
        gathered: None,
    };
    let ones = |length: usize| vec![bf16::ONE; length];
    a.write(&stream, 0, &ones(a.len()))?;
    b.write(&stream, 0, &ones(b.len()))?;
    let graph = match replayed {
        true => Some(Graph::capture(&stream, |stream| {
            stream.all_gather_gemm(&operation, &operands)
        })?),
        false => None,
    };
    begin();
    let mut found = vec![bf16::NAN; c.len()];
    loop {
        match &graph {
            Some(graph) => graph.launch(&stream)?,
            None => stream.all_gather_gemm(&operation, &operands)?,
        }
        stream.synchronize()?;
        c.read(&stream, 0, &mut found)?;
        // A product that lost a rank is an error, not a wrong result.
        let right = bf16::from_f64(shape.k as f64);
        assert!(found.iter().all(|&found| found == right));
    }
}

pub fn role(role: &str, member: &Member) {
    assert_eq!(role, "loop", "the only role");
    let (way, how) = member.argument.split_once(' ').expect("an order");
    let communicator = member.join();
    let way = way.parse().expect("a number");
    let used = use_up(&communicator, way, how == "replayed", || member.ready());
    let error = used.expect_err("it fails in the end");
    member.say("heard", format!("{error:?}"));
    // Everything that it was made of has gone with it.
    drop(communicator);
    member.say("done", "");
}

fn kill_one(setting: Setting, way: usize, replayed: bool, run: u64) {
    let mut random = Random::new(run);
    let victim = random.below(WORLD as u64) as usize;
    let how = if replayed { "replayed" } else { "eager" };
    let order = format!("{way} {how}");
    let mut world = Plan::new("products/loop", WORLD, setting)
        .argument(&order)
        .start();
    world.ready().go();
    std::thread::sleep(Duration::from_micros(random.below(30_000)));
    let killed = world.ranks[victim].kill();
    let dead = world.ranks.remove(victim);
    for rank in &mut world.ranks {
        let (heard, error) = rank.expect("heard");
        let detection = heard.saturating_duration_since(killed);
        let named = error.contains("PeerDied") && error.contains(&format!("peer: {victim}"));
        assert!(named, "{:?} {how}: {error}", WAYS[way]);
        assert!(detection < DETECTION, "{order}: only after {detection:?}");
    }
    for rank in &mut world.ranks {
        rank.expect("done");
    }
    world.ends_well();
    drop(dead);
}

#[rstest]
fn a_rank_killed_in_a_product_is_heard_of_within_a_second(
    #[values(0, 1, 2, 3, 4, 5)] way: usize,
    #[values(false, true)] replayed: bool,
) {
    for run in 0..if full() { 20 } else { 2 } {
        kill_one(Setting::Host, way, replayed, run);
    }
}
