//! The engine: all queues' and graphs' commands over the wires. Whoever holds its lock advances it.

use super::command::Command;
use super::fault::Fault;
use super::lane::Lane;
use super::runner::Runner;
use super::section::Section;
use super::staged::Serves;
use super::wires::Wires;
use crate::base::lock::lock;
use std::sync::Arc;
use std::time::{Duration, Instant};
use symmem_ucx::Poll;

/// Time that closing connections by force may take.
const CLOSE: Duration = Duration::from_millis(500);

struct RunningLane {
    lane: Arc<Lane>,
    runner: Runner,
}

struct RunningSection {
    section: Arc<Section>,
    commands: Arc<[Command]>,
    runner: Runner,
    /// Number of runs that are complete.
    runs: u32,
    active: bool,
}

/// What a step of the engine found.
#[derive(Clone, Copy, Debug, Default)]
pub struct Outlook {
    /// Something happened.
    pub moved: bool,
    /// A command waits for a stream, which only a look at its word tells.
    pub armed: bool,
    /// Commands are under way.
    pub busy: bool,
    /// Number of commands of queues that have become complete.
    pub completed: usize,
    /// A command was not begun, since the communicator has failed.
    pub stopped: bool,
}

/// The engine of one rank.
pub struct Engine {
    /// The connections.
    pub wires: Wires,
    serves: Serves,
    lanes: Vec<RunningLane>,
    sections: Vec<RunningSection>,
    /// Tells whether the work in front of a command is to be trusted. Asked after the stream has started the command: a
    /// stream also passes a wait that it gave up, and what stands behind it must not reach another node.
    is_sound: Box<dyn Fn() -> bool + Send>,
}

impl Engine {
    /// Makes an engine without commands.
    pub fn new(wires: Wires) -> Self {
        Self {
            wires,
            serves: Serves::default(),
            lanes: Vec::new(),
            sections: Vec::new(),
            is_sound: Box::new(|| true),
        }
    }

    /// Begins commands only while `is_sound`.
    pub fn guarded(self, is_sound: impl Fn() -> bool + Send + 'static) -> Self {
        Self {
            is_sound: Box::new(is_sound),
            ..self
        }
    }

    /// Adds a queue.
    pub fn add_lane(&mut self, lane: Arc<Lane>) {
        self.lanes.push(RunningLane {
            lane,
            runner: Runner::default(),
        });
    }

    /// Adds a section of a graph.
    pub fn add_section(&mut self, section: Arc<Section>) {
        self.sections.push(RunningSection {
            commands: section.commands(),
            section,
            runner: Runner::default(),
            runs: 0,
            active: false,
        });
    }

    /// Advances everything as far as possible without waiting.
    ///
    /// # Errors
    /// The first failure. The engine cannot be used any more then; see [`Engine::abandon`].
    pub fn step(&mut self) -> Result<Outlook, Fault> {
        let mut outlook = Outlook::default();
        // Commands first, so that a caller that has just enqueued one sends at once.
        for progressed in [false, true] {
            if progressed {
                let progressed = self.wires.progress();
                let served = self.serves.advance(&mut self.wires);
                match progressed.and_then(|progressed| Ok(progressed | served?)) {
                    Ok(true) => outlook.moved = true,
                    Ok(false) => break,
                    Err(fault) => return Err(self.blame(fault)),
                }
            }
            outlook.armed = self.wires.awaits_device();
            outlook.busy = self.wires.is_busy();
            self.advance_lanes(&mut outlook)?;
            if !outlook.stopped {
                self.advance_sections(&mut outlook)?;
            }
            if outlook.stopped {
                return Ok(outlook);
            }
        }
        self.lanes
            .retain(|one| !(one.lane.is_closed() && !one.lane.waits() && one.runner.is_idle()));
        self.sections
            .retain(|one| one.active || !one.section.is_closed());
        Ok(outlook)
    }

    fn advance_lanes(&mut self, outlook: &mut Outlook) -> Result<(), Fault> {
        for RunningLane { lane, runner } in &mut self.lanes {
            while let Some((number, command)) = lane.take() {
                if !(self.is_sound)() {
                    outlook.stopped = true;
                    return Ok(());
                }
                runner.push(number, command);
            }
            let before = runner.done();
            outlook.moved |= runner.advance(&mut self.wires)?;
            let completed = runner.done().wrapping_sub(before);
            if completed > 0 {
                lane.slot.finish(runner.done());
                outlook.completed += completed as usize;
            }
            outlook.armed |= lane.waits();
            outlook.busy |= !runner.is_idle();
        }
        Ok(())
    }

    fn advance_sections(&mut self, outlook: &mut Outlook) -> Result<(), Fault> {
        for one in &mut self.sections {
            if !one.active && one.section.slot.started() != one.runs {
                if !(self.is_sound)() {
                    outlook.stopped = true;
                    return Ok(());
                }
                one.active = true;
                for (index, command) in one.commands.iter().enumerate() {
                    one.runner.push(index as u32, command.clone());
                }
            }
            if one.active {
                outlook.moved |= one.runner.advance(&mut self.wires)?;
                if one.runner.is_idle() {
                    one.active = false;
                    one.runs = one.runs.wrapping_add(1);
                    one.section.slot.finish(one.runs);
                }
            }
            outlook.armed |= !one.active && one.section.launches() != one.runs;
            outlook.busy |= one.active;
        }
        Ok(())
    }

    /// Names the command that a failed connection ends.
    fn blame(&self, fault: Fault) -> Fault {
        let lanes = self.lanes.iter().map(|one| &one.runner);
        let sections = self.sections.iter().map(|one| &one.runner);
        lanes
            .chain(sections)
            .fold(fault, |fault, runner| match fault.operation {
                "connection" => runner.blame(fault),
                _ => fault,
            })
    }

    /// Drops all commands, closes the connections by force and releases the streams. From then on UCX uses nobody's
    /// memory. Blocks for at most half a second. Returns how many commands of queues were not complete.
    pub fn abandon(&mut self) -> usize {
        lock(&self.wires.inbox).close();
        let closing = self.wires.close();
        let start = Instant::now();
        while start.elapsed() < CLOSE
            && closing
                .iter()
                .any(|one| matches!(one.poll(), Poll::Pending))
        {
            self.wires.worker().progress();
        }
        let mut left = 0;
        for RunningLane { lane, runner } in &mut self.lanes {
            runner.clear();
            left += lane.abandon() as usize;
        }
        for one in &mut self.sections {
            one.runner.clear();
            // Later replays leave by the abort word.
            one.section.slot.finish(one.section.launches());
        }
        left
    }
}
