//! Values under keys, and the ranks that wait for one to be set.

use std::collections::HashMap;
use std::time::Instant;

use crate::bootstrap::coordinator::action::{Action, Token};
use crate::bootstrap::failure::Failure;
use crate::bootstrap::reply::Reply;

/// A rank that waits for a value.
pub(super) struct Getter {
    pub(super) token: Token,
    pub(super) request: u64,
    pub(super) deadline: Instant,
}

#[derive(Default)]
pub(super) struct Values {
    set: HashMap<String, Vec<u8>>,
    getters: HashMap<String, Vec<Getter>>,
}

impl Values {
    /// Returns when [`Values::expire`] has something to do next.
    pub(super) fn next_deadline(&self) -> Option<Instant> {
        let getters = self.getters.values().flatten();
        getters.map(|getter| getter.deadline).min()
    }

    /// Answers the ranks whose deadlines have passed: their value was not set in time.
    pub(super) fn expire(&mut self, now: Instant, actions: &mut Vec<Action>) {
        self.getters.retain(|_, getters| {
            getters.retain(|getter| {
                if getter.deadline <= now {
                    let failure = Failure::TimedOut {
                        missing: Vec::new(),
                    };
                    let reply = Reply::Failure(failure);
                    actions.push(Action::reply(getter.token, getter.request, &reply));
                }
                getter.deadline > now
            });
            !getters.is_empty()
        });
    }

    /// Forgets the waiting ranks, which are notified by other means.
    pub(super) fn forget_getters(&mut self) {
        self.getters.clear();
    }

    /// Stores `value` under `key` and sends it to the ranks that wait for it.
    pub(super) fn set(&mut self, key: String, value: Vec<u8>, actions: &mut Vec<Action>) {
        for getter in self.getters.remove(&key).unwrap_or_default() {
            let reply = Reply::Value {
                bytes: value.clone(),
            };
            actions.push(Action::reply(getter.token, getter.request, &reply));
        }
        self.set.insert(key, value);
    }

    /// Sends the value under `key`, at once or when it is set.
    pub(super) fn get(&mut self, key: String, getter: Getter, actions: &mut Vec<Action>) {
        match self.set.get(&key) {
            Some(bytes) => {
                let reply = Reply::Value {
                    bytes: bytes.clone(),
                };
                actions.push(Action::reply(getter.token, getter.request, &reply));
            }
            None => self.getters.entry(key).or_default().push(getter),
        }
    }

    /// Adds `amount` to the counter under `key` and answers with the sum.
    pub(super) fn add(
        &mut self,
        token: Token,
        request: u64,
        key: String,
        amount: i64,
        actions: &mut Vec<Action>,
    ) {
        let before = match self.set.get(&key) {
            None => Some(0),
            Some(bytes) => bytes.as_slice().try_into().ok().map(i64::from_le_bytes),
        };
        let Some(before) = before else {
            let reply = Reply::Failure(Failure::NotACounter { key });
            actions.push(Action::reply(token, request, &reply));
            return;
        };
        let value = before.wrapping_add(amount);
        actions.push(Action::reply(token, request, &Reply::Sum { value }));
        self.set(key, value.to_le_bytes().to_vec(), actions);
    }
}
