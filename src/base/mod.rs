//! Modules that every other folder may use: the cost of collectives, elements, errors, environment variables, limits,
//! locks, placement, transfer plans, GEMM shapes and rows, threads that may be abandoned.

pub(crate) mod abandon;
pub(crate) mod bootstrap_error;
pub mod cost;
pub(crate) mod deadline;
pub(crate) mod element;
pub(crate) mod env;
pub(crate) mod error;
pub(crate) mod error_debug;
pub(crate) mod error_kind;
pub(crate) mod fork_mark;
pub(crate) mod gemm_names;
pub(crate) mod gemm_reduce_names;
pub(crate) mod gemm_reduce_row;
pub(crate) mod gemm_reduce_shape;
pub(crate) mod gemm_row;
pub(crate) mod gemm_shape;
pub(crate) mod limits;
pub(crate) mod lock;
pub(crate) mod names;
pub(crate) mod placement;
pub(crate) mod planner;
pub(crate) mod rank_set;
pub(crate) mod reducible;
pub(crate) mod shared_file;
pub(crate) mod shortened;
pub(crate) mod variables;
