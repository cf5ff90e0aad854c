//! Multicast on the host: there are no objects, because a processor has no address that reaches several memories. On
//! request, the collectives emulate it through the peers' own addresses.

use crate::backend::WithoutMulticastObjects;
use crate::backend::abi::MulticastSupportCode;
use crate::host::backend::HostBackend;

impl WithoutMulticastObjects for HostBackend {
    const REASON: &'static str = "a processor has no multicast addresses; SYMMEM_MULTICAST=emulate runs \
        multicast collectives without them";

    fn support(&self) -> MulticastSupportCode {
        self.multicast
    }
}
