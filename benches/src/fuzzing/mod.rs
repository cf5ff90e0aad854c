//! Checks of what parses files: reports that `symmem compare` reads, and files of GEMM shapes.
//!
//! Each check takes any bytes and panics if a reader breaks a rule: it must not panic, what it accepts must survive
//! writing and reading, and its error must say what is wrong. The fuzz targets of `fuzz/` call these functions, and
//! `cargo test` runs them over the corpus of `fuzz/corpus`. The module exists in tests and fuzzers only.

#[cfg(test)]
mod corpus;
#[cfg(test)]
#[path = "../../../fuzz/replay.rs"]
mod replay;
pub mod reports;
pub mod shapes;
