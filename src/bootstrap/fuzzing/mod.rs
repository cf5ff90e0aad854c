//! Checks of the store's messages, which [`crate::fuzzing`] collects. They are here because messages are private.

pub mod messages;
pub mod store;
