//! The report of a benchmark: JSON, tables for a terminal, and an HTML page.
//!
//! [`Report`] holds the measurements. [`table::terminal`] and [`page::html`] draw the same tables from
//! it, so that the two never disagree.

pub mod ag_gemm;
pub mod collectives;
pub mod compare;
mod contenders;
pub mod gemm_reduce;
mod html;
mod limits;
pub mod links;
pub mod norms;
pub mod page;
mod plot;
pub mod prediction;
pub mod published;
mod ratio;
mod schema;
mod statistics;
pub mod summary;
pub mod table;
mod text;
pub mod tuning;
mod view;

#[cfg(test)]
mod fixture;

pub use collectives::{
    Collective, CollectivePoint, CollectiveResults, Placement, PlacementResults, Time,
};
pub use contenders::{Choice, Entry};
pub use schema::*;
pub use statistics::{SingleShot, Spread, Timing};
