//! What to measure of all-gather with a GEMM.

use crate::report::ag_gemm::{MatrixElement, Order, Product, Sharded};
use crate::sizes::Effort;
use serde::{Deserialize, Serialize};

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
    pub(super) fn runs(&self) -> bool {
        self.validate || self.benchmark
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.algorithms.is_empty() || self.algorithms.iter().any(|known| known == name)
    }

    /// What to multiply: small on a processor, where a product takes long.
    pub(super) fn products(&self, on_host: bool) -> Vec<Product> {
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
