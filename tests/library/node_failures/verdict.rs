//! Judges what the ranks of a run have said.

use crate::Limits;
use crate::plan::{Act, Plan};
use crate::rank::DEADLINE;
use crate::trial::{Told, Trial};
use std::time::Duration;

/// The end of a rank's work, as it tells it.
#[derive(Debug, PartialEq)]
struct End<'l> {
    time: Duration,
    kind: &'l str,
    peer: Option<usize>,
    text: &'l str,
}

impl<'l> End<'l> {
    fn parse(line: &'l str) -> Option<Self> {
        let mut words = line.strip_prefix("end ")?.splitn(4, ' ');
        Some(Self {
            time: Duration::from_nanos(words.next()?.parse().ok()?),
            kind: words.next()?,
            peer: words.next()?.parse().ok(),
            text: words.next()?,
        })
    }

    /// Judges the error of a rank; returns what is wrong with it.
    fn fault(&self, plan: &Plan, rank: usize) -> Option<String> {
        let is_lost = |peer: &usize| plan.is_lost(*peer, rank);
        let names_lost = (0..plan.world())
            .filter(is_lost)
            .any(|peer| names(self.text, peer));
        let is_right = match (plan.act, self.kind) {
            // As ranks meet, who had not come is named in the text only.
            (_, "Timeout" | "Bootstrap" | "PeerDied") if plan.early => {
                self.peer.is_none_or(|peer| is_lost(&peer)) && names_lost
            }
            // A rank that noticed first told the others, and its reason names the lost one.
            (_, "PeerFailed") if plan.early => names_lost,
            (Act::Kill { .. } | Act::KillRail { .. }, "PeerDied") => {
                self.peer.is_some_and(|peer| is_lost(&peer))
            }
            (Act::Cut { .. }, "PeerDied" | "Timeout" | "PeerUnreachable") => {
                self.peer.is_some_and(|peer| is_lost(&peer))
            }
            // A rank of the same host noticed first, and its reason names the lost one.
            (Act::Cut { .. }, "PeerFailed") => names_lost,
            _ => false,
        };
        (!is_right).then(|| {
            format!(
                "rank {rank} has the wrong error: {} {}",
                self.kind, self.text
            )
        })
    }
}

/// Returns whether a text names a rank: `rank 3` or, in a list, `ranks [2, 3]`.
fn names(text: &str, rank: usize) -> bool {
    let lists = text.split("rank").skip(1);
    let mut numbers = lists.flat_map(|list| {
        let list = list.trim_start_matches(['s', ' ', '[']);
        let end = list.find(|one: char| !one.is_ascii_digit() && !", and".contains(one));
        let numbers = list[..end.unwrap_or(list.len())].split(|one: char| !one.is_ascii_digit());
        numbers.filter_map(|number| number.parse::<usize>().ok())
    });
    numbers.any(|number| number == rank)
}

/// Judges the errors of all survivors, and returns them.
pub fn judge_errors(trial: &mut Trial<'_>, plan: &Plan, at: Duration, limits: Limits) -> Vec<Told> {
    let limit = match plan.act {
        // Nobody knows of a rank that never came.
        _ if plan.early => DEADLINE + limits.silence,
        Act::Kill { .. } | Act::KillRail { .. } => limits.death,
        Act::Cut { .. } => limits.silence,
    };
    let mut faults = Vec::new();
    let mut errors = Vec::new();
    for rank in plan.survivors() {
        let mut ends = trial.said[rank].iter().filter_map(|line| End::parse(line));
        // If there is none, that has been noted.
        let Some(end) = ends.next() else {
            continue;
        };
        faults.extend(end.fault(plan, rank));
        if end.time < at {
            faults.push(format!("rank {rank} failed before the act: {}", end.text));
        }
        let time = end.time.saturating_sub(at);
        if time > limit {
            faults.push(format!("rank {rank} had its error {time:?} after the act"));
        }
        errors.push(Told {
            rank,
            after: time,
            kind: end.kind.into(),
            peer: end.peer,
            text: end.text.into(),
        });
    }
    trial.faults.extend(faults);
    errors
}

/// Judges whether all that go on are in one world.
pub fn judge_rebuilt(trial: &mut Trial<'_>, plan: &Plan) {
    let rebuilders = plan.rebuilders();
    let expected = format!("rebuilt {}", rebuilders.len());
    for rank in rebuilders {
        let said = &trial.said[rank];
        let rebuilt = said.iter().find(|line| line.starts_with("rebuilt "));
        if rebuilt.is_some_and(|line| *line != expected) {
            let fault = format!("rank {rank} is not in a world of all that go on: {rebuilt:?}");
            trial.faults.push(fault);
        }
    }
}

#[test]
fn an_error_is_right_if_it_names_the_lost_rank_and_its_kind_fits() {
    let mut plan = Plan::kill(0);
    (plan.hosts, plan.ranks, plan.early) = (2, 2, false);
    plan.act = Act::Kill { rank: 2 };
    let line = "end 5000000000 PeerDied 2 rank 0: rank 2 died";
    let end = End::parse(line).unwrap();
    assert_eq!(end.time, Duration::from_secs(5));
    assert_eq!(end.fault(&plan, 0), None);
    for wrong in [
        "end 5 PeerDied 1 rank 0: rank 1 died",
        "end 5 Timeout 2 rank 0: waited for rank 2",
        "end 5 PeerDied none rank 0: a rank died",
    ] {
        assert!(
            End::parse(wrong).unwrap().fault(&plan, 0).is_some(),
            "{wrong}"
        );
    }
    plan.act = Act::Cut { host: 1 };
    let right = [
        "end 5 PeerDied 3 rank 0: rank 3 died",
        "end 5 PeerFailed 1 rank 0: rank 1 failed: rank 1: no answer from ranks 2, 3",
    ];
    for right in right {
        assert_eq!(End::parse(right).unwrap().fault(&plan, 0), None, "{right}");
    }
    let of_the_same_host = End::parse("end 5 PeerDied 1 rank 0: rank 1 died").unwrap();
    assert!(of_the_same_host.fault(&plan, 0).is_some());
}

#[test]
fn ranks_are_found_in_a_text_one_by_one_and_in_lists() {
    assert!(names("rank 13 died", 13) && !names("rank 13 died", 1));
    assert!(names("ranks 2, 13 and 4 did not come", 4));
    assert!(names("ranks [4, 5, 16] did not arrive", 16));
    assert!(!names("32 bytes", 32));
}
