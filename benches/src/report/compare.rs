//! Compares runs of different machines: rates, ratios to the first run, and shares of the machine's link
//! and copy engine rates.
//!
//! A rate shows which machine is faster; a share shows how well it is used. Figures that others published
//! stand in separate columns, marked as published.

mod comparison;
mod error;
mod page;
pub mod published;
mod run;
mod section;
mod sections;
mod value;
mod view;

pub use comparison::Comparison;
pub use error::CompareError;
pub use page::html;
pub use run::Run;
pub use view::terminal;

#[cfg(test)]
mod tests;
