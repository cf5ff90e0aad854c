//! Debug mode: members compare each call before it is made, and the one that differs is named.
//!
//! Members may be some of the ranks only, and calls on different channels come in any order, so this
//! is no agreement of all ranks: each member leaves its call in the job's store and looks up the
//! others'. A member can be one call ahead at most, since to go on it needs this rank's; so two places
//! a member, used in turn, are enough.

use super::call::CollectiveOptions;
use super::group::Membership;
use super::launch::Call;
use crate::bootstrap::BootstrapError;
use crate::communicator::Inner;
use crate::error::{Error, Result};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Between values; in none of them.
const SEPARATOR: char = '\0';
/// How often a member that has not come is looked for.
const LOOK_INTERVAL: Duration = Duration::from_millis(1);

/// What members must agree on.
fn fields(call: &Call<'_>, options: &CollectiveOptions<'_>) -> [(&'static str, String); 14] {
    let number = |value: u64| value.to_string();
    let automatic = |value: Option<u32>| {
        value.map_or_else(|| "the selector's".into(), |value| value.to_string())
    };
    let (to, from) = (&call.destination, &call.source);
    let whose = |offset: u64, bytes: u64, allocation: u64| {
        format!("{bytes} bytes at {offset} of buffer {allocation}")
    };
    // In place each member's smaller range is its own part of the larger one.
    let same = to.allocation.number == from.allocation.number;
    let small = |extent: &super::launch::Extent<'_>, other: u64| {
        if same && extent.bytes < other {
            whose(0, extent.bytes, extent.allocation.number)
        } else {
            whose(extent.offset, extent.bytes, extent.allocation.number)
        }
    };
    [
        ("the operation", call.name.into()),
        ("the element type", call.element.name().into()),
        ("the size of an element", number(call.element_bytes)),
        ("the reduction", call.reduce.name().into()),
        ("the root", number(call.root as u64)),
        (
            "the counts",
            format!("{:?}", call.counts.unwrap_or_default()),
        ),
        ("the destination", small(to, from.bytes)),
        (
            "the source",
            if call.counts.is_some() {
                // Each member gives as much as it has.
                number(from.allocation.number)
            } else {
                small(from, to.bytes)
            },
        ),
        ("the algorithm", options.algorithm.name().into()),
        ("the number of blocks", automatic(options.blocks)),
        ("the number of threads", automatic(options.threads)),
        (
            "the copies under way at once",
            automatic(options.concurrent),
        ),
        ("the provider", format!("{:?}", options.provider)),
        ("the deadline", format!("{:?}", options.deadline)),
    ]
}

/// Compares a call with those of the other members.
///
/// # Errors
/// [`Error::Mismatch`] on every member if any differs; a member that died, or does not come within the
/// setup deadline.
pub fn compare(
    shared: &Inner,
    membership: &Membership,
    call: &Call<'_>,
    options: &CollectiveOptions<'_>,
) -> Result<()> {
    let fields = fields(call, options);
    let values = fields.each_ref().map(|(_, value)| value.as_str());
    let mine = values.join(SEPARATOR.to_string().as_str());
    let answers = exchange(shared, membership, options.channel, &mine)?;
    let value_of = |member: usize, index: usize| {
        answers[member]
            .split(SEPARATOR)
            .nth(index)
            .unwrap_or("missing")
    };
    // All look for the first member that differs from the first, so that all fail alike.
    for member in 0..answers.len() {
        for (index, (what, mine)) in fields.iter().enumerate() {
            if value_of(member, index) == value_of(0, index) {
                continue;
            }
            let other = if value_of(member, index) == mine {
                0
            } else {
                member
            };
            return Err(Error::Mismatch {
                rank: shared.rank,
                peer: membership.members[other],
                operation: call.name,
                what,
                mine: mine.clone(),
                theirs: value_of(other, index).into(),
            });
        }
    }
    Ok(())
}

/// Gives every member's text to every member.
fn exchange(
    shared: &Inner,
    membership: &Membership,
    channel: u32,
    mine: &str,
) -> Result<Vec<String>> {
    let store = shared.agreement.bootstrap().store();
    let group = membership.slots.allocation().number;
    let number = membership.compared[channel as usize].fetch_add(1, Ordering::Relaxed);
    // By the communicator's numbers: the groups of one split share the number of their allocation, and
    // each has a member 0.
    let key = |member: usize| {
        let rank = membership.members[member];
        format!("call/{group}/{channel}/{}/{rank}", number % 2)
    };
    let start = Instant::now();
    let limit = shared.options.setup_deadline;
    let failed = |error| {
        shared
            .health
            .broken(crate::communicator::translate(shared.rank, error))
    };
    let mut message = number.to_le_bytes().to_vec();
    message.extend_from_slice(mine.as_bytes());
    store
        .set(&key(membership.rank), &message, limit)
        .map_err(failed)?;
    let mut answers = Vec::with_capacity(membership.world());
    for member in 0..membership.world() {
        answers.push(loop {
            shared.health.look()?;
            let left = limit.saturating_sub(start.elapsed());
            match store.get(&key(member), left) {
                Ok(value) if value.get(..8) == Some(&number.to_le_bytes()) => {
                    break String::from_utf8_lossy(&value[8..]).into_owned();
                }
                Ok(_) if !left.is_zero() => std::thread::sleep(LOOK_INTERVAL),
                Ok(_) | Err(BootstrapError::Timeout { .. }) => {
                    return Err(failed(BootstrapError::Timeout {
                        rank: shared.rank as u32,
                        awaited: format!("the call of member {member} to be compared"),
                        missing: vec![membership.members[member] as u32],
                        elapsed: start.elapsed(),
                    }));
                }
                Err(error) => return Err(failed(error)),
            }
        });
    }
    Ok(answers)
}
