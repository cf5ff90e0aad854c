//! What a communicator has for collectives.

use super::Provider;
use super::group::Membership;
use super::lanes::Lanes;
use super::selector::{Choice, Query, Selector, Wish};
use super::slots::{Layout, Slots};
use super::vendor::Vendors;
use crate::backend::abi::{CollectiveOperation, ElementType, ReduceOperation, ShareKind};
use crate::communicator::allocation::Allocation;
use crate::communicator::{Inner, Origin, Round, sharing};
use crate::error::Result;
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

    /// See [`crate::Communicator::explain`].
    pub fn explain(
        &self,
        operation: CollectiveOperation,
        bytes: u64,
        element: ElementType,
    ) -> std::result::Result<Choice, String> {
        let query = Query {
            operation,
            element,
            world: self.everyone.world() as u32,
            bytes,
            in_place: false,
            vendor: self.vendors.of(Provider::Automatic, true).is_some(),
            reduce: ReduceOperation::SUM,
            multicast: self.everyone.slots.at_all(0).is_some(),
            push_channels: self.selector.push_channels(self.everyone.slots.inboxes(0)),
        };
        self.selector.choose(&query, &Wish::default())
    }

    /// The memory of all ranks' slots.
    pub fn allocation(&self) -> &Allocation {
        self.everyone.slots.allocation()
    }
}
