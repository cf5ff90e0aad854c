//! Tuning data, by size. Beside each boundary stands the run that it comes from, or its reason if it was not measured.

mod collectives;
mod transfers;

pub use collectives::{COLLECTIVES, REDUCE_INBOX_BYTES};
pub use transfers::{FANOUT, transfers};
