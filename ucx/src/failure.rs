//! The error of a UCX call.

use crate::table::{self, Table};
use std::ffi::CStr;

/// A failed UCX call or operation.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{call}{}: {text} (UCX status {status})", of_peer(*peer))]
pub struct Failure {
    /// The function of UCX or of the system, or symmem's operation.
    pub call: &'static str,
    /// The label that the caller gave the peer, if the call concerns one.
    pub peer: Option<u32>,
    /// UCX's status, which is negative: a number of `ucs_status_t`.
    pub status: i8,
    /// UCX's text for the status, or symmem's for an argument that it refuses.
    pub text: String,
}

/// Result of a UCX call.
pub type Result<T> = std::result::Result<T, Failure>;

fn of_peer(peer: Option<u32>) -> String {
    peer.map(|peer| format!(" (peer {peer})"))
        .unwrap_or_default()
}

impl Failure {
    pub(crate) fn new(table: &Table, call: &'static str, status: table::Status) -> Self {
        Self {
            call,
            peer: None,
            status,
            text: text_of(table, status),
        }
    }

    /// Describes an argument that symmem refuses before the call.
    pub(crate) fn refused(call: &'static str, text: impl Into<String>) -> Self {
        Self {
            call,
            peer: None,
            status: table::INVALID_PARAM,
            text: text.into(),
        }
    }

    pub(crate) fn with_peer(mut self, peer: u32) -> Self {
        self.peer = Some(peer);
        self
    }
}

/// Turns a status into a result.
pub(crate) fn check(table: &Table, call: &'static str, status: table::Status) -> Result<()> {
    match status {
        table::OK => Ok(()),
        status => Err(Failure::new(table, call, status)),
    }
}

fn text_of(table: &Table, status: table::Status) -> String {
    // SAFETY: the function takes any number and returns a text that is never freed, or changed only by the next call
    // with an unknown status.
    let text = unsafe { (table.ucs_status_string)(status) };
    if text.is_null() {
        return "unknown status".into();
    }
    // SAFETY: not null, and a C string by `ucs/type/status.h`.
    unsafe { CStr::from_ptr(text) }
        .to_string_lossy()
        .into_owned()
}
