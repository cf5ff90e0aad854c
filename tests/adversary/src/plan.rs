//! Turns a program into a plan: every number resolved, every byte that a read must return known, and a wait wherever two
//! streams would touch the same memory or channel.

use crate::call::{Call, Id};
use crate::place::Place;
use crate::program::*;

/// What a rank does.
#[derive(Clone, Debug)]
#[allow(missing_docs, reason = "as in the program, with everything resolved")]
pub enum Action {
    Allocate {
        id: Id,
        element: Element,
        length: usize,
    },
    Drop {
        id: Id,
        ranks: u8,
    },
    /// `used`: by a live graph, so that the call may be refused.
    Free {
        id: Id,
        used: bool,
    },
    Stream {
        id: Id,
    },
    DropStream {
        id: Id,
    },
    Enqueue {
        stream: Id,
        call: Call,
    },
    Capture {
        stream: Id,
        id: Id,
        calls: Vec<Call>,
    },
    DropGraph {
        id: Id,
    },
    Write {
        stream: Id,
        buffer: Id,
        at: usize,
        /// By rank.
        bytes: Vec<Vec<u8>>,
    },
    Read {
        stream: Id,
        buffer: Id,
        at: usize,
        /// By rank; `None` where a rank has no handle.
        bytes: Vec<Option<Vec<u8>>>,
    },
    Synchronize {
        stream: Id,
    },
    /// Each rank waits for its stream, then for all ranks.
    Ordered {
        stream: Id,
    },
    HostBarrier,
    HostAllGather {
        bytes: usize,
    },
    Split {
        id: Id,
        colors: [u8; RANKS],
        keys: [u8; RANKS],
        members: Vec<Vec<usize>>,
    },
    DropGroup {
        id: Id,
    },
    Threads {
        first: Side,
        second: Side,
        buffer: Option<Id>,
        graph: Option<Id>,
    },
    Refused {
        refusal: Refusal,
        stream: Id,
        buffer: Id,
        /// Of the other communicator.
        other: Option<Id>,
    },
    Disagree {
        disagreement: Disagreement,
        rank: usize,
        buffers: Option<(Id, Id)>,
    },
    Scene {
        scene: Scene,
        stream: Id,
        /// A buffer of the next communicator.
        dropped: Option<Id>,
    },
}

/// What one of two threads does.
#[derive(Clone, Debug)]
pub struct Side {
    /// On which stream.
    pub stream: Id,
    /// What it enqueues.
    pub calls: Vec<Call>,
    /// What it reads then: a whole buffer, and its bytes by rank.
    pub read: Option<(Id, Vec<Vec<u8>>)>,
}

/// What all ranks do in a phase, in order; the first number is the communicator.
pub struct PhasePlan {
    /// Whether calls of each communicator are compared.
    pub checked: Vec<bool>,
    /// The actions.
    pub actions: Vec<(usize, Action)>,
    /// How each communicator ends.
    pub endings: Vec<Ending>,
    /// Decides the order of drops.
    pub order: u64,
}

/// Plans a program.
pub fn plan(program: &Program) -> Vec<PhasePlan> {
    let mut next = 0;
    // A rebuilt communicator keeps its options.
    let mut rebuilt: Vec<Option<bool>> = vec![None; program.communicators];
    let mut phases = Vec::new();
    for phase in &program.phases {
        let checked: Vec<bool> = rebuilt
            .iter()
            .map(|before| before.unwrap_or(phase.checked))
            .collect();
        let planned = of_phase(program, phase, checked, &mut next);
        for (on, ending) in planned.endings.iter().enumerate() {
            let good = matches!(ending, Ending::Finalize | Ending::Drop);
            rebuilt[on] = (!good).then_some(planned.checked[on]);
        }
        phases.push(planned);
    }
    phases
}

fn of_phase(program: &Program, phase: &Phase, checked: Vec<bool>, next: &mut Id) -> PhasePlan {
    let places = checked.iter();
    let mut places: Vec<Place> = places
        .map(|&checked| Place::new(program.world, checked))
        .collect();
    let mut actions = Vec::new();
    let fresh = &mut || {
        *next += 1;
        *next
    };
    for step in &phase.steps {
        let on = step.on % program.communicators;
        if let Act::Scene { scene, stream } = step.act {
            let next = (on + 1) % program.communicators;
            if matches!(scene, Scene::Registered { .. }) {
                let mut idle = true;
                for (on, place) in places.iter_mut().enumerate() {
                    idle &= place.idle();
                    actions.extend(place.actions.drain(..).map(|action| (on, action)));
                }
                if !idle {
                    continue;
                }
            }
            let (scene, dropped) = match scene {
                Scene::Blocked { dropped, freed } => {
                    let (id, unused) = places[next].dropped(dropped);
                    // The other communicator's streams alone have to become idle.
                    let freed = freed && unused && next != on;
                    (Scene::Blocked { dropped, freed }, id)
                }
                scene => (scene, None),
            };
            actions.extend(places[next].actions.drain(..).map(|action| (next, action)));
            places[on].scene(scene, stream, dropped, fresh);
            actions.extend(places[on].actions.drain(..).map(|action| (on, action)));
            continue;
        }
        let other = (program.communicators > 1).then(|| places[1 - on].buffers.first());
        let other = other.flatten().map(|buffer| buffer.id);
        let place = &mut places[on];
        place.act(&step.act, other, fresh);
        actions.extend(place.actions.drain(..).map(|action| (on, action)));
    }
    for (on, place) in places.iter_mut().enumerate() {
        place.read_all(fresh);
        actions.extend(place.actions.drain(..).map(|action| (on, action)));
    }
    let endings = phase.endings.iter().copied();
    let endings = endings.chain(std::iter::repeat(Ending::Finalize));
    let endings = endings.zip(&checked);
    let endings = endings.map(|(ending, &checked)| possible(ending, program.world, checked));
    PhasePlan {
        actions,
        endings: endings.collect(),
        order: phase.order,
        checked,
    }
}

/// Returns the ending, or another one where it cannot be had.
fn possible(ending: Ending, world: usize, checked: bool) -> Ending {
    match ending {
        Ending::Missing { .. } | Ending::Size { .. } | Ending::ReceiveDropped { .. }
            if world == 1 =>
        {
            Ending::Drop
        }
        // Where calls are compared, the host waits for a rank that does not come, and for the receiver.
        Ending::ReceiveDropped { rank, .. } | Ending::Missing { rank, .. } if checked => {
            Ending::Abort { rank, busy: false }
        }
        other => other,
    }
}
