//! The contenders, and their calls on a session's matrices.

use super::session::Session;
use crate::Result;
use crate::gemm::element::MatrixFloat;
use crate::gemm::library::Library;
use crate::gemm::turn::Turn;
use crate::report::gemm_reduce::GemmCollective;
use symmem::tuning::StoredGemmReduceRow;
use symmem::{CollectiveOptions, GemmReduce, Provider, Queue};

/// The call of a contender.
pub(super) enum ContenderKind<'a, T: MatrixFloat> {
    /// The GEMM alone by cuBLASLt or hipBLASLt.
    Gemm(Library<'a>),
    /// The collective alone by symmem.
    Collective,
    /// The GEMM, then the collective by the provider.
    Then(Library<'a>, Provider),
    /// GEMM and collective by an algorithm of symmem.
    Ours(Box<GemmReduce<T>>),
}

/// A contender during the measurement. The field order drops the graph before the call that it uses.
pub(super) struct Contender<'a, T: MatrixFloat> {
    pub(super) name: String,
    pub(super) turn: Turn,
    pub(super) by: ContenderKind<'a, T>,
    pub(super) how: String,
}

impl<'a, T: MatrixFloat> Contender<'a, T> {
    pub(super) fn new(name: impl Into<String>, by: ContenderKind<'a, T>, how: String) -> Self {
        Self {
            name: name.into(),
            turn: Turn::new(),
            by,
            how,
        }
    }

    /// Whether C can be checked: not if only a part of the operation is done.
    pub(super) fn is_checked(&self) -> bool {
        matches!(self.by, ContenderKind::Then(..) | ContenderKind::Ours(_))
    }

    /// Whether all ranks get the same bits: symmem says so of a GEMM + all-reduce.
    pub(super) fn has_same_bits(&self, collective: GemmCollective) -> bool {
        matches!(self.by, ContenderKind::Ours(_)) && collective == GemmCollective::AllReduce
    }
}

/// Returns the tuning row of the contender named `best`.
pub(super) fn row<T: MatrixFloat>(
    best: &str,
    contenders: &[Contender<'_, T>],
) -> Option<StoredGemmReduceRow> {
    let mut named = contenders.iter().filter(|contender| contender.name == best);
    named.find_map(|contender| match &contender.by {
        ContenderKind::Ours(operation) => StoredGemmReduceRow::new(&operation.row()),
        _ => None,
    })
}

impl<T: MatrixFloat> Session<'_, T> {
    /// Enqueues a call.
    pub(super) fn issue(&self, on: &Queue, by: &ContenderKind<'_, T>) -> Result<()> {
        match by {
            ContenderKind::Gemm(library) => self.multiply(on, library),
            ContenderKind::Collective => self.add_up(on, &by_provider(Provider::Symmem)),
            ContenderKind::Then(library, provider) => {
                self.multiply(on, library)?;
                self.add_up(on, &by_provider(*provider))
            }
            ContenderKind::Ours(operation) => Ok(on.gemm_reduce(operation, &self.operands()?)?),
        }
    }
}

/// Returns the options of a collective by the provider.
pub(super) fn by_provider(provider: Provider) -> CollectiveOptions<'static> {
    CollectiveOptions::new().provider(provider)
}
