//! Data: how work is best done, by size. Beside each boundary stands the run that it comes from, or
//! the reason for it where it has not been measured.

mod collectives;
mod transfers;

pub use collectives::{COLLECTIVES, REDUCE_INBOX_BYTES};
pub use transfers::{FANOUT, transfers};
