//! What collectives promise whatever the algorithm: ranks are threads on the host backend.

mod exchanges;
mod operations;
mod refusals;
mod streams;
mod world;
