//! What a shape is, for rows and titles.

use super::{GemmProblem, MatrixElement, Measured};
use crate::report::view::Cell;

/// The heading of a row's second cell.
pub(super) const KIND: &str = "element,\nA sharded by";

/// The first cells of a row: shape; element type, sharding of A, and any option that is not the default.
pub(super) fn row(measured: &Measured) -> Vec<Cell> {
    let problem = &measured.problem;
    let (element, sharding) = (element(problem), problem.sharding_name());
    vec![
        Cell::Name(problem.shape()),
        Cell::Figure(format!("{element} {sharding}{}", options(problem))),
    ]
}

fn element(problem: &GemmProblem) -> &'static str {
    match problem.dtype {
        MatrixElement::F16 => "f16",
        MatrixElement::Bf16 => "bf16",
        MatrixElement::F32 => "f32",
        MatrixElement::F8E4M3 => "f8e4m3",
    }
}

/// The options that are not the default.
fn options(problem: &GemmProblem) -> String {
    let mut text = String::new();
    if problem.b_order != Default::default() {
        text += ", B column-major";
    }
    if problem.bias {
        text += ", bias";
    }
    text
}

/// Element type, sharding of A, and any option that is not the default, for titles.
pub(super) fn kind_text(problem: &GemmProblem) -> String {
    let (element, sharding) = (element(problem), problem.sharding_name());
    format!("{element}, A sharded by {sharding}{}", options(problem))
}
