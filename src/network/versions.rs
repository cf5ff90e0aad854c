//! The versions of UCX that ranks have, for the errors of those that do not understand each other.

use crate::base::error::{Error, NoAnswer};
use std::sync::Arc;

/// The version of each rank.
#[derive(Debug, Default)]
pub struct Versions(Vec<String>);

/// The failure of a connection between two versions. Some versions connect to each other, so a difference alone is none.
#[derive(Debug, thiserror::Error)]
#[error(
    "{source}; rank {rank} has UCX {mine}, and rank {peer} has UCX {theirs}: install one version on all hosts, or name it \
     in SYMMEM_UCX_LIBRARY"
)]
struct Different {
    rank: usize,
    mine: String,
    peer: usize,
    theirs: String,
    source: Arc<dyn std::error::Error + Send + Sync>,
}

impl Versions {
    /// Adds the version of the next rank.
    pub fn add(&mut self, version: String) {
        self.0.push(version);
    }

    /// Adds both versions to the failure of a connection between two that differ. Waits without an answer stay what they are.
    pub fn explain(&self, error: Error) -> Error {
        let Error::Network {
            rank,
            peer,
            node,
            bytes,
            operation,
            failure,
        } = error
        else {
            return error;
        };
        let failure = match (self.0.get(rank), self.0.get(peer)) {
            (Some(mine), Some(theirs)) if mine != theirs && !failure.is::<NoAnswer>() => {
                Arc::new(Different {
                    rank,
                    mine: mine.clone(),
                    peer,
                    theirs: theirs.clone(),
                    source: failure,
                })
            }
            _ => failure,
        };
        Error::Network {
            rank,
            peer,
            node,
            bytes,
            operation,
            failure,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::error::Error as _;
    use std::io;

    fn failed(peer: usize) -> Error {
        Error::Network {
            rank: 0,
            peer,
            node: peer,
            bytes: None,
            operation: "connect",
            failure: Arc::new(io::Error::other("no route")),
        }
    }

    #[test]
    fn a_failure_between_versions_names_both_ranks_and_versions_and_keeps_its_cause() {
        let mut versions = Versions::default();
        for version in ["1.13.1", "1.13.1", "1.22.0"] {
            versions.add(version.into());
        }
        let told = versions.explain(failed(2));
        let text = told.to_string();
        for part in ["rank 0 has UCX 1.13.1", "rank 2 has UCX 1.22.0", "no route"] {
            assert!(text.contains(part), "{part} is missing in: {text}");
        }
        let cause = told.source().and_then(|different| different.source());
        let cause = cause.map(ToString::to_string);
        assert_eq!(cause.as_deref(), Some("no route"), "{told:?}");
        // Between equal versions, and of what is no failure of a connection, nothing is added.
        assert_eq!(
            versions.explain(failed(1)).to_string(),
            failed(1).to_string()
        );
        let other = Error::Aborted { rank: 0 };
        assert_eq!(
            versions.explain(other.clone()).to_string(),
            other.to_string()
        );
    }
}
