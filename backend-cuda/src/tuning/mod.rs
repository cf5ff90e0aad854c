//! Data: how work is best done, by size. Beside each boundary stands the run that it comes from, or
//! the reason for it where it has not been measured.

mod collectives;
mod transfers;

pub use collectives::{REDUCE_INBOX_BYTES, collective_row};
pub use transfers::tuning;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
