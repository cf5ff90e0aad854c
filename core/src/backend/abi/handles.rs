//! Handles: what an open backend gives names to.

use super::forms::handle;

handle!(
    /// An address a device (or, on the host backend, a processor) can load and store.
    DeviceAddress
);
handle!(
    /// A queue of ordered work. On a GPU it is the driver's own stream handle.
    RawStream
);
handle!(
    /// A point in a stream's work.
    RawEvent
);
handle!(
    /// Captured work, not yet launchable.
    RawGraph
);
handle!(
    /// Captured work, instantiated: launchable any number of times.
    RawGraphExec
);
handle!(
    /// Loaded device code.
    RawModule
);
handle!(
    /// A kernel inside a loaded module.
    RawFunction
);
handle!(
    /// Memory this process allocated to share it.
    RawAllocation
);
handle!(
    /// A peer's allocation as this process sees it.
    RawMapping
);
handle!(
    /// A communicator of the vendor's library of collectives.
    RawVendor
);
handle!(
    /// A multicast object: one address behind which every member's memory lies.
    RawMulticast
);
