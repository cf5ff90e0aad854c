//! Multicast: one address that reaches the same bytes of every member. A switch reduces what is loaded from the
//! address and copies what is stored there to all members.

use super::collectives::{CollectiveGroup, ElementTypeCode, ReduceOpCode};
use super::forms::open_enum;
use super::handles::DeviceAddress;
use super::limits::MAX_RANKS;

open_enum!(
    /// Whether collectives can use multicast addresses.
    MulticastSupportCode {
        /// No: the device lacks it, nobody asked for it, or a setting forbids it.
        NONE = 0,
        /// Yes: there are multicast objects.
        HARDWARE = 1,
        /// No multicast objects, but kernels do the switch's work through the peers' own addresses.
        EMULATED = 2,
    }
);

open_enum!(
    /// The source that a multicast kernel loads from.
    MulticastLoad {
        /// This rank's own source.
        OWN = 1,
        /// Every member's source, reduced.
        REDUCED = 2,
    }
);

open_enum!(
    /// The destination that a multicast kernel stores to.
    MulticastStore {
        /// This rank's own destination.
        OWN = 1,
        /// Every member's destination.
        ALL = 2,
    }
);

/// Arguments of a multicast kernel: between two barriers of a group, whose words are raised at all members with one
/// store, it loads `count` elements and stores them.
///
/// Edges that are too narrow for a multicast access, and all data if multicast is emulated, go through the members'
/// own addresses, which are therefore always given.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct MulticastArguments {
    /// The participating ranks.
    pub group: CollectiveGroup,
    /// Multicast address of the members' slots; 0 if multicast is emulated.
    pub slots: DeviceAddress,
    /// Multicast address of the members' sources; 0 if multicast is emulated or nothing is reduced.
    pub source: DeviceAddress,
    /// Multicast address of the members' destinations; 0 if multicast is emulated or only the own destination is
    /// written.
    pub destination: DeviceAddress,
    /// Each member's source as this device addresses it; only this rank's if nothing is reduced.
    pub sources: [DeviceAddress; MAX_RANKS],
    /// Each member's destination; only this rank's if only that is written.
    pub destinations: [DeviceAddress; MAX_RANKS],
    /// Number of elements that this rank handles; may be 0.
    pub count: u64,
    /// Type of the elements.
    pub element: ElementTypeCode,
    /// Reduction operator.
    pub reduce: ReduceOpCode,
    /// The source.
    pub load: MulticastLoad,
    /// The destination.
    pub store: MulticastStore,
}
