//! The commands: what the command line offers, and who does it.

mod ag_gemm;
mod arguments;
mod bar;
mod bench;
mod collectives;
mod common;
mod compare;
#[cfg(feature = "cuda")]
mod doctor;
mod error;
mod info;
mod logging;
mod output;
mod rank;
mod run;
mod selftest;
mod start;
mod task;

pub use arguments::Arguments;
pub use logging::logging;
