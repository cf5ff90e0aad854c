//! Runs of different machines side by side: what each reached, how that stands to the first, and which
//! share it is of the machine's links and of its copy engine.
//!
//! A rate alone says which machine is bigger; a share says how well it is used. What others published
//! for machines that nobody here had stands in columns of its own, marked as published.

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
