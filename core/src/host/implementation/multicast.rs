//! Multicast on the host: no objects, since a processor has no address behind which several memories lie.
//! Its collectives can go by the peers' own addresses as if there were one, for those who ask for that.

use crate::backend::WithoutMulticastObjects;
use crate::backend::abi::MulticastSupport;
use crate::host::backend::HostBackend;

impl WithoutMulticastObjects for HostBackend {
    const REASON: &'static str = "a processor has no multicast addresses; SYMMEM_MULTICAST=emulate has its collectives without them";

    fn support(&self) -> MulticastSupport {
        self.multicast
    }
}
