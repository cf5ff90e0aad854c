//! Multicast on the host: no objects, since a processor has no address behind which several memories lie.
//! Its collectives can go by the peers' own addresses as if there were one, for those who ask for that.

use super::HostBackend;
use crate::backend::WithoutMulticastObjects;
use crate::backend::abi::MulticastSupport;

/// Whether the environment asks for multicast collectives without a switch.
pub(super) fn support() -> MulticastSupport {
    match std::env::var("SYMMEM_MULTICAST") {
        Ok(text) if text.trim().eq_ignore_ascii_case("emulate") => MulticastSupport::EMULATED,
        _ => MulticastSupport::NONE,
    }
}

impl WithoutMulticastObjects for HostBackend {
    const REASON: &'static str = "a processor has no multicast addresses; SYMMEM_MULTICAST=emulate has its collectives without them";

    fn support(&self) -> MulticastSupport {
        self.multicast
    }
}
