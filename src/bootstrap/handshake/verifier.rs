//! The measure of all greetings that reach one store.

#[cfg(feature = "tcp")]
use std::collections::HashSet;

use crate::bootstrap::key::Key;

/// The job's key, and the greetings over TCP that were made with it.
pub(in crate::bootstrap) struct Verifier {
    pub(in crate::bootstrap) key: Key,
    /// The first messages that the store has answered. Each needs the secret to be made, so that strangers cannot fill
    /// this; but whoever carries connections can record one, and make the store compute keys for it again and again.
    #[cfg(feature = "tcp")]
    answered: HashSet<Vec<u8>>,
}

impl Verifier {
    pub(in crate::bootstrap) fn new(key: Key) -> Self {
        Self {
            key,
            #[cfg(feature = "tcp")]
            answered: HashSet::new(),
        }
    }

    /// Notes the first message of a handshake, which was made with the secret; returns false if it was noted before.
    #[cfg(feature = "tcp")]
    pub(super) fn is_new(&mut self, message: &[u8]) -> bool {
        self.answered.insert(message.to_vec())
    }
}
