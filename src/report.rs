//! The report of a peer-to-peer benchmark: JSON for machines, tables for a terminal, one page for people.
//!
//! [`Report`] holds what was measured and nothing derived from it. [`table::terminal`] and
//! [`page::html`] draw the same [`view`]s of it, so that the two never disagree.

pub mod page;
mod plot;
pub mod published;
mod schema;
pub mod table;
mod view;

#[cfg(test)]
mod fixture;

pub use schema::*;
