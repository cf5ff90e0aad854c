//! A rank's context while its communicator lives: its device, the agreements with the other ranks, resources
//! given up, and what ends with it.

use crate::backend::abi::HostMemory;
use crate::base::abandon::{Abandoned, run_within};
use crate::base::error::{Error, Result};
use crate::base::lock::lock;
use crate::base::placement::Placement;
use crate::bootstrap::Bootstrap;
use crate::rank::agreement::Agreement;
use crate::rank::allocation::Allocation;
use crate::rank::driver::Driver;
use crate::rank::release::{Held, ReleaseQueue, Resource};
use std::mem::ManuallyDrop;
use std::ops::Deref;
use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

/// Deadlines that every rank agreed on.
#[derive(Clone, Copy, Debug)]
pub struct Deadlines {
    /// Deadline of every wait for a peer, counted from the kernel's first wait that is not answered within
    /// microseconds; of a wait for a signal in host memory, from the call.
    pub wait: Duration,
    /// Deadline of every step in which ranks set something up together.
    pub setup: Duration,
}

/// Time after which the teardown itself is abandoned: a call of the driver has not returned.
const TEARDOWN: Duration = Duration::from_secs(7);

/// Something of a higher layer that ends with the context.
pub trait Closing: Send + Sync {
    /// Called before allocations are unmapped, when no work of this rank is left.
    fn before_unmap(&self, _driver: &Driver) {}
    /// Called once the allocations of buffers are unmapped.
    fn close(&self, _driver: &Driver) {}
    /// Called once every allocation is freed. Returns whether all of it is released.
    fn give_back(&self, _driver: &Driver) -> bool {
        true
    }
    /// Called last, whether or not everything could be freed.
    fn end(&self, _driver: &Driver) {}
}

/// A rank's context; torn down when the last handle is dropped.
pub struct Context {
    state: ManuallyDrop<ContextState>,
    /// Dropped after the rest, and on the thread that drops the context: a panicking rank has not left in good
    /// order.
    _bootstrap: Arc<Bootstrap>,
}

/// The parts of a context. Their drop is the teardown.
pub struct ContextState {
    pub driver: Driver,
    pub deadlines: Deadlines,
    pub agreement: Agreement,
    /// Which ranks share a node.
    pub placement: Arc<Placement>,
    /// Resources that were given up.
    pub released: ReleaseQueue,
    /// Number of buffers with a live handle.
    pub live_buffers: AtomicUsize,
    pub finalized: AtomicBool,
    /// Whether the teardown has begun.
    pub leaving: Arc<AtomicBool>,
    /// Whether a rank that still has its communicator missed the setup deadline: the teardown then does not
    /// wait for it once more.
    pub waited_enough: AtomicBool,
    /// Whether each peer is a thread of this process.
    same_process: Vec<bool>,
    /// The abort word and the wait record.
    pub(in crate::rank) words: HostMemory,
    /// Allocations that live as long as the context.
    pub(in crate::rank) permanent: Mutex<Vec<Arc<Allocation>>>,
    pub(in crate::rank) closing: Mutex<Vec<Arc<dyn Closing>>>,
    pub(in crate::rank) watcher: Mutex<Option<JoinHandle<()>>>,
}

impl Context {
    /// Makes the context of a rank that has opened its device and met the others.
    pub fn new(
        driver: Driver,
        deadlines: Deadlines,
        agreement: Agreement,
        same_process: Vec<bool>,
        words: HostMemory,
    ) -> Self {
        Self {
            _bootstrap: agreement.bootstrap().clone(),
            state: ManuallyDrop::new(ContextState {
                driver,
                deadlines,
                placement: agreement.bootstrap().placement().clone(),
                agreement,
                released: ReleaseQueue::default(),
                live_buffers: AtomicUsize::new(0),
                finalized: AtomicBool::new(false),
                leaving: Arc::default(),
                waited_enough: AtomicBool::new(false),
                same_process,
                words,
                permanent: Mutex::default(),
                closing: Mutex::default(),
                watcher: Mutex::default(),
            }),
        }
    }

    /// Keeps `allocation` as long as the context lives.
    pub fn keep(&self, allocation: Arc<Allocation>) {
        lock(&self.permanent).push(allocation);
    }

    /// Keeps `allocation`, and releases it before those kept so far: what is attached to it may use them.
    pub fn keep_above(&self, allocation: Arc<Allocation>) {
        lock(&self.permanent).insert(0, allocation);
    }

    /// Makes `closing` end with the context; the last added ends first.
    pub fn on_close(&self, closing: Arc<dyn Closing>) {
        lock(&self.closing).push(closing);
    }

    /// Takes a resource whose handle is gone, and releases the resources that are no longer used. In a fork the
    /// resource is its parent's, and nothing happens.
    pub fn give_up(&self, held: Held) {
        if self.health.is_fork() {
            std::mem::forget(held);
            return;
        }
        self.released.push(held);
        self.reclaim();
    }

    /// Returns whether a peer is a thread of this process.
    pub fn is_same_process(&self, peer: usize) -> bool {
        self.same_process[peer]
    }

    /// Checks that there is such a rank, and that its memory can be addressed from here.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if there is none; [`Error::Unsupported`] if it is on another node.
    #[inline]
    pub fn check_reach(&self, peer: usize, operation: &'static str) -> Result<()> {
        self.check_peer(peer, operation)?;
        match self.placement.share_node(peer, self.rank) {
            true => Ok(()),
            false => Err(self.out_of_reach(peer, operation)),
        }
    }

    #[cold]
    fn out_of_reach(&self, peer: usize, operation: &'static str) -> Error {
        let node = |rank| self.placement.node(rank);
        Error::Unsupported {
            rank: self.rank,
            operation,
            message: format!(
                "rank {peer} is on node {}, and this rank, on node {}, addresses the memory of ranks of its own node \
                 only; see `Communicator::peers` for the node of each rank",
                node(peer),
                node(self.rank)
            ),
        }
    }

    /// Checks that all ranks are on one node, for an operation whose kernels address all of them. `instead` says what to
    /// do otherwise.
    ///
    /// # Errors
    /// [`Error::Unsupported`].
    #[inline]
    pub fn check_one_node(&self, operation: &'static str, instead: &str) -> Result<()> {
        check_one_node(self.rank, &self.placement, operation, instead)
    }

    /// Starts the thread that watches over peers.
    pub fn start_watcher(&self) -> std::io::Result<()> {
        *lock(&self.watcher) = Some(self.health.start_watcher()?);
        Ok(())
    }
}

impl ContextState {
    /// Releases resources that were given up and are no longer used. Costs two atomic loads if there are none.
    pub fn reclaim(&self) {
        if !self.health.is_fork() {
            self.released.reclaim(&self.driver);
        }
    }
}

impl Deref for Context {
    type Target = ContextState;

    #[inline]
    fn deref(&self) -> &ContextState {
        &self.state
    }
}

impl Deref for ContextState {
    type Target = Driver;

    #[inline]
    fn deref(&self) -> &Driver {
        &self.driver
    }
}

impl Drop for Context {
    /// Releases everything, on a thread that is abandoned if a call of the driver never returns. Takes at most
    /// [`TEARDOWN`], and the farewell to the other ranks. Does nothing in a fork, which has neither the threads of
    /// the backend nor the right to release what its parent uses.
    fn drop(&mut self) {
        if self.health.is_fork() {
            return;
        }
        let rank = self.rank;
        // SAFETY: taken once, here, where `self` ends.
        let state = unsafe { ManuallyDrop::take(&mut self.state) };
        // If no thread can be started, the closure is dropped, which drops `state` here.
        if let Err(error @ Abandoned::Late(_)) =
            run_within("symmem-teardown", TEARDOWN, move || drop(state))
        {
            tracing::error!(rank, %error, "teardown did not return; its resources stay allocated");
        }
    }
}

/// Checks that the ranks of `placement` are on one node: see [`Context::check_one_node`].
///
/// # Errors
/// [`Error::Unsupported`].
#[inline]
pub fn check_one_node(
    rank: usize,
    placement: &Placement,
    operation: &'static str,
    instead: &str,
) -> Result<()> {
    match placement.spans_nodes() {
        false => Ok(()),
        true => Err(Error::Unsupported {
            rank,
            operation,
            message: format!(
                "its {} ranks are on {} nodes, and its kernels address the memory of ranks of one node; {instead}",
                placement.world(),
                placement.nodes()
            ),
        }),
    }
}

/// Frees an allocation collectively: unmapped by all ranks, then freed by all. Blocks for at most the setup
/// deadline in each step.
///
/// The caller holds the only reference to it, apart from graphs.
///
/// # Errors
/// The errors of any collective call; [`Error::InvalidArgument`] if a graph holds it.
pub fn free(context: &Context, allocation: &Arc<Allocation>) -> Result<()> {
    let mut round = context.agreement.begin("free");
    round.compare(&[(
        "the buffer (by order of allocation)",
        allocation.number.to_string(),
    )])?;
    let unused = context
        .wait_all_idle(context.deadlines.setup)
        .and_then(|()| {
            // Dropped graphs are released now, since nothing runs any more.
            context.reclaim();
            if Arc::strong_count(allocation) == 1 {
                // Another thread of this rank may be receiving from it: it is retired, whatever the other ranks
                // vote.
                return allocation.retire(context, context.deadlines.setup);
            }
            Err(Error::InvalidArgument {
                rank: context.rank,
                operation: "free",
                message: "a graph uses the buffer; drop the graph first".into(),
            })
        });
    round.vote(unused)?;
    // The end of some memory waits for all work on the device, so also for other communicators' kernels that wait for
    // peers. Their peers may wait for this call, so such memory is left to the release queue.
    let now = !allocation.waits_for_device() || context.neighbors_are_quiet();
    if now {
        allocation.unmap_retired(context);
    }
    round.vote(Ok(()))?;
    if !(now && allocation.free_unmapped(context)) {
        context.give_up(allocation.clone());
    }
    Ok(())
}
