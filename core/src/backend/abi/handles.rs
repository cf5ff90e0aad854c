//! The handles of an open backend's objects.

use super::forms::handle;

handle!(
    /// An address that a device (on the host backend, a processor) can load from and store to.
    DeviceAddress
);
handle!(
    /// A queue of ordered work. On a GPU it is the driver's stream handle.
    RawStream
);
handle!(
    /// A point in a stream's work.
    RawEvent
);
handle!(
    /// Captured work that is not yet instantiated.
    RawGraph
);
handle!(
    /// Instantiated captured work, which can be launched any number of times.
    RawGraphExec
);
handle!(
    /// Loaded device code.
    RawModule
);
handle!(
    /// A kernel in a loaded module.
    RawFunction
);
handle!(
    /// An allocation of this process that peers can map.
    RawAllocation
);
handle!(
    /// A peer's allocation, mapped into this process.
    RawMapping
);
handle!(
    /// A communicator of NCCL or RCCL.
    RawNccl
);
handle!(
    /// A multicast object: one address that reaches the same bytes of every member.
    RawMulticast
);
