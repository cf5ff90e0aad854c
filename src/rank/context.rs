//! What a rank has while its communicator lives: its device, the agreements with the other ranks, what was given
//! up, and what ends with it.

use crate::backend::abi::HostMemory;
use crate::base::abandon::{Abandoned, run_within};
use crate::base::error::{Error, Result};
use crate::base::lock::lock;
use crate::bootstrap::Bootstrap;
use crate::rank::agreement::Agreement;
use crate::rank::allocation::Allocation;
use crate::rank::driver::Driver;
use crate::rank::release::{Held, ReleaseQueue};
use std::mem::ManuallyDrop;
use std::ops::Deref;
use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

/// Deadlines that every rank agreed on.
#[derive(Clone, Copy, Debug)]
pub struct Deadlines {
    /// Bound of every wait on a peer's signal, counted from the kernel's start.
    pub wait: Duration,
    /// Bound of every step in which ranks set something up together.
    pub setup: Duration,
}

/// When teardown itself is abandoned: a driver's call has not returned.
const TEARDOWN: Duration = Duration::from_secs(7);

/// Something of a room above that ends with the context.
pub trait Closing: Send + Sync {
    /// Before allocations are unmapped. No work of this rank is left.
    fn before_unmap(&self, _driver: &Driver) {}
    /// Once allocations of buffers are unmapped.
    fn close(&self, _driver: &Driver) {}
    /// Once every allocation is freed; says whether nothing of it is left.
    fn give_back(&self, _driver: &Driver) -> bool {
        true
    }
    /// Last, whether or not everything could be freed.
    fn end(&self, _driver: &Driver) {}
}

/// What one rank has; torn down when the last handle goes.
pub struct Context {
    parts: ManuallyDrop<Parts>,
    /// Dropped after the rest and on the thread that drops this, since a rank that is panicking has
    /// not left in good order.
    _bootstrap: Arc<Bootstrap>,
}

/// What a context is made of. Its drop is the teardown.
pub struct Parts {
    pub driver: Driver,
    pub deadlines: Deadlines,
    pub agreement: Agreement,
    /// What was given up.
    pub released: ReleaseQueue,
    /// Buffers whose handles are there.
    pub live_buffers: AtomicUsize,
    pub finalized: AtomicBool,
    /// Torn down, from here on.
    pub leaving: Arc<AtomicBool>,
    /// A rank that still has its communicator did not come within the setup deadline: teardown does not wait
    /// for it once more.
    pub waited_enough: AtomicBool,
    /// Peers in this very process.
    same_process: Vec<bool>,
    /// The abort word and the wait record.
    pub(in crate::rank) words: HostMemory,
    /// Allocations that are there as long as the context.
    pub(in crate::rank) permanent: Mutex<Vec<Arc<Allocation>>>,
    pub(in crate::rank) closing: Mutex<Vec<Arc<dyn Closing>>>,
    pub(in crate::rank) watcher: Mutex<Option<JoinHandle<()>>>,
}

impl Context {
    /// The context of a rank that has opened its device and met the others.
    pub fn new(
        driver: Driver,
        deadlines: Deadlines,
        agreement: Agreement,
        same_process: Vec<bool>,
        words: HostMemory,
    ) -> Self {
        Self {
            _bootstrap: agreement.bootstrap().clone(),
            parts: ManuallyDrop::new(Parts {
                driver,
                deadlines,
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

    /// Has `allocation` stay as long as this.
    pub fn keep(&self, allocation: Arc<Allocation>) {
        lock(&self.permanent).push(allocation);
    }

    /// Has `closing` end with this; what came last ends first.
    pub fn on_close(&self, closing: Arc<dyn Closing>) {
        lock(&self.closing).push(closing);
    }

    /// Takes a resource whose handle is gone, and releases what can be.
    pub fn give_up(&self, held: Held) {
        self.released.push(held);
        self.reclaim();
    }

    /// Whether a peer is a thread of this process.
    pub fn is_same_process(&self, peer: usize) -> bool {
        self.same_process[peer]
    }

    /// Starts the thread that watches over peers.
    pub fn start_watcher(&self) -> std::io::Result<()> {
        *lock(&self.watcher) = Some(self.health.start_watcher()?);
        Ok(())
    }
}

impl Parts {
    /// Releases what was given up and is no longer used. A load where nothing was.
    pub fn reclaim(&self) {
        self.released.reclaim(&self.driver);
    }
}

impl Deref for Context {
    type Target = Parts;

    #[inline]
    fn deref(&self) -> &Parts {
        &self.parts
    }
}

impl Deref for Parts {
    type Target = Driver;

    #[inline]
    fn deref(&self) -> &Driver {
        &self.driver
    }
}

impl Drop for Context {
    /// Gives everything back, on a thread that is abandoned if a call of the driver never returns.
    /// Bounded: [`TEARDOWN`], and the farewell to the other ranks.
    fn drop(&mut self) {
        let rank = self.rank;
        // SAFETY: taken once, here, where `self` ends.
        let parts = unsafe { ManuallyDrop::take(&mut self.parts) };
        // Without a thread the work is dropped undone, which drops `parts` here.
        if let Err(error @ Abandoned::Late(_)) =
            run_within("symmem-teardown", TEARDOWN, move || drop(parts))
        {
            tracing::error!(rank, %error, "teardown is abandoned");
        }
    }
}

/// The collective end of an allocation: unmapped by all, then freed by all.
///
/// The caller holds the only count of it besides graphs, which keep what they use.
///
/// # Errors
/// As any collective call; [`Error::InvalidArgument`] where a graph has it.
pub fn free(context: &Context, allocation: &Arc<Allocation>) -> Result<()> {
    let mut round = context.agreement.begin("free");
    round.compare(&[(
        "the buffer (by order of allocation)",
        allocation.number.to_string(),
    )])?;
    let unused = context
        .wait_all_idle(context.deadlines.setup)
        .and_then(|()| {
            // Graphs that were dropped go now, since nothing runs any more.
            context.reclaim();
            if Arc::strong_count(allocation) == 1 {
                // Another thread of this rank may be receiving from it: it is given up, whatever the others say.
                return allocation.retire(context, context.deadlines.setup);
            }
            Err(Error::InvalidArgument {
                rank: context.rank,
                operation: "free",
                message: "a graph uses the buffer; drop the graph first".into(),
            })
        });
    round.vote(unused)?;
    allocation.unmap_retired(context);
    round.vote(Ok(()))?;
    allocation.free_unmapped(context);
    Ok(())
}
