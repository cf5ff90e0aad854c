//! Placeholder while the walls go up.

pub mod backend {
    //! The boundary between core and a backend.
    pub mod abi;
}
