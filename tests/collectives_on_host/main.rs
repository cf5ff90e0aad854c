//! Guarantees of collectives that hold for every algorithm. Ranks are threads on the host backend.

mod exchanges;
mod launches;
mod operations;
mod refusals;
mod streams;
mod world;
