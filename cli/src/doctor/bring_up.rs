//! Sets up communicators with multicast, uses and finalizes them, one after the other in the same processes. This
//! checks that each releases its slots of the switch.

use serde::{Deserialize, Serialize};
use std::time::{Duration, Instant};
use symmem::Builder;
use symmem::backends::Selection;
use symmem::bootstrap::LaunchEnvironment;
use symmem::{
    Algorithm, CollectiveOptions, Communicator, Error, MulticastSupport, ReduceOp, Result,
};

/// Number of reduced elements. It is odd, so that vector accesses do not cover the edges of the ranks' parts and the
/// parts differ in length.
const COUNT: usize = 100_003;

/// The result of one communicator's setup, use and release.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct BringUp {
    /// The multicast support that all ranks agreed on, as `MulticastSupport` names it.
    pub path: String,
    /// Why it is not, or no longer, `HARDWARE`.
    pub reason: Option<String>,
    /// Whether both buffers of the test were bound to the multicast object.
    pub bound: bool,
    /// Number of wrong elements on all ranks together.
    pub wrong: u64,
    /// Number of buffers that were still held at the end, by this rank or by its peers.
    pub left: u64,
    /// Milliseconds of the setup on this rank.
    pub up_ms: f64,
    /// Milliseconds of the release on this rank.
    pub down_ms: f64,
}

impl BringUp {
    /// Returns what went wrong; `None` if multicast was used, gave right results and was released.
    pub fn failure(&self) -> Option<String> {
        let because = self.reason.as_deref().unwrap_or("no reason was reported");
        if self.path != MulticastSupport::Hardware.name() {
            Some(format!("all ranks agreed not to use multicast: {because}"))
        } else if !self.bound {
            Some(format!("the buffers were not bound: {because}"))
        } else if self.wrong > 0 {
            Some(format!(
                "{} elements of an all_reduce were wrong",
                self.wrong
            ))
        } else if self.left > 0 {
            Some(format!("{} buffers were still held at the end", self.left))
        } else {
            None
        }
    }
}

/// Sets up and finalizes `count` communicators one after the other; all ranks stop after the first with trouble. Calls
/// `report` with all results so far after each. Collective; blocks, each step for at most `deadline`.
///
/// # Errors
/// The errors of [`Builder::build`] and of any collective call. Failed multicast is not an error; see
/// [`BringUp::failure`].
pub fn bring_up_and_down(
    selection: &Selection,
    deadline: Duration,
    count: u32,
    report: &mut dyn FnMut(&[BringUp]),
) -> Result<Vec<BringUp>> {
    let mut launch = LaunchEnvironment::detect()?;
    let mut all = Vec::new();
    for _ in 0..count {
        let start = Instant::now();
        let communicator = Builder::new()
            .launch(launch.clone())
            .backend(selection.clone())
            .deadline(deadline)
            .setup_deadline(deadline)
            .build()?;
        // A new generation, so that ranks of different communicators never meet.
        launch.generation += 1;
        let up_ms = milliseconds(start);
        let mut bring_up = reduce(&communicator)?;
        bring_up.up_ms = up_ms;
        // Decided before `left` is known, which differs between ranks: all must decide alike.
        let ends = bring_up.failure().is_some();
        let start = Instant::now();
        let left = communicator.finalize()?;
        bring_up.left = left.count() as u64;
        bring_up.down_ms = milliseconds(start);
        all.push(bring_up);
        report(&all);
        if ends {
            break;
        }
    }
    Ok(all)
}

fn milliseconds(since: Instant) -> f64 {
    since.elapsed().as_secs_f64() * 1e3
}

/// Runs and checks an all_reduce by multicast, if the communicator has multicast.
fn reduce(communicator: &Communicator) -> Result<BringUp> {
    let mut bring_up = BringUp::default();
    if communicator.multicast().support == MulticastSupport::Hardware {
        let (rank, world) = (communicator.rank(), communicator.world_size());
        let stream = communicator.stream()?;
        let source = communicator.allocate::<u32>(&[COUNT])?;
        let destination = communicator.allocate::<u32>(&[COUNT])?;
        bring_up.bound = source.multicast().is_some() && destination.multicast().is_some();
        if bring_up.bound {
            let given: Vec<u32> = (0..COUNT).map(|index| element(index, rank)).collect();
            source.write(&stream, 0, &given)?;
            let options = CollectiveOptions::new().algorithm(Algorithm::Multicast);
            let by_multicast = stream.with(&options);
            by_multicast.all_reduce(&destination, &source, ReduceOp::Sum)?;
            let mut seen = vec![0; COUNT];
            destination.read(&stream, 0, &mut seen)?;
            let right = |index| {
                let each = (0..world).map(|rank| element(index, rank));
                each.fold(0_u32, u32::wrapping_add)
            };
            let wrong = seen.iter().enumerate();
            let wrong = wrong.filter(|&(index, &seen)| seen != right(index)).count() as u64;
            bring_up.wrong = total(communicator, wrong)?;
        }
        source.free()?;
        destination.free()?;
    }
    let status = communicator.multicast();
    bring_up.path = status.support.name().into();
    bring_up.reason = status.reason;
    Ok(bring_up)
}

/// Returns an input element; neighboring elements and elements of different ranks differ.
fn element(index: usize, rank: usize) -> u32 {
    (index as u32 + 1).wrapping_mul(rank as u32 * 2 + 0x9e37_79b1)
}

/// Returns the sum over all ranks. Collective.
fn total(communicator: &Communicator, mine: u64) -> Result<u64> {
    let all = communicator.host_all_gather(&mine.to_le_bytes())?;
    let number = |bytes: &Vec<u8>| bytes.as_slice().try_into().map(u64::from_le_bytes);
    all.iter()
        .map(number)
        .sum::<std::result::Result<u64, _>>()
        .map_err(|_| Error::System {
            rank: communicator.rank(),
            call: "counting wrong elements",
            reason: "a rank sent something other than a number".into(),
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_of_trouble_is_told_in_its_own_words() {
        let good = BringUp {
            path: "HARDWARE".into(),
            bound: true,
            ..BringUp::default()
        };
        assert_eq!(good.failure(), None);
        let without = BringUp {
            path: "NONE".into(),
            reason: Some("rank 1: it is off".into()),
            ..good.clone()
        };
        assert!(without.failure().unwrap().contains("rank 1: it is off"));
        let failure = |bring_up: BringUp| bring_up.failure().unwrap();
        assert!(
            failure(BringUp {
                bound: false,
                ..good.clone()
            })
            .contains("not bound")
        );
        assert!(
            failure(BringUp {
                wrong: 3,
                ..good.clone()
            })
            .contains("3 elements")
        );
        assert!(failure(BringUp { left: 2, ..good }).contains("2 buffers"));
    }
}
