//! What a rank needs to join a world.

use crate::backend::Tables;
use crate::backend::abi::CollectiveRow;
use crate::base::gemm_row::GemmRow;
use crate::base::names::{ShareKind, SignalPlacement};
use crate::bootstrap::LaunchEnvironment;
use std::time::Duration;

/// Where a communicator's backend comes from.
#[derive(Clone)]
pub enum BackendSource {
    /// The built-in one.
    Host,
    /// A vendor's, through its table.
    Tables(Box<Tables>),
}

/// Which of the backend's devices a rank uses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum DeviceChoice {
    /// The rank's number on this host, modulo the number of devices. Ranks may share a device.
    #[default]
    LocalRank,
    /// This ordinal, under the visibility variables in force.
    Ordinal(u32),
    /// The device with this identifier.
    Uuid([u8; 16]),
}

/// What a rank needs to join a world. Deadlines, placement and strategies must be the same on all.
#[derive(Clone, Debug)]
pub struct Configuration {
    /// Who this rank is and where its job meets.
    pub launch: LaunchEnvironment,
    /// Its device.
    pub device: DeviceChoice,
    /// Bound of every wait on a peer, from the waiting kernel's start. Default 10 minutes.
    pub deadline: Duration,
    /// Bound of every step in which ranks set something up together. Default 60 seconds.
    pub setup_deadline: Duration,
    /// Where signal words live.
    pub signal_placement: SignalPlacement,
    /// Strategies of sharing to try, in order; empty for the backend's own order.
    pub share_kinds: Vec<ShareKind>,
    /// Rows of the selector of collectives that go before the backend's.
    pub collective_rows: Vec<CollectiveRow>,
    /// How products are done that were measured before; the first that fits one holds.
    pub gemm_rows: Vec<GemmRow>,
    /// Whether ranks compare each collective call before they make it: slow, and names who differs.
    pub check_calls: bool,
}

impl Configuration {
    /// The defaults, for the rank that `launch` describes.
    pub fn new(launch: LaunchEnvironment) -> Self {
        Self {
            launch,
            device: DeviceChoice::default(),
            deadline: Duration::from_secs(600),
            setup_deadline: Duration::from_secs(60),
            signal_placement: SignalPlacement::Device,
            share_kinds: Vec::new(),
            collective_rows: Vec::new(),
            gemm_rows: Vec::new(),
            check_calls: false,
        }
    }
}
