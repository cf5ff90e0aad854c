//! What the store makes of the part of a handshake that has arrived.

/// The store's answer to the bytes that have arrived, and what comes next.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::bootstrap) struct Step {
    /// Bytes to send now; often none.
    pub(in crate::bootstrap) answer: Vec<u8>,
    pub(in crate::bootstrap) verdict: Verdict,
}

/// Whether a rank of this job is at the other end.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::bootstrap) enum Verdict {
    /// More bytes are to come.
    Pending,
    /// It is: messages follow.
    Trusted,
    /// It is not, for this reason: the connection is to be closed once the answer is sent.
    Refused(&'static str),
}

impl Step {
    /// Nothing to send.
    pub(in crate::bootstrap) fn silent(verdict: Verdict) -> Self {
        Self {
            answer: Vec::new(),
            verdict,
        }
    }
}
