//! A communicator's state for collectives.

use crate::backend::abi::{DeviceAddress, ShareKindCode};
use crate::base::error::Result;
use crate::group::lanes::Lanes;
use crate::group::membership::Membership;
use crate::group::nccl::Communicators;
use crate::group::selector::Selector;
use crate::group::slots::{Layout, Slots};
use crate::group::span::Span;
use crate::memory::multicast::object::Multicast;
use crate::memory::sharing::{self, Allocator, Origin};
use crate::rank::agreement::Round;
use crate::rank::allocation::Allocation;
use std::sync::Arc;

/// A communicator's state for collectives, made once during the setup.
pub struct State {
    /// Chooses algorithm and grid of each call.
    pub selector: Selector,
    /// The group of all ranks; its slots are those of this node's ranks.
    pub everyone: Membership,
    /// The communicators of NCCL or RCCL.
    pub nccl: Arc<Communicators>,
    /// Whether calls are compared before they are made.
    pub check_calls: bool,
}

impl State {
    /// Allocates the slots of the group of all ranks, together with all ranks.
    ///
    /// # Errors
    /// The errors of any collective call.
    pub fn open(
        allocator: Allocator<'_>,
        round: &mut Round<'_>,
        kind: ShareKindCode,
        multicast: &Multicast,
        (selector, lanes, layout): (Selector, Lanes, Layout),
        check_calls: bool,
    ) -> Result<Self> {
        let context = allocator.context;
        let bytes = multicast.padded(layout.bytes());
        let (allocation, _) = sharing::allocate(allocator, round, &[kind], bytes, Origin::Signals)?;
        // Released with the context, even if a later step fails.
        context.keep(allocation.clone());
        let placement = &*context.placement;
        let span = Span::new((0..context.world).collect(), context.rank, placement);
        let (members, rank) = span.here();
        let slots = Slots::new(allocation, layout, (&members, rank), placement);
        let whole = !placement.spans_nodes();
        let nccl = Arc::new(Communicators::default());
        context.on_close(nccl.clone());
        Ok(Self {
            selector,
            everyone: Membership::new(span, whole, slots, lanes),
            nccl,
            check_calls,
        })
    }

    /// Returns the memory of all ranks' slots.
    pub fn allocation(&self) -> &Arc<Allocation> {
        self.everyone.slots.allocation()
    }

    /// Returns the first row of this rank's address table.
    pub fn table(&self) -> DeviceAddress {
        let everyone = &self.everyone;
        everyone.slots.table(everyone.members[everyone.rank])
    }
}
