//! All-gather with a GEMM, by every algorithm, every one checked, beside its parts and baselines in the same
//! run.
//!
//! Method: A and B are random. Each algorithm is called once, then once more with another A into a poisoned
//! C, which is compared with a reference in f64, so that a tile left over from the call before is wrong.
//! Then come rounds in which all take turns: the GEMM alone (the vendor's library, in the fastest of its
//! ways, and our own kernel), the gather alone, the vendor's gather between symmetric windows and then the
//! GEMM, each algorithm, what the selector chooses where that is none of them, PyTorch. Before each call is a barrier of all ranks on the
//! stream, outside of what is timed; time is that of events, of the slowest rank; the median counts.
//! Of large products GEMM and gather are run side by side as well, without a dependency between them.
//! Products of few rows are captured and replayed as well. DDLB's published method (calls back to back
//! without a barrier, mean of rank 0) is there on demand.
//!
//! `data` makes matrices, `reference` says what C should be, `session` is one rank's matrices, `library`,
//! `windows` and `torch` are the others, `kernel` is ours alone, `side` a second stream, `contender` is one who
//! takes turns, `lineup` says who does, `run` has the rounds.

mod contender;
mod data;
mod element;
mod kernel;
mod library;
mod lineup;
mod reference;
mod run;
mod session;
mod side;
mod torch;
mod windows;

use super::by_caller::is_by_caller;
use super::common::Common;
use super::outcome::not_here;
use super::progress::Progress;
use super::sizes::Effort;
use super::{BenchError, Result};
use crate::report::Report;
use crate::report::ag_gemm::{MatrixElement, Order, Product, Products, Sharded};
use crate::report::collectives::BaselineState;
use element::Real;
use run::{Found, Run};
use serde::{Deserialize, Serialize};
use symmem::Communicator;
use symmem::tuning::ProductRow;
use torch::Torch;

/// What to measure.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Options {
    /// How many rounds, where nothing else is said.
    pub effort: Effort,
    /// What to multiply; two small products where nothing is said.
    pub products: Vec<Product>,
    /// Our algorithms, by name ([`crate::report::ag_gemm::ALGORITHMS`]); empty for all.
    pub algorithms: Vec<String>,
    /// What moves the shards, for algorithms that leave a choice: `get`, `put`, `vendor` or `kernel`; `None`
    /// for the usual, [`ALL_TRANSPORTS`] for that and beside it every other one ([`crate::report::ag_gemm::VARIANTS`]).
    pub transport: Option<String>,
    /// Whether results are compared with a reference.
    pub validate: bool,
    /// Whether anything is timed.
    pub benchmark: bool,
    /// Whether each rank's plans are told.
    pub explain: bool,
    /// Whether the published method is repeated, too.
    pub ddlb: bool,
    /// Whether PyTorch runs beside us; `None` for where it is usual: not on the host.
    pub torch: Option<bool>,
    /// Rounds.
    pub rounds: Option<u32>,
}

impl Options {
    /// Two small products: what the command without arguments shows.
    pub fn short() -> Self {
        Self {
            effort: Effort::Quick,
            products: Vec::new(),
            algorithms: Vec::new(),
            transport: None,
            validate: true,
            benchmark: true,
            explain: false,
            ddlb: false,
            torch: Some(false),
            rounds: None,
        }
    }

    /// Whether anything is multiplied, and not only explained.
    fn runs(&self) -> bool {
        self.validate || self.benchmark
    }

    fn has(&self, name: &str) -> bool {
        self.algorithms.is_empty() || self.algorithms.iter().any(|known| known == name)
    }

    /// What to multiply: small on a processor, where a product takes long.
    fn products(&self, on_host: bool) -> Vec<Product> {
        if !self.products.is_empty() {
            return self.products.clone();
        }
        let product = |m, n, k, sharding, dtype| Product {
            m,
            n,
            k,
            dtype,
            sharding,
            b_order: Order::RowMajor,
            bias: false,
        };
        let (rows, columns) = (Sharded::Rows, Sharded::Columns);
        let (f16, bf16) = (MatrixElement::F16, MatrixElement::Bf16);
        match on_host {
            true => vec![
                product(64, 32, 64, rows, bf16),
                product(16, 32, 128, columns, f16),
            ],
            false => vec![
                product(8192, 8192, 8192, rows, bf16),
                product(64, 3584, 8192, columns, f16),
            ],
        }
    }
}

/// Every transport of a pipeline and of push.
pub const ALL_TRANSPORTS: &str = "all";

/// What is told beside the report.
#[derive(Clone, Debug, Default)]
pub struct Told {
    /// Each rank's plans, where they were asked for.
    pub plans: Vec<String>,
    /// How each product was done fastest by ours, for [`symmem::tuning::Table`], where it was timed.
    pub rows: Vec<ProductRow>,
}

/// Measures into a report. Collective; every rank gets all, but for the rows, which are its own.
/// `progress` matters at rank 0 only.
///
/// # Errors
/// [`BenchError::World`] with fewer than 2 ranks; what the backend or a peer failed with, memory that does
/// not suffice among it. A baseline or an algorithm that is absent is no error: the report says so. Nor are
/// wrong elements.
pub fn add(
    communicator: &Communicator,
    options: &Options,
    report: &mut Report,
    progress: &mut dyn FnMut(Progress),
) -> Result<Told> {
    let rank = communicator.rank();
    if communicator.world() < 2 {
        return Err(BenchError::World {
            rank,
            message: "all-gather + GEMM needs 2 ranks or more; ask for them with --ranks 2".into(),
        });
    }
    let on_host = is_by_caller(communicator);
    report.environment.devices = Common::agree(communicator)?.devices;
    let mut section = Products {
        world: communicator.world() as u32,
        ..Products::default()
    };
    if options.runs() {
        section.baselines.push(vendor(communicator)?);
    }
    let mut torch = None;
    if options.benchmark && options.torch.unwrap_or(!on_host) {
        let started = Torch::start(communicator)?;
        section.baselines.push(BaselineState {
            name: "pytorch".into(),
            version: started.as_ref().ok().map(|torch| torch.version.clone()),
            absent: started.as_ref().err().cloned(),
        });
        torch = started.ok();
    }
    let beside = torch.is_some();
    let f16 = Run::<half::f16>::new(communicator, options)?;
    let bf16 = Run::<half::bf16>::new(communicator, options)?;
    let mut told = Told::default();
    let products = options.products(on_host);
    for (done, product) in products.iter().enumerate() {
        progress(Progress {
            done,
            total: products.len(),
            what: format!(
                "all-gather + GEMM {} {}",
                product.shape(),
                product.dtype.name()
            ),
        });
        let found = match product.dtype {
            MatrixElement::F16 => one(&f16, product, &mut torch)?,
            MatrixElement::Bf16 => one(&bf16, product, &mut torch)?,
        };
        section.products.push(found.measured);
        told.plans.extend(found.plans);
        told.rows.extend(found.row);
    }
    if beside && torch.is_none() {
        report
            .notes
            .push("baseline pytorch broke off; it has no part in what came after".into());
    }
    section.worst_choice = section.find_worst_choice();
    report.ag_gemm = options.runs().then_some(section);
    Ok(told)
}

fn one<T: Real>(run: &Run<'_, T>, product: &Product, torch: &mut Option<Torch>) -> Result<Found> {
    debug_assert_eq!(product.dtype, T::NAME);
    run.product(product, torch)
}

/// Opens the vendor's library of collectives, by which the baseline gathers. Collective.
fn vendor(communicator: &Communicator) -> Result<BaselineState> {
    let opened = communicator.open_vendor(false).map_err(Into::into);
    let opened = not_here(opened)?;
    Ok(BaselineState {
        name: "vendor's collectives".into(),
        version: opened.as_ref().ok().map(|library| {
            let (major, minor) = (library.version / 10_000, library.version / 100 % 100);
            format!("{} {major}.{minor}.{}", library.name, library.version % 100)
        }),
        absent: opened.err(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::ag_gemm::{ALGORITHMS, VARIANTS};
    use symmem::tuning::{gemm_algorithm, gemm_transport};

    #[test]
    fn every_algorithm_of_the_tables_is_one_of_ours() {
        for name in ALGORITHMS {
            assert!(gemm_algorithm(name).is_some(), "{name}");
        }
        for name in VARIANTS {
            let (by, moved) = name.split_once(' ').unwrap();
            assert!(
                ALGORITHMS.contains(&by) && gemm_transport(moved).is_some(),
                "{name}"
            );
        }
        assert_eq!(gemm_algorithm("automatic"), None);
    }

    #[test]
    fn the_files_of_shapes_are_what_they_are_said_to_be() {
        let read = |text: &str| serde_json::from_str::<Vec<Product>>(text).unwrap();
        let small = read(include_str!("../../dataset/ag_gemm.json"));
        assert_eq!(small.len(), 26, "13 numbers of rows, two types");
        let fixed = |p: &Product| (p.n, p.k, p.sharding) == (3584, 8192, Sharded::Columns);
        assert!(small.iter().all(fixed));
        let large = read(include_str!("../../dataset/ag_gemm_large.json"));
        assert_eq!(large[0].shape(), "32768x8192x16384");
        assert!(
            large
                .iter()
                .all(|product| product.sharding == Sharded::Rows)
        );
    }
}
