//! What several commands understand.

use super::error::Result;
use clap::Args;
use std::path::PathBuf;
use symmem::backends::Selection;
use symmem_bench::Effort;

/// What several commands understand.
#[derive(Debug, Default, Args)]
pub struct Common {
    /// auto, host, cuda, hip or path:FILE [default: SYMMEM_BACKEND, else auto]
    #[arg(long, global = true, value_name = "BACKEND")]
    pub(super) backend: Option<String>,
    /// How many ranks [default: one per GPU, at least 2]
    #[arg(short = 'n', long, global = true, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(super) ranks: Option<u32>,
    /// Write the result as JSON
    #[arg(long, global = true, value_name = "FILE")]
    pub(super) json: Option<PathBuf>,
    /// Write the result as one self-contained HTML page
    #[arg(long, global = true, value_name = "FILE")]
    pub(super) html: Option<PathBuf>,
    /// A handful of sizes, few rounds
    #[arg(long, global = true, conflicts_with = "full")]
    pub(super) quick: bool,
    /// Sizes up to 1 GiB
    #[arg(long, global = true)]
    pub(super) full: bool,
}

impl Common {
    pub(super) fn selection(&self) -> Result<Selection> {
        Ok(match &self.backend {
            Some(text) => Selection::parse(text)?,
            None => Selection::from_environment()?,
        })
    }

    pub(super) fn effort(&self) -> Effort {
        match (self.quick, self.full) {
            (true, _) => Effort::Quick,
            (_, true) => Effort::Full,
            _ => Effort::Standard,
        }
    }
}
