//! How a program joins a world.

use crate::select::{self, Selection};
use std::time::Duration;
use symmem_core::backend::abi::{ShareKind, SignalPlacement};
use symmem_core::bootstrap::LaunchEnvironment;
use symmem_core::{Communicator, Configuration, DeviceChoice, Result};

/// Joins the world that the launcher describes, with the best backend there is.
///
/// The same as `Builder::new().build()`.
///
/// # Errors
/// As [`Builder::build`].
pub fn init() -> Result<Communicator> {
    Builder::new().build()
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

    /// Joins the world. Collective; blocks at most the setup deadline for each step.
    ///
    /// # Errors
    /// [`symmem_core::Error::NoBackend`] with every probe and why it failed; what
    /// [`Communicator::open`] fails with.
    pub fn build(self) -> Result<Communicator> {
        let launch = match self.launch {
            Some(launch) => launch,
            None => LaunchEnvironment::detect()?,
        };
        let selection = match self.backend {
            Some(selection) => selection,
            None => Selection::from_environment()?,
        };
        let chosen = select::choose(&selection)?;
        let mut configuration = Configuration::new(launch);
        configuration.device = self.device;
        configuration.signal_placement = self.signal_placement;
        configuration.share_kinds = self.share_kinds;
        if let Some(deadline) = self.deadline {
            configuration.deadline = deadline;
        }
        if let Some(deadline) = self.setup_deadline {
            configuration.setup_deadline = deadline;
        }
        Communicator::open(&chosen.source, configuration)
    }
}
