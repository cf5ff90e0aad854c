//! Multicast: none, since AMD's links have no switch that reduces or broadcasts.

use crate::instance::HipBackend;
use symmem_core::backend::WithoutMulticastObjects;
use symmem_core::backend::abi::MulticastSupportCode;

impl WithoutMulticastObjects for HipBackend {
    const REASON: &'static str = "AMD's GPUs have no multicast";

    fn support(&self) -> MulticastSupportCode {
        MulticastSupportCode::NONE
    }
}
