//! One call of a collective, the same on all ranks.

use super::how::CallChoice;
use super::shape::Shape;
use crate::report::Placement;
use symmem::CollectiveOptions;

#[derive(Clone, Copy)]
pub(crate) struct Call {
    pub shape: Shape,
    pub placement: Placement,
    pub how: CallChoice,
    /// `how` as the library's options.
    pub(super) options: CollectiveOptions<'static>,
}

impl Call {
    pub(crate) fn new(shape: Shape, placement: Placement, how: CallChoice) -> Self {
        Self {
            shape,
            placement,
            how,
            options: how.options(),
        }
    }
}

/// Work that a session times.
#[derive(Clone, Copy)]
pub(crate) enum Work<'c> {
    /// A barrier of all ranks.
    Barrier,
    /// The kernel between calls, alone; nothing without one.
    Between,
    /// A collective.
    Call(&'c Call),
}
