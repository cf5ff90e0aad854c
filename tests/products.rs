//! Products of matrices whose A is gathered meanwhile give what exact ones give, in every way to do them, on
//! every backend: over the fake runtimes here, and on the machine's own driver where `PRODUCTS_BACKEND` names a
//! backend and `ranks` is run by itself.

#[path = "../core/tests/gemm/case.rs"]
#[allow(dead_code, reason = "core's own tests have more uses for it")]
mod case;
#[path = "../core/tests/gemm/checker.rs"]
#[allow(dead_code, reason = "as above")]
mod checker;
#[allow(dead_code, reason = "not all of it is of use here")]
mod support;

use case::{Case, options};
use checker::Number;
use half::{bf16, f16};
use std::time::Duration;
use symmem::backend::abi::{MatrixOrder, Sharding};
use symmem::{Communicator, GemmAlgorithm, GemmOptions, GemmShape, GemmTransport};

/// Bound of each wait.
const DEADLINE: Duration = Duration::from_secs(30);

/// Every way; those of the vendor's library last, which have to find it.
const WAYS: [(GemmAlgorithm, GemmTransport); 8] = [
    (GemmAlgorithm::Baseline, GemmTransport::Automatic),
    (GemmAlgorithm::Pipeline, GemmTransport::Get),
    (GemmAlgorithm::Pipeline, GemmTransport::Put),
    (GemmAlgorithm::Pull, GemmTransport::Automatic),
    (GemmAlgorithm::Push, GemmTransport::Put),
    (GemmAlgorithm::Push, GemmTransport::Kernel),
    (GemmAlgorithm::Baseline, GemmTransport::Vendor),
    (GemmAlgorithm::Pipeline, GemmTransport::Vendor),
];

/// Shapes that every kernel takes: lines of whole 16 bytes, with tails of tiles, and fewer rows than ranks.
const SHAPES: [(usize, usize, usize); 4] = [
    (300, 264, 128),
    (128, 256, 64),
    (1, 8, 64),
    (257, 520, 192),
];

fn ways<T: Number>(
    communicator: &Communicator,
    vendor: bool,
    shapes: &[(usize, usize, usize)],
    adapt: impl Fn(&mut GemmShape, &mut GemmOptions),
) {
    for way in WAYS {
        if way.1 == GemmTransport::Vendor && !vendor {
            continue;
        }
        for &(m, n, k) in shapes {
            let (mut shape, mut options) = (GemmShape::new(m, n, k), options(way));
            adapt(&mut shape, &mut options);
            eprintln!("{way:?} {shape:?}");
            Case::<T>::new(communicator, shape, &options).run(2);
        }
    }
}

/// All that a world checks. `few` for the fakes, whose products are made one by one.
fn body(communicator: &Communicator, vendor: bool, few: bool) {
    let shapes = if few { &SHAPES[1..3] } else { &SHAPES };
    ways::<bf16>(communicator, vendor, shapes, |_, _| ());
    ways::<f16>(communicator, vendor, shapes, |shape, options| {
        shape.b_order = MatrixOrder::COLUMNS;
        shape.bias = true;
        options.gathered = true;
    });
    ways::<bf16>(communicator, vendor, shapes, |shape, options| {
        // Shards of whole boxes, for worlds of up to four.
        shape.k = shape.k.next_multiple_of(64 * communicator.world());
        shape.sharding = Sharding::COLUMNS;
        options.gathered = true;
        options.chunk_rows = Some(128);
    });
}

#[test]
#[ignore = "run by the others, in a process of its own, or by hand on a machine's GPUs"]
fn ranks() {
    let asked = |name| std::env::var(name).expect("set by who runs this");
    let world: u32 = asked("PRODUCTS_WORLD").parse().unwrap();
    let few = std::env::var_os("FAKE_DEVICE_COUNT").is_some();
    let job = support::job("products");
    std::thread::scope(|scope| {
        for rank in 0..world {
            let job = job.clone();
            scope.spawn(move || {
                let rank = support::rank("PRODUCTS_BACKEND", rank, world, &job);
                let communicator = rank.deadline(DEADLINE).build().unwrap();
                let vendor = communicator.open_vendor(false);
                if let Err(absent) = &vendor {
                    eprintln!("skipped: the vendor's library: {absent}");
                }
                body(&communicator, vendor.is_ok(), few);
                assert!(communicator.finalize().unwrap().is_empty());
            });
        }
    });
}
