//! The state that all handles of a communicator share: the rank's context, and above it the signal pad,
//! multicast and the group of all ranks.

use crate::backend::abi::{ShareKindCode, Watch};
use crate::base::error::Result;
use crate::group::state::State;
use crate::memory::exchange_table::ExchangeTable;
use crate::memory::multicast::object::Multicast;
use crate::memory::pad::SignalPad;
use crate::memory::sharing::{self, Allocator, Origin};
use crate::memory::staging::Staging;
use crate::network::network::Network;
use crate::network::registration;
use crate::rank::agreement::Round;
use crate::rank::allocation::Allocation;
use crate::rank::context::Context;
use crate::world::start_memory::StartMemory;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

/// A communicator's world after its setup, which runs from the context upwards.
pub struct World {
    /// This rank's context. Its drop tears everything down.
    pub context: Context,
    /// The sharing strategy that the signal pad proved; later allocations use it.
    pub kind: ShareKindCode,
    /// The signal words.
    pub pad: Arc<SignalPad>,
    /// Multicast, and its status.
    pub multicast: Arc<Multicast>,
    /// The state of collectives.
    pub collectives: State,
    /// Pinned memory for host copies.
    pub staging: Arc<Staging>,
    /// The address table, in which receiving kernels look up a sender's memory.
    pub table: ExchangeTable,
    /// The connections to ranks of other nodes; `None` if all ranks are on this node.
    pub network: Option<Arc<Network>>,
    /// The memory that the start took.
    pub memory: StartMemory,
}

impl World {
    /// Returns what a kernel that waits at most `deadline` watches.
    pub fn watch(&self, deadline: Duration) -> Watch {
        Watch {
            aborted: self.pad.aborted(),
            ..self.health.watch(deadline)
        }
    }

    /// Returns what a further symmetric allocation is made with.
    pub fn allocator(&self) -> Allocator<'_> {
        Allocator {
            context: &self.context,
            staging: &self.staging,
            table: Some(&self.table),
        }
    }

    /// Makes a symmetric allocation of the kind that the signal pad proved. A step of a round, of all ranks.
    ///
    /// # Errors
    /// As [`sharing::allocate`].
    pub fn allocate(
        &self,
        round: &mut Round<'_>,
        bytes: u64,
        origin: Origin,
    ) -> Result<Arc<Allocation>> {
        let made = sharing::allocate(self.allocator(), round, &[self.kind], bytes, origin);
        made.map(|(allocation, _)| allocation)
    }

    /// Lets ranks of other nodes reach an allocation. A step of a round, of all ranks.
    ///
    /// # Errors
    /// As [`registration::register`].
    pub fn register(&self, round: &mut Round<'_>, allocation: &Allocation) -> Result<()> {
        match &self.network {
            Some(network) => registration::register(network, round, self, allocation),
            None => Ok(()),
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
