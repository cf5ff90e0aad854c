//! How a program joins a world.

use crate::backends;
use crate::backends::Selection;
use crate::base::env;
use crate::base::env::BadVariable;
use crate::base::names::{ShareKind, SignalPlacement};
use crate::base::variables;
use crate::bootstrap::LaunchEnvironment;
use crate::tuning;
use crate::{Communicator, Configuration, DeviceChoice, GemmReduceRow, GemmRow, Result};
use std::ffi::OsStr;
use std::time::Duration;
use symmem_core::backend::abi::CollectiveRow;

/// Joins the world that the launcher's variables describe, with the backend that `SYMMEM_BACKEND` names, or else
/// the first that has a device. Blocks until all ranks have joined, for at most the setup deadline (60 seconds by
/// default) in each step.
///
/// The same as `Builder::new().build()`.
///
/// # Errors
/// As [`Builder::build`].
pub fn init() -> Result<Communicator> {
    Builder::new().build()
}

impl Communicator {
    /// Returns a [`Builder`] with every setting at its default.
    pub fn builder() -> Builder {
        Builder::new()
    }

    /// Joins the world that the launcher's variables describe, with the backend that `SYMMEM_BACKEND` names, or
    /// else the first that has a device. Blocks for at most the setup deadline in each step.
    ///
    /// # Errors
    /// As [`Builder::build`].
    pub fn from_env() -> Result<Self> {
        Builder::new().build()
    }
}

/// Settings with which a rank joins a world. All have defaults.
///
/// ```no_run
/// # fn main() -> symmem::Result<()> {
/// use std::time::Duration;
/// use symmem::Builder;
/// use symmem::backends::Selection;
///
/// let communicator = Builder::new()
///     .backend(Selection::named("cuda"))
///     .deadline(Duration::from_secs(30))
///     .build()?;
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, Default)]
pub struct Builder {
    launch: Option<LaunchEnvironment>,
    backend: Option<Selection>,
    device: DeviceChoice,
    deadline: Option<Duration>,
    setup_deadline: Option<Duration>,
    silence: Option<Duration>,
    signal_placement: SignalPlacement,
    share_kinds: Vec<ShareKind>,
    collective_rows: Option<Vec<CollectiveRow>>,
    gemm_rows: Option<Vec<GemmRow>>,
    gemm_reduce_rows: Option<Vec<GemmReduceRow>>,
    check_calls: Option<bool>,
}

impl Builder {
    /// Returns the defaults: rank and world from the launcher's variables; the backend that `SYMMEM_BACKEND`
    /// names, or else the first that has a device; the device by local rank.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets this rank and its world, in place of the launcher's variables.
    pub fn launch(mut self, launch: LaunchEnvironment) -> Self {
        self.launch = Some(launch);
        self
    }

    /// Sets the backend, in place of `SYMMEM_BACKEND`.
    pub fn backend(mut self, backend: Selection) -> Self {
        self.backend = Some(backend);
        self
    }

    /// Sets the device. Default: the rank's number on this host, modulo the number of devices.
    pub fn device(mut self, device: DeviceChoice) -> Self {
        self.device = device;
        self
    }

    /// Sets the deadline of every wait for a peer; see [`Configuration::deadline`]. Must be the same on all
    /// ranks.
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.deadline = Some(deadline);
        self
    }

    /// Sets the deadline of every step in which ranks set something up together; see
    /// [`Configuration::setup_deadline`]. Must be the same on all ranks.
    pub fn setup_deadline(mut self, deadline: Duration) -> Self {
        self.setup_deadline = Some(deadline);
        self
    }

    /// Sets the time after which a rank of another node that is not heard from is dead, in place of `SYMMEM_SILENCE`; see
    /// [`Configuration::silence`]. Must be the same on all ranks.
    pub fn silence(mut self, silence: Duration) -> Self {
        self.silence = Some(silence);
        self
    }

    /// Sets where signal words live, in device or host memory. Must be the same on all ranks.
    pub fn signal_placement(mut self, placement: SignalPlacement) -> Self {
        self.signal_placement = placement;
        self
    }

    /// Sets the strategies of sharing memory to try, in this order, in place of `SYMMEM_SHARE`. An empty list
    /// leaves the choice to that variable. Must be the same on all ranks.
    pub fn share_kinds(mut self, kinds: &[ShareKind]) -> Self {
        self.share_kinds = kinds.to_vec();
        self
    }

    /// Sets the collective selector's tuning rows. They take precedence over the backend's own and replace
    /// those of the table that `SYMMEM_TUNING` names (written by `symmem tune`). Must be the same on all ranks.
    pub fn tuning(mut self, rows: &[CollectiveRow]) -> Self {
        self.collective_rows = Some(rows.to_vec());
        self
    }

    /// Sets the tuning rows of all-gather + GEMM, in place of those in the table that `SYMMEM_TUNING` names
    /// (written by `symmem bench ag-gemm --tune`). Must be the same on all ranks.
    pub fn gemm_tuning(mut self, rows: &[GemmRow]) -> Self {
        self.gemm_rows = Some(rows.to_vec());
        self
    }

    /// Sets the tuning rows of GEMM + reduce-scatter and GEMM + all-reduce, in place of those in the table that `SYMMEM_TUNING`
    /// names (written by `symmem bench gemm-rs --tune` and `gemm-ar --tune`). Must be the same on all ranks.
    pub fn gemm_reduce_tuning(mut self, rows: &[GemmReduceRow]) -> Self {
        self.gemm_reduce_rows = Some(rows.to_vec());
        self
    }

    /// Sets whether ranks compare each collective call before they make it, in place of `SYMMEM_CHECK`. A
    /// comparison costs a round trip over the host and names the rank whose call differs. Must be the same on
    /// all ranks.
    pub fn check_calls(mut self, check: bool) -> Self {
        self.check_calls = Some(check);
        self
    }

    /// Joins the world. Every rank of the job must call this. Blocks for at most the setup deadline in each
    /// step.
    ///
    /// # Errors
    /// [`crate::Error::BadVariable`] for an environment variable with an unusable value;
    /// [`crate::Error::NoBackend`] with every backend probed and the reason of its failure; the errors of
    /// [`Communicator::open`].
    pub fn build(self) -> Result<Communicator> {
        let launch = match self.launch {
            Some(launch) => launch,
            None => LaunchEnvironment::detect()?,
        };
        let rank = launch.rank as usize;
        let selection = match self.backend {
            Some(selection) => selection,
            None => Selection::from_variable().map_err(|bad| bad.at(rank))?,
        };
        let chosen = backends::choose(&selection)?;
        let mut configuration = Configuration::new(launch);
        let given = (
            &self.collective_rows,
            &self.gemm_rows,
            &self.gemm_reduce_rows,
        );
        let rows = match given {
            (Some(_), Some(_), Some(_)) => Rows::default(),
            _ => rows_from_environment(rank)?,
        };
        configuration.collective_rows = self.collective_rows.unwrap_or(rows.collectives);
        configuration.gemm_rows = self.gemm_rows.unwrap_or(rows.gemm);
        configuration.gemm_reduce_rows = self.gemm_reduce_rows.unwrap_or(rows.gemm_reduce);
        configuration.check_calls = match self.check_calls {
            Some(check) => check,
            None => variables::CHECK
                .read(env::switch)
                .map_err(|bad| bad.at(rank))?
                .unwrap_or(false),
        };
        configuration.device = self.device;
        configuration.signal_placement = self.signal_placement;
        configuration.share_kinds = match self.share_kinds {
            kinds if kinds.is_empty() => variables::SHARE
                .read(env::share_kinds)
                .map_err(|bad| bad.at(rank))?
                .unwrap_or_default(),
            kinds => kinds,
        };
        let silence = match self.silence {
            Some(silence) => Some(silence),
            None => variables::SILENCE
                .read(env::silence)
                .map_err(|bad| bad.at(rank))?,
        };
        if let Some(silence) = silence {
            configuration.silence = silence;
        }
        if let Some(deadline) = self.deadline {
            configuration.deadline = deadline;
        }
        if let Some(deadline) = self.setup_deadline {
            configuration.setup_deadline = deadline;
        }
        Communicator::open(&chosen.source, configuration)
    }
}

/// The rows of a table.
#[derive(Debug, Default)]
struct Rows {
    collectives: Vec<CollectiveRow>,
    gemm: Vec<GemmRow>,
    gemm_reduce: Vec<GemmReduceRow>,
}

/// Reads the table that `SYMMEM_TUNING` names; no rows if it is not set.
fn rows_from_environment(rank: usize) -> Result<Rows> {
    match variables::TUNING.value() {
        Some(path) => Ok(rows_of(&path).map_err(|bad| bad.at(rank))?),
        None => Ok(Rows::default()),
    }
}

/// Reads the tuning table in the file that the variable names.
fn rows_of(path: &OsStr) -> std::result::Result<Rows, BadVariable> {
    let bad = |reason: String| variables::TUNING.refuse(path, reason);
    let text = std::fs::read_to_string(path).map_err(|error| bad(error.to_string()))?;
    tuning::Table::from_json(&text)
        .and_then(|table| {
            Ok(Rows {
                collectives: table.rows()?,
                gemm: table.gemm_rows()?,
                gemm_reduce: table.gemm_reduce_rows()?,
            })
        })
        .map_err(|error| bad(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_that_cannot_be_read_is_a_wrong_variable_that_says_why() {
        let missing = rows_of(OsStr::new("/no/such/table.json")).unwrap_err();
        let text = missing.clone().at(2).to_string();
        assert_eq!((missing.name, missing.rank), ("SYMMEM_TUNING", None));
        assert!(
            text.starts_with("rank 2: SYMMEM_TUNING=`/no/such/table.json`: No such file"),
            "{text}"
        );
        let no_table = rows_of(OsStr::new("/dev/null")).unwrap_err().to_string();
        assert!(
            no_table.contains("not a tuning table") && no_table.ends_with("unset SYMMEM_TUNING"),
            "{no_table}"
        );
    }
}
