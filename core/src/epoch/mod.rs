//! Signal epochs: the rules by which one rank signals another.
//!
//! A signal is a 32-bit word that only counts up and is never reset. Values are compared with wrapping arithmetic:
//! two epochs less than 2³¹ apart have an order. A waiter that sleeps counts itself beside the word, and the giver
//! checks that count after its write.
//!
//! The functions work on any [`Word`], so that loom runs the code that ships:
//! `RUSTFLAGS="--cfg loom" cargo test -p symmem-core --lib loom`.

pub(crate) mod lamport;
#[cfg(all(test, loom))]
mod loom_models;
mod rules;
#[cfg(all(test, not(loom)))]
mod tests;

pub use rules::{
    Outlook, Word, claim, complete, half_of, look, next, publish, publish_all, raise, reached,
    register_sleeper, unregister_sleeper,
};
