//! Tuning data, by size. Not measured: every boundary follows from published link rates and from measurements
//! on other GPUs. `symmem tune` on such devices makes better rows.

mod collectives;
mod transfers;

pub use collectives::{COLLECTIVES, REDUCE_INBOX_BYTES};
pub use transfers::{FANOUT, transfers};
