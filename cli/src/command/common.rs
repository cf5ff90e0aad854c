//! Options that several commands share.

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

/// The option that selects a backend.
#[derive(Clone, Debug, Default, Args)]
pub struct Backend {
    /// Backend: auto, host, cuda, hip or path:FILE [default: SYMMEM_BACKEND, else auto]
    #[arg(long, value_name = "BACKEND", help_heading = RANKS)]
    pub backend: Option<String>,
}

impl Backend {
    /// Returns the selection by `--backend`, otherwise by `SYMMEM_BACKEND`.
    pub fn selection(&self) -> Result<Selection> {
        let parsed = match &self.backend {
            Some(text) => Selection::parse(text),
            None => Selection::from_environment(),
        };
        parsed.map_err(|error| CommandError::Said(error.to_string()))
    }

    /// Chooses the backend.
    ///
    /// # Errors
    /// Wrong use for an unknown name; a failure for a backend that cannot start.
    pub fn choose(selection: &Selection) -> Result<Chosen> {
        Self::check(selection)?;
        select::choose(selection).map_err(|error| Self::why(selection, error))
    }

    /// Returns the reason why choosing failed: the backend does not exist, or it cannot start.
    pub fn why(selection: &Selection, error: symmem::Error) -> CommandError {
        match select::probe(selection) {
            Ok(_) => error.into(),
            Err(unknown) => Self::unknown(&unknown),
        }
    }

    /// Probes the selected backend, or all backends for `auto`.
    pub fn probe(selection: &Selection) -> Result<Vec<Probe>> {
        Self::check(selection)?;
        match selection {
            Selection::Auto => Ok(select::probe_all()),
            named => select::probe(named).map_err(|unknown| Self::unknown(&unknown)),
        }
    }

    /// Fails if the selection names a plugin file that does not exist.
    pub fn check(selection: &Selection) -> Result<()> {
        match selection {
            Selection::Plugin(file) if !file.exists() => Err(CommandError::Said(format!(
                "no plugin at {}; name a file: path:DIRECTORY/libsymmem_NAME.so",
                file.display()
            ))),
            _ => Ok(()),
        }
    }

    fn unknown(error: &symmem::Error) -> CommandError {
        CommandError::Said(format!("{error}; `symmem info` lists the backends"))
    }
}

/// The options that select backend and number of ranks.
#[derive(Clone, Debug, Default, Args)]
pub struct Ranks {
    #[command(flatten)]
    pub backend: Backend,
    /// Number of ranks [default: one per GPU, at least 2]
    #[arg(short = 'n', long, value_name = "N", value_parser = ranks::<2>, help_heading = RANKS)]
    pub ranks: Option<u32>,
}

/// [`Ranks`] of a command in which `-n` is something else.
#[derive(Clone, Debug, Default, Args)]
pub struct RanksByName {
    #[command(flatten)]
    backend: Backend,
    /// Number of ranks [default: one per GPU, at least 2]
    #[arg(long, value_name = "N", value_parser = ranks::<2>, help_heading = RANKS)]
    ranks: Option<u32>,
}

impl From<RanksByName> for Ranks {
    fn from(RanksByName { backend, ranks }: RanksByName) -> Self {
        Self { backend, ranks }
    }
}

/// The option that allows to replace files.
#[derive(Clone, Copy, Debug, Default, Args)]
pub struct Force {
    /// Replace files that exist
    #[arg(long, help_heading = RESULTS)]
    pub force: bool,
}

impl Force {
    /// Returns the target that the user asked for. Fails if it cannot be written; see [`Target::checked`].
    pub fn checked(self, target: Option<Target>) -> Result<Option<Target>> {
        target.map(|target| target.checked(self.force)).transpose()
    }
}

/// The options that name the files of a report.
#[derive(Clone, Debug, Default, Args)]
pub struct Results {
    /// Write the report as JSON; `-` for standard output
    #[arg(long, value_name = "FILE", help_heading = RESULTS)]
    pub json: Option<Target>,
    /// Write the report as one self-contained HTML page; `-` for standard output
    #[arg(long, value_name = "FILE", help_heading = RESULTS)]
    pub html: Option<Target>,
    #[command(flatten)]
    pub force: Force,
}

impl Results {
    /// Returns the targets. Fails if one is not writable, or if both are the same.
    pub fn checked(self) -> Result<Self> {
        let whole = |target: &Option<Target>| match target {
            Some(Target::New(file)) => std::path::absolute(file).ok(),
            _ => None,
        };
        let is_same = self.json == self.html || whole(&self.json) == whole(&self.html);
        if self.json.is_some() && self.html.is_some() && is_same {
            let is_standard = self.json.as_ref().is_some_and(Target::is_standard);
            return Err(CommandError::Said(match is_standard {
                true => "--json and --html cannot both write to standard output; name a file for one of them"
                    .into(),
                false => "--json and --html name the same file; name two files".into(),
            }));
        }
        Ok(Self {
            json: self.force.checked(self.json)?,
            html: self.force.checked(self.html)?,
            force: self.force,
        })
    }
}

/// Parses a number of ranks from `LEAST` to the largest world size.
pub fn ranks<const LEAST: u32>(text: &str) -> std::result::Result<u32, String> {
    let most = MAX_RANKS as u32;
    let number = text.parse().ok();
    number
        .filter(|number| (LEAST..=most).contains(number))
        .ok_or_else(|| {
            format!(
                "{text} is not a whole number from {LEAST} to {most}; write --ranks {LEAST} to --ranks {most}"
            )
        })
}

/// Returns the effort that `--quick` or `--full` asks for; the two exclude each other.
pub fn effort(quick: bool, full: bool) -> Effort {
    match (quick, full) {
        (true, _) => Effort::Quick,
        (_, true) => Effort::Full,
        _ => Effort::Standard,
    }
}
