//! Multicast: one address behind which the same bytes of every member lie. A switch reduces what is loaded
//! from it, and hands what is stored there to all.

use super::collectives::{CollectiveGroup, ElementType, ReduceOperation};
use super::forms::open_enum;
use super::handles::DeviceAddress;
use super::limits::MAX_RANKS;

open_enum!(
    /// Whether collectives may go through multicast addresses.
    MulticastSupport {
        /// The device has none, or it was not asked for, or something forbids it.
        NONE = 0,
        /// There are multicast objects.
        HARDWARE = 1,
        /// There are none: the kernels do by the peers' own addresses what a switch would do.
        EMULATED = 2,
    }
);

open_enum!(
    /// Where a multicast kernel takes an element from.
    MulticastLoad {
        /// This rank's own source.
        OWN = 1,
        /// Every member's source, reduced.
        REDUCED = 2,
    }
);

open_enum!(
    /// Where a multicast kernel stores an element.
    MulticastStore {
        /// In this rank's own destination.
        OWN = 1,
        /// In every member's.
        ALL = 2,
    }
);

/// What a multicast kernel does between two barriers of a group, whose words are raised at all members at
/// once: it loads `count` elements and stores them.
///
/// Edges that no multicast access is narrow enough for, and everything where it is emulated, go by the
/// members' own addresses; so these are always there.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct MulticastArguments {
    /// Who takes part.
    pub group: CollectiveGroup,
    /// The members' slots under one address; 0 where multicast is emulated.
    pub slots: DeviceAddress,
    /// The members' sources under one address; 0 where multicast is emulated, or nothing is reduced.
    pub source: DeviceAddress,
    /// The members' destinations under one address; 0 where multicast is emulated, or only the own one is
    /// written.
    pub destination: DeviceAddress,
    /// Each member's elements, as this device addresses them; where nothing is reduced, only this rank's.
    pub sources: [DeviceAddress; MAX_RANKS],
    /// Each member's destination; where only the own one is written, only that.
    pub destinations: [DeviceAddress; MAX_RANKS],
    /// Elements that this rank handles; may be 0.
    pub count: u64,
    /// What they are.
    pub element: ElementType,
    /// How they become one.
    pub reduce: ReduceOperation,
    /// Where they come from.
    pub load: MulticastLoad,
    /// Where they go.
    pub store: MulticastStore,
}
