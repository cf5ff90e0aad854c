//! What a communicator has for collectives.

use crate::backend::abi::ShareKind;
use crate::base::error::Result;
use crate::group::lanes::Lanes;
use crate::group::membership::Membership;
use crate::group::nccl::Vendors;
use crate::group::selector::Selector;
use crate::group::slots::{Layout, Slots};
use crate::memory::sharing;
use crate::memory::sharing::Origin;
use crate::rank::agreement::Round;
use crate::rank::allocation::Allocation;
use crate::rank::context::Inner;
use std::sync::Arc;

/// Made once, when the communicator comes up.
pub struct State {
    /// Which algorithm for which call.
    pub selector: Selector,
    /// All ranks.
    pub everyone: Membership,
    /// The communicators of the vendor's library.
    pub vendors: Vendors,
    /// Whether calls are compared before they are made.
    pub check_calls: bool,
}

impl State {
    /// Allocates the slots of all ranks; together with them.
    ///
    /// # Errors
    /// As any collective call.
    pub fn open(
        shared: &Inner,
        round: &mut Round<'_>,
        kind: ShareKind,
        selector: Selector,
        lanes: Lanes,
        check_calls: bool,
    ) -> Result<Self> {
        let layout = Layout::new(shared.world, selector.has_grids(), true)
            .with_inbox(selector.inbox(shared.world));
        let bytes = shared.multicast().padded(layout.bytes());
        let (allocation, _) = sharing::allocate(shared, round, &[kind], bytes, Origin::Signals)?;
        let members: Vec<usize> = (0..shared.world).collect();
        let slots = Slots::new(Arc::new(allocation), layout, &members, shared.rank);
        Ok(Self {
            selector,
            everyone: Membership::new(members, shared.rank, true, slots, lanes),
            vendors: Vendors::default(),
            check_calls,
        })
    }

    /// The memory of all ranks' slots.
    pub fn allocation(&self) -> &Allocation {
        self.everyone.slots.allocation()
    }
}
