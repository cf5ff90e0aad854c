//! Checks of what parses input from elsewhere: messages of other ranks, tuning files, environment variables.
//!
//! Each check takes any bytes and panics if a parser breaks a rule: it must not panic, it must not reserve more
//! memory than the input justifies, what it accepts must survive encoding and decoding, and its error must say
//! what is wrong. The fuzz targets of `fuzz/` call these functions, and `cargo test` runs them over the corpus of
//! `fuzz/corpus` and over random changes of it. The module exists in tests and fuzzers only.

#[cfg(test)]
mod corpus;
pub mod environment;
pub mod heap;
pub mod payloads;
#[cfg(test)]
#[path = "../../fuzz/replay.rs"]
mod replay;
pub mod tuning;

pub use crate::bootstrap::fuzzing::{messages, store};
