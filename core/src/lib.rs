//! The contract, the policy and the host backend of symmem. Knows no vendor.

pub mod backend {
    //! What a backend gives and how it is reached.
    pub mod abi;
}
pub mod bootstrap;
