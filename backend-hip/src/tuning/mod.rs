//! Data: how work is best done, by size. Nothing here has been measured: every boundary follows from
//! published rates of links and from what was measured on other GPUs, until `symmem tune` has run.

mod collectives;
mod transfers;

pub use collectives::{COLLECTIVES, REDUCE_INBOX_BYTES};
pub use transfers::{FANOUT, transfers};
