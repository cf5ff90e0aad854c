//! The multicast doctor: describes the machine and the live test, and has the parts of the test.
//!
//! [`Machine`] and [`Steps`] touch no more than `symmem info` does: they look up none of the driver's multicast
//! functions. Ranks run the parts of the test: [`bring_up_and_down`] sets up and finalizes communicators,
//! [`symmem_conformance`] checks the two multicast algorithms, [`symmem_bench`] measures them.

mod bring_up;
mod machine;
mod report;
mod steps;

pub use bring_up::{BringUp, bring_up_and_down};
pub use machine::{Device, Machine, Switch};
pub use report::{Report, SCHEMA, Trial};
pub use steps::Steps;
