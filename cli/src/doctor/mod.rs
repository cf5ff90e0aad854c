//! The multicast doctor: describes the machine and the live test, and has the parts of the test.
//!
//! [`Machine`] and [`Steps`] touch no more than `symmem info` does: they look up none of the driver's multicast
//! functions. Ranks run the parts of the test: [`come_and_go`] sets up and finalizes communicators,
//! [`symmem_conformance`] checks the two multicast algorithms, [`symmem_bench`] measures them.

mod coming;
mod machine;
mod report;
mod steps;

pub use coming::{Coming, come_and_go};
pub use machine::{Device, Machine, Switch};
pub use report::{Report, SCHEMA, Trial};
pub use steps::Steps;
