//! What a world of several nodes would use: UCX, or why there can be no such world and what to install.

use serde_json::{Value, json};
use symmem::NetworkStatus;

/// The backend whose memory UCX reaches.
const HOST: &str = "host";

/// UCX, or the reason why it cannot be used.
pub struct Network(Result<NetworkStatus, String>);

impl Network {
    /// Looks for UCX, which stays loaded. `backend` is the one whose worlds would use it.
    pub fn look(backend: Option<&str>) -> Self {
        let status = symmem::network_library().map(|mut status| {
            status.staged = backend.is_some_and(|name| name != HOST);
            status
        });
        Self(status.map_err(|error| error.to_string()))
    }

    /// Returns the fact for the short form.
    pub fn fact(&self) -> String {
        match &self.0 {
            Ok(status) => {
                let bytes = match status.staged {
                    true => "staged through host memory",
                    false => "not staged",
                };
                let NetworkStatus { ucx, file, .. } = status;
                format!("between nodes: UCX {ucx}, {file}; bytes {bytes}")
            }
            Err(error) => format!("between nodes: no worlds of several nodes: {error}"),
        }
    }

    /// Returns the lines for `--details`.
    pub fn details(&self) -> String {
        match &self.0 {
            Ok(status) => {
                let missing = match status.missing.is_empty() {
                    true => String::new(),
                    false => format!(
                        "\n  functions of newer versions that it lacks: {}",
                        status.missing.join(", ")
                    ),
                };
                format!("between nodes: {status}\n  file: {}{missing}", status.file)
            }
            Err(error) => {
                format!("between nodes: worlds of several nodes are not possible: {error}")
            }
        }
    }

    /// Returns the same as JSON.
    pub fn json(&self) -> Value {
        match &self.0 {
            Ok(status) => json!({
                "ucx": status.ucx,
                "file": status.file,
                "missing": status.missing,
                "transports": status.transports,
                "staged": status.staged,
            }),
            Err(error) => json!({ "error": error }),
        }
    }
}
