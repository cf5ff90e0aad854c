//! Health of a communicator: the page that all ranks map, the watcher, wait records.

pub(crate) mod control;
pub(crate) mod heartbeat;
pub(crate) mod host_waits;
pub(crate) mod record;
pub(crate) mod watcher;
pub(crate) mod words;
