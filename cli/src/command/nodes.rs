//! The options of commands whose ranks may be on several nodes, on each of which the command runs.

use super::common::{Backend, RANKS, ranks};
use super::error::{CommandError, Result};
use crate::launch::{NodeOptions, RunOptions};
use std::path::PathBuf;
use symmem::MAX_WORLD;
use symmem::bootstrap::Secret;

/// Heading in the help.
const NODES: &str = "Several nodes";

/// This node's place among several.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct Nodes {
    /// Number of nodes, on each of which `symmem run` starts as many ranks
    #[arg(long, value_name = "N", requires = "node", value_parser = clap::value_parser!(u32).range(1..), help_heading = NODES)]
    nodes: Option<u32>,
    /// This node's number, from 0
    #[arg(long, value_name = "I", requires = "nodes", help_heading = NODES)]
    node: Option<u32>,
    /// Where rank 0, on node 0, listens; the same on all nodes
    #[arg(long, value_name = "HOST:PORT", requires = "nodes", help_heading = NODES)]
    rendezvous: Option<String>,
    /// File with the job's secret, 64 hexadecimal digits, the same on all nodes [default: SYMMEM_SECRET]
    #[arg(long, value_name = "FILE", requires = "nodes", help_heading = NODES)]
    secret_file: Option<PathBuf>,
}

/// The options that select backend, ranks of this node and nodes.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct RanksOfNodes {
    #[command(flatten)]
    pub backend: Backend,
    /// Number of ranks, on each node if there are several [default: one per GPU, at least 2]
    #[arg(short = 'n', long, value_name = "N", value_parser = ranks::<1>, help_heading = RANKS)]
    pub ranks: Option<u32>,
    #[command(flatten)]
    pub nodes: Nodes,
}

impl Nodes {
    /// Returns this node's part of a job on several nodes.
    pub fn across(&self) -> Result<Option<NodeOptions>> {
        let (Some(nodes), Some(node)) = (self.nodes, self.node) else {
            return Ok(None);
        };
        let said = |text: String| Err(CommandError::Said(text));
        if node >= nodes {
            return said(format!(
                "--node {node} is not one of {nodes} nodes; number them from 0 to {}",
                nodes - 1
            ));
        }
        let Some(rendezvous) = self.rendezvous.clone() else {
            return said(
                "--nodes needs an address where the ranks meet; pass --rendezvous HOST:PORT of node 0 on every node"
                    .into(),
            );
        };
        let secret = self.secret()?;
        Ok(Some(NodeOptions {
            node,
            nodes,
            rendezvous,
            secret,
        }))
    }

    /// Returns the job's secret as text.
    fn secret(&self) -> Result<String> {
        let (text, place) = match &self.secret_file {
            Some(file) => {
                let text = std::fs::read_to_string(file).map_err(|error| CommandError::System {
                    what: format!("reading {}", file.display()),
                    error,
                })?;
                (text, file.display().to_string())
            }
            None => {
                let text = std::env::var("SYMMEM_SECRET").unwrap_or_default();
                (text, "SYMMEM_SECRET".into())
            }
        };
        let text = text.trim();
        if text.is_empty() {
            return Err(CommandError::Said(format!(
                "several nodes need a secret, the same on all, and {place} has none; make one by `openssl rand -hex 32`, \
                 and pass it by --secret-file FILE or SYMMEM_SECRET"
            )));
        }
        // The value is not repeated in the error: it may be almost right.
        match Secret::from_hex(text) {
            Some(_) => Ok(text.to_owned()),
            None => Err(CommandError::Said(format!(
                "{place} has {} characters that are not a secret; write 64 hexadecimal digits",
                text.chars().count()
            ))),
        }
    }
}

/// Fails if there are more ranks on all nodes than a world has.
pub fn check_world(options: &RunOptions) -> Result<()> {
    let nodes = options.node.as_ref().map_or(1, |node| node.nodes);
    match options.ranks.checked_mul(nodes) {
        Some(world) if world as usize <= MAX_WORLD => Ok(()),
        _ => Err(CommandError::Said(format!(
            "{} ranks on each of {nodes} nodes are more than a world has, {MAX_WORLD}; use fewer",
            options.ranks
        ))),
    }
}
