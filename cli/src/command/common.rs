//! Options of several commands. A command has only those that it honours.

use super::error::{CommandError, Result};
use super::files::Target;
use clap::Args;
use symmem::backend::abi::MAX_RANKS;
use symmem::backends::{self as select, Chosen, Probe, Selection};
use symmem_bench::Effort;

/// Headings in the help.
pub const RANKS: &str = "Ranks";
pub const MEASUREMENT: &str = "Measurement";
pub const RESULTS: &str = "Results";

/// Which backend.
#[derive(Clone, Debug, Default, Args)]
pub struct Backend {
    /// auto, host, cuda, hip or path:FILE [default: SYMMEM_BACKEND, else auto]
    #[arg(long, value_name = "BACKEND", help_heading = RANKS)]
    pub backend: Option<String>,
}

impl Backend {
    /// The selection.
    pub fn selection(&self) -> Result<Selection> {
        let parsed = match &self.backend {
            Some(text) => Selection::parse(text),
            None => Selection::from_environment(),
        };
        parsed.map_err(|error| CommandError::Said(error.to_string()))
    }

    /// Chooses the backend. An unknown name is wrong use; a backend that cannot start is a failure.
    pub fn choose(selection: &Selection) -> Result<Chosen> {
        Self::check(selection)?;
        select::choose(selection).map_err(|error| Self::why(selection, error))
    }

    /// Why choosing failed: there is no such backend, or it cannot start.
    pub fn why(selection: &Selection, error: symmem::Error) -> CommandError {
        match select::probe(selection) {
            Ok(_) => error.into(),
            Err(unknown) => Self::unknown(&unknown),
        }
    }

    /// Looks at what the selection names.
    pub fn probe(selection: &Selection) -> Result<Vec<Probe>> {
        Self::check(selection)?;
        match selection {
            Selection::Auto => Ok(select::probe_all()),
            named => select::probe(named).map_err(|unknown| Self::unknown(&unknown)),
        }
    }

    /// Fails if the selection names a file that is not there.
    pub fn check(selection: &Selection) -> Result<()> {
        match selection {
            Selection::Plugin(file) if !file.is_file() => Err(CommandError::Said(format!(
                "there is no plugin {}; name a file, path:DIRECTORY/libsymmem_NAME.so",
                file.display()
            ))),
            _ => Ok(()),
        }
    }

    fn unknown(error: &symmem::Error) -> CommandError {
        CommandError::Said(format!("{error}; `symmem info` lists the backends"))
    }
}

/// Which ranks measure.
#[derive(Clone, Debug, Default, Args)]
pub struct Ranks {
    #[command(flatten)]
    pub backend: Backend,
    /// How many ranks [default: one per GPU, at least 2]
    #[arg(short = 'n', long, value_name = "N", value_parser = ranks::<2>, help_heading = RANKS)]
    pub ranks: Option<u32>,
}

/// Where a report goes.
#[derive(Clone, Debug, Default, Args)]
pub struct Results {
    /// Write the report as JSON; `-` for standard output
    #[arg(long, value_name = "FILE", help_heading = RESULTS)]
    pub json: Option<Target>,
    /// Write the report as one self-contained HTML page; `-` for standard output
    #[arg(long, value_name = "FILE", help_heading = RESULTS)]
    pub html: Option<Target>,
}

impl Results {
    /// Fails if a file could not be written later.
    pub fn check(&self) -> Result<()> {
        if self.json.as_ref().is_some_and(Target::is_standard) && self.html == self.json {
            return Err(CommandError::Said(
                "--json and --html cannot both write to standard output; name a file for one of them"
                    .into(),
            ));
        }
        [&self.json, &self.html]
            .into_iter()
            .flatten()
            .try_for_each(Target::check)
    }
}

/// Reads a number of ranks: `LEAST`, or more, up to what a world can have.
pub fn ranks<const LEAST: u32>(text: &str) -> std::result::Result<u32, String> {
    let most = MAX_RANKS as u32;
    let number = text.parse().ok();
    number
        .filter(|number| (LEAST..=most).contains(number))
        .ok_or_else(|| {
            format!("{text} is not in {LEAST}..={most}; write --ranks {LEAST} to --ranks {most}")
        })
}

/// How much is measured, of two options that exclude each other.
pub fn effort(quick: bool, full: bool) -> Effort {
    match (quick, full) {
        (true, _) => Effort::Quick,
        (_, true) => Effort::Full,
        _ => Effort::Standard,
    }
}
