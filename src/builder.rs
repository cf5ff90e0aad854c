//! How a program joins a world.

use crate::backends;
use crate::backends::Selection;
use crate::base::env;
use crate::base::variables;
use crate::bootstrap::LaunchEnvironment;
use crate::tuning;
use crate::{Communicator, Configuration, DeviceChoice, GemmRow, Result};
use std::time::Duration;
use symmem_core::backend::abi::{CollectiveRow, ShareKind, SignalPlacement};

/// Joins the world that the launcher describes, with the best backend there is.
///
/// The same as `Builder::new().build()`.
///
/// # Errors
/// As [`Builder::build`].
pub fn init() -> Result<Communicator> {
    Builder::new().build()
}

impl Communicator {
    /// What a rank can choose when it joins a world.
    pub fn builder() -> Builder {
        Builder::new()
    }

    /// Joins the world that the launcher describes, with the backend that `SYMMEM_BACKEND` names or the best that
    /// there is. Blocks at most the setup deadline a step.
    ///
    /// # Errors
    /// As [`Builder::build`].
    pub fn from_env() -> Result<Self> {
        Builder::new().build()
    }
}

/// What a rank can choose when it joins a world. Everything has a default.
#[derive(Clone, Debug, Default)]
pub struct Builder {
    launch: Option<LaunchEnvironment>,
    backend: Option<Selection>,
    device: DeviceChoice,
    deadline: Option<Duration>,
    setup_deadline: Option<Duration>,
    signal_placement: SignalPlacement,
    share_kinds: Vec<ShareKind>,
    collective_rows: Option<Vec<CollectiveRow>>,
    gemm_rows: Option<Vec<GemmRow>>,
    check_calls: Option<bool>,
}

impl Builder {
    /// Rank and world from the launcher's variables, backend from `SYMMEM_BACKEND` or the first that
    /// has a device, device by local rank.
    pub fn new() -> Self {
        Self::default()
    }

    /// This rank and its world, in place of the launcher's variables.
    pub fn launch(mut self, launch: LaunchEnvironment) -> Self {
        self.launch = Some(launch);
        self
    }

    /// The backend, in place of `SYMMEM_BACKEND`.
    pub fn backend(mut self, backend: Selection) -> Self {
        self.backend = Some(backend);
        self
    }

    /// The device.
    pub fn device(mut self, device: DeviceChoice) -> Self {
        self.device = device;
        self
    }

    /// Bound of every wait on a peer. The same on all ranks.
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.deadline = Some(deadline);
        self
    }

    /// Bound of every step in which ranks set something up together. The same on all ranks.
    pub fn setup_deadline(mut self, deadline: Duration) -> Self {
        self.setup_deadline = Some(deadline);
        self
    }

    /// Where signal words live. The same on all ranks.
    pub fn signal_placement(mut self, placement: SignalPlacement) -> Self {
        self.signal_placement = placement;
        self
    }

    /// Only these strategies of sharing memory, in this order. The same on all ranks.
    pub fn share_kinds(mut self, kinds: &[ShareKind]) -> Self {
        self.share_kinds = kinds.to_vec();
        self
    }

    /// Rows of the selector of collectives that go before those of the backend, in place of the table
    /// that `SYMMEM_TUNING` names (which `symmem tune` writes). The same on all ranks.
    pub fn tuning(mut self, rows: &[CollectiveRow]) -> Self {
        self.collective_rows = Some(rows.to_vec());
        self
    }

    /// How products are done that were measured before, in place of what the table says that `SYMMEM_TUNING`
    /// names (which `symmem bench ag-gemm --tune` writes). The same on all ranks.
    pub fn gemm_tuning(mut self, rows: &[GemmRow]) -> Self {
        self.gemm_rows = Some(rows.to_vec());
        self
    }

    /// Whether ranks compare each collective call before they make it, in place of `SYMMEM_CHECK`: it
    /// costs a round trip over the host, and names the rank that differs. The same on all ranks.
    pub fn check_calls(mut self, check: bool) -> Self {
        self.check_calls = Some(check);
        self
    }

    /// Joins the world. Collective; blocks at most the setup deadline for each step.
    ///
    /// # Errors
    /// [`crate::Error::BadVariable`] for an environment variable with a value that cannot be used;
    /// [`crate::Error::NoBackend`] with every probe and why it failed; what [`Communicator::open`] fails
    /// with.
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
        let (collectives, products) = match (&self.collective_rows, &self.gemm_rows) {
            (Some(_), Some(_)) => Default::default(),
            _ => rows_from_environment(rank)?,
        };
        configuration.collective_rows = self.collective_rows.unwrap_or(collectives);
        configuration.gemm_rows = self.gemm_rows.unwrap_or(products);
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
        if let Some(deadline) = self.deadline {
            configuration.deadline = deadline;
        }
        if let Some(deadline) = self.setup_deadline {
            configuration.setup_deadline = deadline;
        }
        Communicator::open(&chosen.source, configuration)
    }
}

/// Reads the table that `SYMMEM_TUNING` names.
fn rows_from_environment(rank: usize) -> Result<(Vec<CollectiveRow>, Vec<GemmRow>)> {
    let Some(path) = variables::TUNING.value() else {
        return Ok(Default::default());
    };
    let bad = |reason: String| variables::TUNING.refuse(&path, reason).at(rank);
    let text = std::fs::read_to_string(&path).map_err(|error| bad(error.to_string()))?;
    let rows = tuning::Table::from_json(&text)
        .and_then(|table| Ok((table.rows()?, table.gemm_rows()?)))
        .map_err(|error| bad(error.to_string()))?;
    Ok(rows)
}
