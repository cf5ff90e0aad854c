//! What two threads of a rank do, while a third drops a buffer and a graph.

use crate::call::Id;
use crate::place::{Place, pick};
use crate::plan::{Action, Side};
use crate::program::{Act, Operation};
use crate::usage::{Resource, Usage};

impl Place {
    /// Plans two sides that share nothing, and what is dropped beside them.
    pub fn threads(
        &mut self,
        first: &[Operation],
        second: &[Operation],
        dropped: usize,
        fresh: &mut dyn FnMut() -> Id,
    ) {
        // The ranks would compare the calls of both threads in different orders.
        if self.checked {
            return;
        }
        let one = self.stream(0, fresh);
        if self.streams.len() < 2 {
            self.act(&Act::Stream, None, fresh);
        }
        let &[_, two, ..] = &self.streams[..] else {
            return;
        };
        let mut sides = [one, two].map(|stream| Side {
            stream,
            calls: Vec::new(),
            read: None,
        });
        let mut used: Vec<(Resource, bool)> = Vec::new();
        for (side, operations) in sides.iter_mut().zip([first, second]) {
            let mut own = Vec::new();
            let resolved = operations.iter().filter_map(|one| self.resolve(one));
            for call in resolved.collect::<Vec<_>>() {
                let resources = self.resources(&call);
                let apart = !Usage::conflict(&used, &resources);
                if apart && self.order(side.stream, &resources) {
                    self.memory.apply(&call);
                    own.extend(resources);
                    side.calls.push(call);
                }
            }
            used.extend(own);
            let moves = side.calls.iter().rfind(|call| self.moves(call));
            let read = moves.map(|call| call.to.buffer);
            side.read = read.map(|id| (id, self.memory.bytes[&id].clone()));
        }
        let buffer = pick(&self.buffers, dropped).map(|held| held.id);
        let buffer =
            buffer.filter(|&id| !used.iter().any(|(used, _)| *used == Resource::Buffer(id)));
        let graph = pick(&self.graphs, dropped);
        let graph = graph.filter(|&id| !used.iter().any(|(used, _)| *used == Resource::Graph(id)));
        if let Some(id) = buffer {
            self.give_up(id, self.all());
        }
        if let Some(id) = graph {
            self.received_by(id);
        }
        self.graphs.retain(|&other| Some(other) != graph);
        let [first, second] = sides;
        self.actions.push(Action::Threads {
            first,
            second,
            buffer,
            graph,
        });
    }
}
