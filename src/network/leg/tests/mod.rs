//! Legs against a mock of the network that delays and reorders whatever it may.

mod cases;
mod mock;
mod reference;
