//! The store's verdict on the part of a handshake that has arrived.

/// The store's first bytes in answer to a greeting with the job's key.
pub(super) const WELCOME: [u8; 8] = *b"welcome\n";
/// The store's answer to a greeting with another key.
pub(super) const REFUSED: [u8; 8] = *b"refused\n";

/// The store's answer to the bytes that have arrived, and what comes next.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::bootstrap) struct Step {
    /// Bytes to send now; often none.
    pub(in crate::bootstrap) answer: Vec<u8>,
    pub(in crate::bootstrap) verdict: Verdict,
}

/// The verdict on the other end: whether it is a rank of this job.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::bootstrap) enum Verdict {
    /// More bytes are to come.
    Pending,
    /// It is a rank of this job: messages follow.
    Trusted,
    /// It is not, for this reason: the connection is closed once the answer is sent.
    Refused(&'static str),
}

impl Step {
    /// Makes a step with nothing to send.
    pub(in crate::bootstrap) fn silent(verdict: Verdict) -> Self {
        Self {
            answer: Vec::new(),
            verdict,
        }
    }

    /// Makes the step that refuses a greeting with another key, and says so to the other end.
    pub(super) fn refused(reason: &'static str) -> Self {
        Self {
            answer: REFUSED.to_vec(),
            verdict: Verdict::Refused(reason),
        }
    }
}
