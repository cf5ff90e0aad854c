//! The number of collectives that may be under way at once, agreed by all ranks.

use crate::base::error::{Error, Result};
use crate::world::communicator::Communicator;

impl Communicator {
    /// Sets how many collectives may be under way at once on each rank, over all its channels and groups and with
    /// each all-gather + GEMM. With 1, one grid may fill the device. With `at_once` of 2 or more, each grid gets an
    /// equal share of the device, so that all of them are resident together: otherwise ranks that started different
    /// collectives could wait for each other until the deadline.
    ///
    /// Before the first call of this method, a grid may fill the device, and nothing is counted: the caller sees to
    /// it that grids which are under way together have room, by one at a time or by named `blocks`.
    ///
    /// Collectives on one stream follow each other, and so do those on one channel of a group. So a program needs
    /// this method only if it uses several channels on several streams. Afterwards, a call that makes more than
    /// `at_once` possible is refused before it is enqueued. Calls whose waits take one block do not count:
    /// barriers, collectives by the copy engine except all-reduce, and [`crate::GemmAlgorithm::Pipeline`] by the
    /// copy engine. Streams and groups that were dropped, with no work left, do not count, nor does what was used
    /// before the last call of this method.
    ///
    /// Graphs and all-gather + GEMMs keep their grids. After this call, those whose grids are larger than the new
    /// share are refused; capture or make them again.
    ///
    /// Collective. Blocks until this rank's streams are idle, for at most the setup deadline in each step. Every
    /// rank must enqueue each collective on the same side of this call; no other thread of this rank enqueues
    /// collectives meanwhile. A rebuilt communicator begins with 1.
    ///
    /// ```
    /// # use symmem::{CollectiveOptions, ReduceOp};
    /// # fn main() -> symmem::Result<()> {
    /// # let communicator = symmem::init()?;
    /// # let x = communicator.allocate::<f32>(&[64])?;
    /// # let y = communicator.allocate::<f32>(&[64])?;
    /// let streams = [communicator.stream()?, communicator.stream()?];
    /// communicator.allow_concurrent_collectives(2)?;
    /// let second = CollectiveOptions::new().channel(1);
    /// streams[0].all_reduce(&x, &x, ReduceOp::Sum)?;
    /// streams[1].with(&second).all_reduce(&y, &y, ReduceOp::Sum)?; // beside the first
    /// # streams[0].synchronize()?;
    /// # streams[1].synchronize()?;
    /// # communicator.finalize().map(drop)
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`crate::Error::Mismatch`] on every rank if the numbers differ; [`crate::Error::InvalidArgument`] for 0;
    /// [`crate::Error::Unsupported`] for more than the device has room for; [`crate::Error::HostTimeout`] if this
    /// rank's streams do not become idle, and [`crate::Error::PeerFailed`] on the others; the errors of any
    /// collective call. After an error the number is unchanged.
    pub fn allow_concurrent_collectives(&self, at_once: u32) -> Result<()> {
        const NAME: &str = "allow_concurrent_collectives";
        let shared = self.world();
        let residency = shared.collectives.selector.residency();
        let mut round = shared.agreement.begin(NAME);
        round.compare(&[("the number of collectives at once", at_once.to_string())])?;
        // Both answers are the same on all ranks.
        if at_once == 0 {
            return Err(shared.invalid(NAME, "0 collectives at once; allow at least 1"));
        }
        let most = residency.fits(1);
        if at_once > most {
            return Err(Error::Unsupported {
                rank: shared.rank,
                operation: NAME,
                message: format!(
                    "{at_once} collectives at once; there is room for at most {most} on a device of {} compute \
                     units that {} rank(s) use",
                    residency.units(),
                    residency.sharers()
                ),
            });
        }
        // Grids that were chosen by the old number have left the device of every rank.
        round.vote(shared.wait_all_idle(shared.deadlines.setup))?;
        residency.divide(at_once);
        Ok(())
    }

    /// Returns how many collectives may be under way at once
    /// ([`Communicator::allow_concurrent_collectives`]).
    pub fn concurrent_collectives(&self) -> u32 {
        self.world().collectives.selector.residency().at_once()
    }
}
