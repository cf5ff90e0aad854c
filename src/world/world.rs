//! Everything that handles of a communicator share: the rank's context, and above it the signal pad, multicast
//! and the group of all ranks.

use crate::backend::abi::ShareKind;
use crate::group::state::State;
use crate::memory::exchange_table::ExchangeTable;
use crate::memory::multicast::object::Multicast;
use crate::memory::pad::SignalPad;
use crate::memory::sharing::Maker;
use crate::memory::staging::Staging;
use crate::rank::context::Context;
use std::ops::Deref;
use std::sync::Arc;

/// A communicator's world, complete: it is set up upwards, from the context on.
pub struct World {
    /// This rank. Its end is the end of all.
    pub context: Context,
    /// The strategy that the signal pad proved; later allocations use it.
    pub kind: ShareKind,
    /// The words that peers signal by.
    pub pad: Arc<SignalPad>,
    /// What became of multicast.
    pub multicast: Arc<Multicast>,
    /// What collectives need.
    pub collectives: State,
    /// Copies from and to the host.
    pub staging: Arc<Staging>,
    /// Where kernels that receive find what they were sent.
    pub table: ExchangeTable,
}

impl World {
    /// By what a further symmetric allocation is made.
    pub fn maker(&self) -> Maker<'_> {
        Maker {
            context: &self.context,
            staging: &self.staging,
            table: Some(&self.table),
        }
    }
}

impl Deref for World {
    type Target = Context;

    #[inline]
    fn deref(&self) -> &Context {
        &self.context
    }
}
