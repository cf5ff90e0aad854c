//! The kernels that multiply and add up all ranks' products in one launch: which of them all ranks have, and their arguments.

use crate::backend::Gemm as _;
use crate::backend::abi::*;
use crate::base::error::Result;
use crate::gemm_reduce::plan::{Problem, Reduction};
use crate::memory::sharing::Origin;
use crate::rank::agreement::Round;
use crate::rank::sequence::Sequence;
use crate::stream::queue::Queue;
use crate::world::world::World;
use std::sync::Arc;

/// The fused kernels for a shape, or why there is none; the same on all ranks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct FusedKernels {
    pub(super) push: std::result::Result<ReducedLimits, String>,
    pub(super) packets: std::result::Result<ReducedLimits, String>,
}

/// The fused kernel of an operation.
#[derive(Clone, Copy, Debug)]
pub(super) struct FusedKernel {
    pub(super) mode: ReducedMode,
    pub(super) limits: ReducedLimits,
    /// The most collectives that may be under way at once, so that its grid has room.
    pub(super) fits: u32,
}

impl FusedKernel {
    /// Returns the kernel with these limits, if there is one.
    pub(super) fn new(
        shared: &World,
        mode: ReducedMode,
        limits: std::result::Result<ReducedLimits, String>,
    ) -> Option<Self> {
        let limits = limits.ok()?;
        let residency = shared.collectives.selector.residency();
        Some(Self {
            mode,
            limits,
            fits: residency.fits(limits.blocks),
        })
    }

    /// Returns the origin of the inboxes: packets are polled while peers write them, other parts have arrival words.
    pub(super) fn inbox_origin(&self) -> Origin {
        match self.mode {
            ReducedMode::PACKETS => Origin::Signals,
            _ => Origin::Backend,
        }
    }

    /// Admits a call to run beside the collectives of other streams.
    ///
    /// # Errors
    /// [`crate::Error::InvalidArgument`] if the operation was made when fewer collectives were allowed at once, or if more
    /// than allowed could be under way.
    pub(super) fn admit(
        &self,
        queue: &Queue,
        name: &'static str,
        sequence: &Arc<Sequence>,
    ) -> Result<()> {
        let residency = queue.world().collectives.selector.residency();
        let remedy = "make the operation again";
        let room = residency.check_room(self.fits, "the operation's grid has", remedy);
        room.map_err(|message| queue.invalid(name, message))?;
        queue.admit(name, sequence)
    }

    /// Returns the ranks of a call.
    pub(super) fn group(&self, problem: &Problem, watch: Watch, channel: u32) -> CollectiveGroup {
        let mut members = [0; MAX_RANKS];
        for (rank, member) in members.iter_mut().enumerate().take(problem.world) {
            *member = rank as u8;
        }
        CollectiveGroup {
            watch,
            slots: [DeviceAddress::NULL; MAX_RANKS],
            packet_bytes: 0,
            dependents: DependentsCode::ANSWERED,
            rank: problem.rank as u32,
            world: problem.world as u32,
            slot: channel,
            operation: match problem.reduction {
                Reduction::Scatter => CollectiveOperationCode::GEMM_REDUCE_SCATTER,
                _ => CollectiveOperationCode::GEMM_ALL_REDUCE,
            },
            members,
        }
    }

    /// Returns the grid of a launch.
    pub(super) fn grid(&self) -> Geometry {
        Geometry {
            blocks: [self.limits.blocks, 1, 1],
            threads: [self.limits.threads, 1, 1],
            shared_memory: 0,
        }
    }
}

impl FusedKernels {
    /// Returns what a rank alone has, which needs none.
    pub(super) fn none() -> Self {
        let reason = || Err("one rank has nothing to send".into());
        Self {
            push: reason(),
            packets: reason(),
        }
    }

    /// Finds the kernels that all ranks have with the same limits. A step of a round, of all ranks.
    pub(super) fn agree(
        shared: &World,
        round: &mut Round<'_>,
        layout: &GemmLayout,
        problem: ReducedProblem,
    ) -> Result<Self> {
        let modes = [ReducedMode::PUSH, ReducedMode::PACKETS];
        let own = modes.map(|mode| offer(shared, layout, &ReducedProblem { mode, ..problem }));
        let lines = own.each_ref().map(|offer| format!("{offer:?}"));
        let told = round.exchange(lines.join("\n").as_bytes())?;
        let told: Vec<String> = (told.iter())
            .map(|bytes| String::from_utf8_lossy(bytes).into_owned())
            .collect();
        let told: Vec<&str> = told.iter().map(String::as_str).collect();
        let [push, packets] = own;
        Ok(Self {
            push: common(push, &told, 0),
            packets: common(packets, &told, 1),
        })
    }
}

/// Returns the limits of the device's kernel, or why it cannot be launched.
fn offer(
    shared: &World,
    layout: &GemmLayout,
    problem: &ReducedProblem,
) -> std::result::Result<ReducedLimits, String> {
    // A backend that is older than the kernel has none.
    let limits = shared.backend.reduced_gemm_limits(layout, problem);
    let Some(limits) = limits.ok().flatten() else {
        return Err("no such kernel for this shape on this device".into());
    };
    let selector = &shared.collectives.selector;
    let residency = selector.residency();
    if selector.has_grids() && residency.limit(limits.blocks) < limits.blocks {
        return Err(format!(
            "the kernel's {} blocks have no room on this device{}",
            limits.blocks,
            residency.because_shared()
        ));
    }
    Ok(limits)
}

/// Returns what all ranks have said in a line: this rank's offer if all have said the same, otherwise the first reason against the
/// kernel.
fn common(
    own: std::result::Result<ReducedLimits, String>,
    told: &[&str],
    line: usize,
) -> std::result::Result<ReducedLimits, String> {
    let said = |text: &str| text.lines().nth(line).unwrap_or("nothing").to_owned();
    let first = told.first().map(|text| said(text)).unwrap_or_default();
    let other = told
        .iter()
        .map(|text| said(text))
        .find(|said| *said != first);
    match other {
        None => own,
        // All ranks find the same two, and so give the same reason.
        Some(other) => Err(format!(
            "the ranks' devices have different kernels for this shape: {first}, {other}"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn offers(blocks: u32) -> String {
        let limits = ReducedLimits {
            blocks,
            ..ReducedLimits::default()
        };
        let push: std::result::Result<ReducedLimits, String> = Ok(limits);
        let packets: std::result::Result<ReducedLimits, String> = Err("none".into());
        format!("{push:?}\n{packets:?}")
    }

    #[test]
    fn a_kernel_is_common_if_all_ranks_have_it_with_the_same_limits() {
        let (same, other) = (offers(8), offers(4));
        let own = || {
            Ok(ReducedLimits {
                blocks: 8,
                ..ReducedLimits::default()
            })
        };
        assert_eq!(common(own(), &[&same, &same], 0), own());
        assert_eq!(
            common(Err("none".into()), &[&same, &same], 1),
            Err("none".into())
        );
        for told in [[&same, &other], [&other, &same]] {
            let told = told.map(String::as_str);
            let reason = common(own(), &told, 0).unwrap_err();
            assert!(
                reason.contains("blocks: 8") && reason.contains("blocks: 4"),
                "{reason}"
            );
            assert_eq!(common(Err("none".into()), &told, 1), Err("none".into()));
        }
        assert!(common(own(), &[&same, ""], 0).is_err());
    }
}
