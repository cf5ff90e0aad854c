//! The contenders.

use super::calls::ContenderKind;
use crate::gemm::element::MatrixFloat;
use crate::gemm::turn::Turn;

/// A contender during the measurement. The field order drops the graph before the call that it uses.
pub(super) struct Contender<'a, T: MatrixFloat> {
    pub(super) name: &'static str,
    pub(super) turn: Turn,
    pub(super) by: ContenderKind<'a, T>,
    pub(super) how: String,
}

impl<'a, T: MatrixFloat> Contender<'a, T> {
    pub(super) fn new(name: &'static str, by: ContenderKind<'a, T>, how: String) -> Self {
        Self {
            name,
            turn: Turn::new(),
            by,
            how,
        }
    }
}
