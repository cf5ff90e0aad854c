//! The settings with which a rank joins a world.

use crate::backend::Tables;
use crate::backend::abi::CollectiveRow;
use crate::base::gemm_reduce_row::GemmReduceRow;
use crate::base::gemm_row::GemmRow;
use crate::base::names::{ShareKind, SignalPlacement};
use crate::bootstrap::LaunchEnvironment;
use std::time::Duration;

/// The source of a communicator's backend.
#[derive(Clone)]
pub enum BackendSource {
    /// The built-in host backend.
    Host,
    /// A vendor's backend, through its function table.
    Tables(Box<Tables>),
}

/// The choice of a rank's device.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum DeviceChoice {
    /// The rank's number on this host, modulo the number of devices. Ranks may share a device.
    #[default]
    LocalRank,
    /// The device of this ordinal, counted from 0 among those that the visibility variables (such as
    /// `CUDA_VISIBLE_DEVICES`) leave.
    Ordinal(u32),
    /// The device with this UUID.
    Uuid([u8; 16]),
}

/// The settings with which a rank joins a world. All fields must be the same on all ranks, except `device` and the
/// rank's numbers in `launch`.
#[derive(Clone, Debug)]
pub struct Configuration {
    /// The rank's number, the world size and the rendezvous of the job.
    pub launch: LaunchEnvironment,
    /// The rank's device.
    pub device: DeviceChoice,
    /// Deadline of every wait for a peer, default 10 minutes. It counts from the start of the waiting kernel, or, for
    /// a signal in host memory, from the call.
    pub deadline: Duration,
    /// Deadline of every step in which ranks set something up together. Default 60 seconds.
    pub setup_deadline: Duration,
    /// Time after which a rank that is not heard from is dead, in a world that spans nodes: its host has stopped or cannot
    /// be reached. Default 3 seconds, at least 0.3 seconds. On one node a rank is dead when its process has ended.
    pub silence: Duration,
    /// Placement of signal words: device or host memory.
    pub signal_placement: SignalPlacement,
    /// Strategies of sharing memory to try, in order; empty for the backend's own order.
    pub share_kinds: Vec<ShareKind>,
    /// Tuning rows of collectives, which take precedence over the backend's.
    pub collective_rows: Vec<CollectiveRow>,
    /// Tuning rows of all-gather + GEMM; the first that matches a shape applies.
    pub gemm_rows: Vec<GemmRow>,
    /// Tuning rows of GEMM + reduce-scatter and GEMM + all-reduce; the first that matches a shape applies.
    pub gemm_reduce_rows: Vec<GemmReduceRow>,
    /// Whether ranks compare each collective call before they make it. Slow; a mismatch names the rank that
    /// differs.
    pub check_calls: bool,
}

impl Configuration {
    /// Returns the defaults for the rank that `launch` describes.
    pub fn new(launch: LaunchEnvironment) -> Self {
        Self {
            launch,
            device: DeviceChoice::default(),
            deadline: Duration::from_secs(600),
            setup_deadline: Duration::from_secs(60),
            silence: Duration::from_secs(3),
            signal_placement: SignalPlacement::Device,
            share_kinds: Vec::new(),
            collective_rows: Vec::new(),
            gemm_rows: Vec::new(),
            gemm_reduce_rows: Vec::new(),
            check_calls: false,
        }
    }
}
