//! What the network between nodes consists of, for reports.

use crate::base::error::{Error, Result};
use std::fmt;
use symmem_ucx::{Config, Context, Library};

/// The library, transports and way of the bytes between nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct NetworkStatus {
    /// UCX's version, such as `1.13.1`.
    pub ucx: String,
    /// The file of the library `libucp.so.0`.
    pub file: String,
    /// Optional functions of UCX that this version lacks.
    pub missing: Vec<String>,
    /// The transports and devices that UCX found, such as `tcp/eth0`. UCX picks among them for each peer.
    pub transports: String,
    /// Whether bytes go through pinned host memory on their way between the device and the network.
    pub staged: bool,
}

impl NetworkStatus {
    /// Returns the status of a library, before transports are known and with memory that UCX reaches.
    pub(super) fn of(library: &Library) -> Self {
        let missing = library.missing().into_iter();
        Self {
            ucx: library.version().to_owned(),
            file: library.path().display().to_string(),
            missing: missing.map(String::from).collect(),
            transports: String::new(),
            staged: false,
        }
    }
}

impl fmt::Display for NetworkStatus {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes = match self.staged {
            true => "staged through host memory",
            false => "not staged",
        };
        let transports = match self.transports.as_str() {
            "" => "unknown",
            transports => transports,
        };
        write!(
            formatter,
            "UCX {}, transports {transports}, bytes {bytes}",
            self.ucx
        )
    }
}

/// Looks for UCX, which a world of several nodes needs, without a world. Blocks while UCX looks for network devices: some
/// milliseconds, or more with many devices. UCX stays loaded until the process ends.
///
/// # Errors
/// [`Error::Unsupported`] with the reason, and what to install.
pub fn network_library() -> Result<NetworkStatus> {
    let unsupported = |message: String| Error::Unsupported {
        rank: 0,
        operation: "look for UCX",
        message,
    };
    let library = Library::open().map_err(|error| unsupported(error.to_string()))?;
    let context = Context::new(&library, &Config::default())
        .map_err(|failure| unsupported(failure.to_string()))?;
    Ok(NetworkStatus {
        transports: context.transports(),
        ..NetworkStatus::of(&library)
    })
}
