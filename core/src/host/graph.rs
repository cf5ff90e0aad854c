//! Graphs: recorded lists of a stream's operations.

use super::operation::Operation;

/// The operations that one stream was asked for while it was captured, in order.
#[derive(Default)]
pub(super) struct Recording(Vec<Operation>);

impl Recording {
    /// Adds an operation. Another recording is added item by item, so that none is nested.
    pub(super) fn push(&mut self, operation: Operation) {
        match operation {
            Operation::Replay(recording) => self.0.extend_from_slice(recording.items()),
            operation => self.0.push(operation),
        }
    }

    /// The operations.
    pub(super) fn items(&self) -> &[Operation] {
        &self.0
    }
}
