//! Multicast on a machine whose owner asks: what is known of it, what a live test does, and the test.
//!
//! Looking ([`Machine`]) and telling ([`Steps`]) touch no more than `symmem info` does: not one of the driver's
//! functions for multicast is looked up. The test's parts are ranks' work: [`come_and_go`] makes and gives up
//! communicators, [`symmem_conformance`] checks the two algorithms, [`symmem_bench`] measures them.

mod coming;
mod machine;
mod report;
mod steps;

pub use coming::{Coming, come_and_go};
pub use machine::{Device, Machine, Switch};
pub use report::{Report, SCHEMA, Trial};
pub use steps::Steps;
