//! Graphs: captured work that is instantiated and launched.

use std::sync::{Arc, Mutex};

use crate::call::{lock, put};
use crate::driver::{Kind, dangling, driver, new_handle};
use crate::error::{Code, Result};
use crate::streams::{self, Completion, usable};
use crate::work::{Runner, Work};

/// A piece of work, and the nodes it comes after.
#[derive(Clone)]
pub(crate) struct Node {
    pub work: Work,
    pub after: Vec<usize>,
}

/// The result of a capture.
pub(crate) struct Graph {
    pub nodes: Vec<Node>,
}

/// An instantiated graph.
pub(crate) struct Executable {
    nodes: Vec<Node>,
    /// The nodes, in order, as chains that run concurrently. Branches of a graph may wait for one another through
    /// peers, so running them one after the other could deadlock.
    chains: Vec<Vec<usize>>,
    /// The end of the last launch: launches of one executable never overlap.
    last: Mutex<Option<Arc<Completion>>>,
}

impl Executable {
    fn new(nodes: Vec<Node>) -> Self {
        let mut chains: Vec<Vec<usize>> = Vec::new();
        for (index, node) in nodes.iter().enumerate() {
            let follows = |chain: &&mut Vec<usize>| {
                chain.last().is_some_and(|tail| node.after.contains(tail))
            };
            match chains.iter_mut().find(follows) {
                Some(chain) => chain.push(index),
                None => chains.push(vec![index]),
            }
        }
        Self {
            nodes,
            chains,
            last: Mutex::default(),
        }
    }

    /// Returns the work of every node.
    pub fn nodes(&self) -> impl Iterator<Item = &Work> {
        self.nodes.iter().map(|node| &node.work)
    }

    /// Runs every node after those it depends on.
    pub fn run(&self, runner: &Runner) -> Result {
        let done: Vec<Completion> = self.nodes.iter().map(|_| Completion::default()).collect();
        let failed = Mutex::new(None);
        let run_chain = |chain: &[usize], runner: &Runner| {
            for &index in chain {
                let node = &self.nodes[index];
                node.after.iter().for_each(|&other| done[other].wait());
                // After a failure the remaining nodes are skipped but marked done, so that no branch waits for them.
                if lock(&failed).is_none()
                    && let Err(code) = node.work.run(runner)
                {
                    lock(&failed).get_or_insert(code);
                }
                done[index].finish();
            }
        };
        if let [chain] = &self.chains[..] {
            run_chain(chain, runner);
        } else {
            let place = crate::call::place();
            std::thread::scope(|scope| {
                for (branch, chain) in self.chains.iter().enumerate() {
                    let (place, run_chain) = (&place, &run_chain);
                    let runner = Runner {
                        branch,
                        ..runner.clone()
                    };
                    scope.spawn(move || {
                        crate::call::set_place(place.clone());
                        run_chain(chain, &runner);
                    });
                }
            });
        }
        lock(&failed).map_or(Ok(()), Err)
    }
}

/// Instantiates a graph.
pub fn instantiate(out: Option<&mut u64>, graph: u64, flags: u64) -> Result {
    let mut driver = driver()?;
    driver.current()?;
    let nodes = driver
        .graphs
        .get(&graph)
        .ok_or_else(|| dangling(Kind::Graph, graph))?
        .nodes
        .clone();
    if flags & !15 != 0 || out.is_none() {
        return Err(Code::INVALID_VALUE);
    }
    let handle = new_handle(Kind::GraphExec);
    driver
        .executables
        .insert(handle, Arc::new(Executable::new(nodes)));
    put(out, handle)
}

/// Uploads a graph to the device, which means nothing here.
pub fn upload(executable: u64, stream: u64) -> Result {
    let driver = driver()?;
    usable(&driver, stream)?;
    driver
        .executables
        .get(&executable)
        .ok_or_else(|| dangling(Kind::GraphExec, executable))
        .map(drop)
}

/// Launches a graph on a stream.
pub fn launch(executable: u64, stream: u64) -> Result {
    let mut driver = driver()?;
    let found = driver.executables.get(&executable).cloned();
    let executable = found.ok_or_else(|| dangling(Kind::GraphExec, executable))?;
    let after = lock(&executable.last).clone().into_iter().collect();
    let end = streams::submit_after(&mut driver, stream, Work::Graph(executable.clone()), after)?;
    if end.is_some() {
        *lock(&executable.last) = end;
    }
    Ok(())
}

/// Destroys an instantiated graph.
pub fn destroy_executable(executable: u64) -> Result {
    let mut driver = driver()?;
    let found = driver.executables.remove(&executable);
    found
        .ok_or_else(|| dangling(Kind::GraphExec, executable))
        .map(drop)
}

/// Destroys a graph.
pub fn destroy(graph: u64) -> Result {
    let mut driver = driver()?;
    driver
        .graphs
        .remove(&graph)
        .ok_or_else(|| dangling(Kind::Graph, graph))
        .map(drop)
}

/// Returns the number of nodes of a graph.
pub fn nodes(graph: u64, nodes: Option<&mut u64>, count: Option<&mut usize>) -> Result {
    let driver = driver()?;
    let graph = driver
        .graphs
        .get(&graph)
        .ok_or_else(|| dangling(Kind::Graph, graph))?;
    if nodes.is_some() {
        // Tests only count nodes; nodes have no handles here.
        return Err(Code::NOT_SUPPORTED);
    }
    put(count, graph.nodes.len())
}
