//! Which streams may still use what.

use crate::call::Id;
use std::collections::{BTreeMap, BTreeSet};

/// What only one stream at a time may change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Resource {
    /// All ranks' copies of a buffer.
    Buffer(Id),
    /// A channel of collectives, of a group or the world.
    Channel(Option<Id>, u32),
    /// A channel of barriers and signals.
    Barrier(u32),
    /// A buffer that peers receive from: a receiver that gives its handle up meanwhile is refused.
    Received(Id),
    /// A graph, whose launches run one after the other.
    Graph(Id),
}

/// The use of each resource by streams, since each was last waited for.
#[derive(Default)]
pub struct Usage(BTreeMap<Resource, BTreeMap<Id, bool>>);

impl Usage {
    /// Returns the streams that have to be waited for before `stream` uses `resources`; true means that it changes one.
    pub fn conflicts(&self, stream: Id, resources: &[(Resource, bool)]) -> BTreeSet<Id> {
        let mut found = BTreeSet::new();
        for (resource, changes) in resources {
            let users = self.0.get(resource).into_iter().flatten();
            let others =
                users.filter(|(other, changed)| **other != stream && (*changes || **changed));
            found.extend(others.map(|(other, _)| *other));
        }
        found
    }

    /// Whether two lists of uses exclude each other.
    pub fn conflict(one: &[(Resource, bool)], other: &[(Resource, bool)]) -> bool {
        let meets = |(resource, changes): &(Resource, bool)| {
            other
                .iter()
                .any(|(other, changed)| other == resource && (*changes || *changed))
        };
        one.iter().any(meets)
    }

    /// Returns the streams that use one of these.
    pub fn users(&self, wanted: impl Fn(Resource) -> bool) -> BTreeSet<Id> {
        let used = self.0.iter().filter(|(resource, _)| wanted(**resource));
        used.flat_map(|(_, users)| users.keys().copied()).collect()
    }

    /// Notes that a stream uses resources.
    pub fn add(&mut self, stream: Id, resources: &[(Resource, bool)]) {
        for (resource, changes) in resources {
            *self
                .0
                .entry(*resource)
                .or_default()
                .entry(stream)
                .or_default() |= changes;
        }
    }

    /// Notes that a stream is idle on all ranks.
    pub fn done(&mut self, stream: Id) {
        for users in self.0.values_mut() {
            users.remove(&stream);
        }
    }
}
