//! The fake runtimes and libraries, which the tests of all crates share.

#[allow(dead_code, reason = "not every test binary uses every fake")]
#[path = "../../support/fakes.rs"]
mod fakes;
#[allow(dead_code, reason = "as above")]
#[path = "../../support/hip.rs"]
mod hip;

pub use fakes::fake_driver_and_libraries;
pub use hip::{Release, fake_hip};
