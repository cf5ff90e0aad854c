//! The options of a launch.

use serde::{Deserialize, Serialize};
use std::ffi::OsString;
use std::time::Duration;

/// The argument that makes the `symmem` command a supervisor.
pub const SUPERVISOR_ARGUMENT: &str = "supervise";

/// Default time in which the other ranks may end by themselves after one has failed. A rank notices a dead peer within
/// 0.8 s while ranks meet, and within 0.1 s afterwards.
pub const REACTION: Duration = Duration::from_secs(1);

/// Default time between SIGTERM and SIGKILL.
pub const GRACE: Duration = Duration::from_secs(5);

/// This node's part of a job on several nodes.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct NodeOptions {
    /// This node's number, from 0.
    pub node: u32,
    /// Number of nodes, each with as many ranks.
    pub nodes: u32,
    /// `host:port` where rank 0, on node 0, listens.
    pub rendezvous: String,
    /// The job's secret, the same on all nodes: 64 hexadecimal digits.
    pub secret: String,
}

/// The options of a launch.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RunOptions {
    /// Number of ranks on this node.
    pub ranks: u32,
    /// This node's part of the job; `None` if all ranks are on this node.
    pub node: Option<NodeOptions>,
    /// The program that each rank runs, looked up in `PATH`.
    pub program: OsString,
    /// Its arguments.
    pub arguments: Vec<OsString>,
    /// Whether to prefix each line of output with `[rank] `. If not, the ranks inherit this process's standard output
    /// and standard error.
    pub prefix: bool,
    /// Environment variables to set for every rank, in addition to this process's environment.
    pub environment: Vec<(OsString, OsString)>,
    /// Whether to print the exit code of a failed rank. The ranks of this command print their own errors.
    pub tells_codes: bool,
    /// Whether to send SIGTERM to the other ranks after one has failed. If not, they notice the failure themselves and
    /// release what they hold.
    pub asks_to_end: bool,
    /// Time after a failure in which the other ranks may print their errors and end by themselves, before SIGTERM.
    pub reaction: Duration,
    /// Time before SIGKILL: after SIGTERM or, without SIGTERM, after the failure.
    pub grace: Duration,
    /// Arguments that make the current executable call [`super::supervise`].
    pub supervisor: Vec<OsString>,
}

impl RunOptions {
    /// Returns options for `ranks` ranks of `program`, with prefixed output, [`REACTION`], [`GRACE`] and
    /// [`SUPERVISOR_ARGUMENT`].
    pub fn new(ranks: u32, program: impl Into<OsString>) -> Self {
        Self {
            ranks,
            node: None,
            program: program.into(),
            arguments: Vec::new(),
            prefix: true,
            environment: Vec::new(),
            tells_codes: true,
            asks_to_end: true,
            reaction: REACTION,
            grace: GRACE,
            supervisor: vec![SUPERVISOR_ARGUMENT.into()],
        }
    }

    /// Returns the rank with the number `local` on this node.
    pub fn rank(&self, local: u32) -> u32 {
        local + self.node.as_ref().map_or(0, |node| node.node * self.ranks)
    }

    /// Returns the number of ranks on all nodes.
    pub fn world(&self) -> u32 {
        self.ranks * self.node.as_ref().map_or(1, |node| node.nodes)
    }
}
