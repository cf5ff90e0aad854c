//! What ranks leave behind: nothing, unless a call is still running or a rank has died.

use super::*;

/// Asserts that all ranks end well and broke no rule, so that nothing was released under the call that is stuck at one
/// rank. That rank leaves `left` to the end of its process; the others leave nothing.
#[track_caller]
pub fn ends_with_what_is_stuck(world: &mut World, stuck: usize, left: Left, what: &str) {
    for rank in &mut world.ranks {
        rank.ends_well();
    }
    for rank in &world.ranks {
        let left = if rank.number == stuck {
            left
        } else {
            Left::NOTHING
        };
        let number = rank.number;
        assert_eq!(world.report_of(rank), left.lines(), "{what}: rank {number}");
    }
}

/// What a rank leaves to the end of its process.
#[derive(Clone, Copy)]
pub struct Left {
    /// Whether the device is open.
    pub open: bool,
    /// Number of allocations.
    pub memory: usize,
    /// Whether the object has addresses, and whether it is mapped there.
    pub addresses: bool,
    pub mapped: bool,
    /// Whether the object exists, and how many allocations are bound to it.
    pub object: bool,
    pub bound: usize,
}

impl Left {
    pub const NOTHING: Self = Self {
        open: false,
        memory: 0,
        addresses: false,
        mapped: false,
        object: false,
        bound: 0,
    };
    pub const DEVICE: Self = Self {
        open: true,
        ..Self::NOTHING
    };
    pub const OBJECT: Self = Self {
        object: true,
        ..Self::DEVICE
    };

    /// The object, `memory` allocations, and `bound` of them bound to the object.
    pub const fn bound(memory: usize, bound: usize) -> Self {
        Self {
            memory,
            bound,
            ..Self::OBJECT
        }
    }

    /// The same, with the object mapped.
    pub const fn mapped(memory: usize, bound: usize) -> Self {
        Self {
            addresses: true,
            mapped: true,
            ..Self::bound(memory, bound)
        }
    }

    /// Returns the lines of the fake driver's report.
    fn lines(self) -> Vec<String> {
        let open = usize::from(self.open);
        let modules = places(&clean_calls()[0], "cuModuleLoadDataEx").len();
        let kinds = [
            ("contexts", open),
            ("allocation handles", self.memory),
            (
                "address reservations",
                self.memory + usize::from(self.addresses),
            ),
            ("mappings", self.memory + usize::from(self.mapped)),
            // The backend's own stream and modules.
            ("streams", open),
            ("modules", open * modules),
            ("multicast handles", self.object.into()),
            ("multicast bindings", self.bound),
        ];
        let left = kinds.into_iter().filter(|(_, count)| *count > 0);
        left.map(|(kind, count)| format!("live: {kind} {count}"))
            .collect()
    }
}

/// Returns the fake driver's complaints, except that the object is gone because its creator has just died.
pub fn complaints(world: &World, dead: usize) -> Vec<String> {
    let orphan = |line: &str| dead == 0 && line.contains("the multicast object is gone");
    let report = world.report();
    let lines = report.lines().filter(|line| !line.starts_with("process "));
    lines
        .filter(|line| !orphan(line))
        .map(str::to_owned)
        .collect()
}
