//! Debug mode: members compare each call before it is made, and the error names the member that differs.
//!
//! The members may be a subset of the ranks, and calls on different channels come in any order, so this is not
//! an agreement of all ranks. Each member leaves its call in the job's store and looks up the others'. A member
//! can be at most one call ahead, since it needs this rank's call to go on; so two keys a member, used in turn,
//! are enough. Sends and receives concern two members only, which compare each message with its receive in the
//! same way.

use crate::base::error::{Error, Result};
use crate::bootstrap::BootstrapError;
use crate::collectives::options::CollectiveOptions;
use crate::collectives::parts::AllToAllParts;
use crate::collectives::request::Request;
use crate::group::membership::Membership;
use crate::rank::context::Context;
use crate::rank::memory_range::MemoryRange;
use std::time::{Duration, Instant};

/// Separates values; occurs in none of them.
const SEPARATOR: char = '\0';
/// Interval at which a missing member's call is looked up again.
const LOOK_INTERVAL: Duration = Duration::from_millis(1);

/// A send or receive, to be compared with the other member's.
pub struct Message {
    /// The other member.
    pub member: usize,
    /// Whether this rank sends it.
    pub sends: bool,
    /// Bytes per element.
    pub element_bytes: u64,
    /// Total bytes.
    pub bytes: u64,
}

/// An argument's name and its value.
type Field = (&'static str, String);

/// Returns the options, on which members must agree in every call.
fn option_fields(options: &CollectiveOptions<'_>) -> [Field; 6] {
    let automatic =
        |value: Option<u32>| value.map_or_else(|| "automatic".into(), |value| value.to_string());
    [
        ("the algorithm", options.algorithm.name().into()),
        ("the number of blocks", automatic(options.blocks)),
        ("the number of threads", automatic(options.threads)),
        (
            "the number of concurrent copies",
            automatic(options.concurrent),
        ),
        ("the provider", format!("{:?}", options.provider)),
        ("the deadline", format!("{:?}", options.deadline)),
    ]
}

/// Returns the arguments on which members must agree in a call that is the same on all.
fn call_fields(call: &Request<'_>) -> [Field; 8] {
    let number = |value: u64| value.to_string();
    let (to, from) = (&call.destination, &call.source);
    let whose = |offset: u64, bytes: u64, allocation: Option<u64>| match allocation {
        Some(allocation) => format!("{bytes} bytes at {offset} of buffer {allocation}"),
        // Where it is concerns no other member.
        None => format!("{bytes} bytes of device memory"),
    };
    // In place each member's smaller range is its own part of the larger one.
    let same = to.number() == from.number();
    let small = |extent: &MemoryRange<'_>, other: u64| {
        if same && extent.bytes() < other {
            whose(0, extent.bytes(), extent.number())
        } else {
            whose(extent.offset(), extent.bytes(), extent.number())
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
        ("the destination", small(to, from.bytes())),
        (
            "the source",
            if call.counts.is_some() {
                // Each member's source has its own length.
                from.number().map_or("device memory".into(), number)
            } else {
                small(from, to.bytes())
            },
        ),
    ]
}

/// The comparison of one call on a channel.
pub struct Comparison<'a> {
    shared: &'a Context,
    membership: &'a Membership,
    options: &'a CollectiveOptions<'a>,
    operation: &'static str,
    start: Instant,
}

impl<'a> Comparison<'a> {
    /// Begins the comparison of a call of `operation`, and its setup deadline.
    pub fn new(
        shared: &'a Context,
        membership: &'a Membership,
        options: &'a CollectiveOptions<'a>,
        operation: &'static str,
    ) -> Self {
        Self {
            shared,
            membership,
            options,
            operation,
            start: Instant::now(),
        }
    }

    /// Compares a call whose arguments must be the same on all members. Blocks until all members have made it.
    ///
    /// # Errors
    /// [`Error::Mismatch`] on every member if any differs; the error of a member that died or does not come
    /// within the setup deadline.
    pub fn of_call(&self, call: &Request<'_>) -> Result<()> {
        self.alike(&call_fields(call), "").map(drop)
    }

    /// Compares a call by the given fields, all of which must be the same on all members.
    ///
    /// # Errors
    /// As [`Comparison::of_call`].
    pub fn of_fields(&self, fields: &[Field]) -> Result<()> {
        let mut all: Vec<Field> = vec![("the operation", self.operation.into())];
        all.extend_from_slice(fields);
        self.alike(&all, "").map(drop)
    }

    /// Compares a barrier, which has no arguments beside its options, with the calls of the other members.
    ///
    /// # Errors
    /// As [`Comparison::of_call`].
    pub fn of_barrier(&self) -> Result<()> {
        let members = format!("{:?}", self.membership.span.members);
        let fields = [
            ("the operation", self.operation.into()),
            ("the members", members),
        ];
        self.alike(&fields, "").map(drop)
    }

    /// Compares an all-to-all of unequal parts: the count that each member sends to another must be the count
    /// that the other expects. `refusal` is the error in this rank's own arguments, if there is one; no member
    /// goes on then.
    ///
    /// # Errors
    /// As [`Comparison::of_call`].
    pub fn of_parts(
        &self,
        element_bytes: u64,
        parts: &AllToAllParts<'_>,
        refusal: Option<&Error>,
    ) -> Result<()> {
        let validated = refusal.map_or_else(|| "valid".into(), Error::to_string);
        let fields = [
            ("the operation", self.operation.into()),
            ("the size of an element", element_bytes.to_string()),
            ("the counts and offsets", validated),
        ];
        let list = |counts: &[usize]| {
            let counts: Vec<_> = counts.iter().map(usize::to_string).collect();
            counts.join(",")
        };
        let own = format!("{};{}", list(parts.sent), list(parts.received));
        let answers = self.alike(&fields, &own)?;
        let count = |member: usize, list: usize, other: usize| {
            let list = answers[member].split(';').nth(list);
            let count = list.and_then(|list| list.split(',').nth(other));
            count.unwrap_or("missing").to_owned()
        };
        let members = &self.membership.span.members;
        for sender in 0..members.len() {
            for receiver in 0..members.len() {
                let (sent, expected) = (count(sender, 0, receiver), count(receiver, 1, sender));
                if sent == expected {
                    continue;
                }
                let (from, to) = (members[sender], members[receiver]);
                let sends = format!("{sent} elements to rank {to}");
                let expects = format!("{expected} elements from rank {from}");
                let (other, mine, theirs) = match self.membership.span.rank {
                    rank if rank == receiver => (sender, expects, sends),
                    rank if rank == sender => (receiver, sends, expects),
                    _ => (
                        receiver,
                        "valid".into(),
                        format!("{expects}, which sends {sent}"),
                    ),
                };
                return Err(self.mismatch(other, "a count", mine, theirs));
            }
        }
        Ok(())
    }

    /// Compares messages, at most one to and one from each member, with the other member's receive or send.
    ///
    /// # Errors
    /// [`Error::Mismatch`] at both members if they differ, after all messages were looked up; the error of a
    /// member that died or does not come within the setup deadline.
    pub fn of_messages(&self, messages: &[Message]) -> Result<()> {
        let channel = self.options.channel;
        let numbered: Vec<_> = messages
            .iter()
            .map(|message| {
                let number =
                    self.membership
                        .compared
                        .next_message(channel, message.member, message.sends);
                let count = message.bytes.checked_div(message.element_bytes);
                let mut fields = vec![
                    ("the size of an element", message.element_bytes.to_string()),
                    (
                        "the number of elements",
                        count.unwrap_or(message.bytes).to_string(),
                    ),
                ];
                fields.extend(option_fields(self.options));
                (message, number, fields)
            })
            .collect();
        let own = self.membership.span.rank;
        let key = |message: &Message, by_sender: bool, number| {
            let (from, to) = match message.sends {
                true => (own, message.member),
                false => (message.member, own),
            };
            let side = if by_sender { "sent" } else { "received" };
            let members = &self.membership.span.members;
            let pair = format!("{}-{}/{side}", members[from], members[to]);
            self.key("message", &pair, number)
        };
        for (message, number, fields) in &numbered {
            let key = key(message, message.sends, *number);
            self.leave(&key, *number, &joined(fields))?;
        }
        let mut outcome = Ok(());
        for (message, number, fields) in &numbered {
            let key = key(message, !message.sends, *number);
            let awaited = match message.sends {
                true => "the matching receive",
                false => "the matching send",
            };
            let answer = self.find(&key, *number, message.member, awaited)?;
            let differ = fields
                .iter()
                .zip(answer.split(SEPARATOR))
                .find(|((_, mine), theirs)| mine != theirs);
            if let (Some(((what, mine), theirs)), Ok(())) = (differ, &outcome) {
                outcome = Err(self.mismatch(message.member, what, mine.clone(), theirs.into()));
            }
        }
        outcome
    }

    /// Compares fields and options with those of all members. Returns the text that each member has added as
    /// its `own`, which is not compared.
    fn alike(&self, fields: &[Field], own: &str) -> Result<Vec<String>> {
        let mut fields = fields.to_vec();
        fields.extend(option_fields(self.options));
        let text = format!("{own}{SEPARATOR}{}", joined(&fields));
        let channel = self.options.channel;
        let number = self.membership.compared.next_call(channel);
        // Keys use the communicator's ranks: all groups of one split share the number of their allocation, and
        // each has a member 0.
        let key = |member: usize| {
            let rank = self.membership.span.members[member].to_string();
            self.key("call", &rank, number)
        };
        self.leave(&key(self.membership.span.rank), number, &text)?;
        let answers = (0..self.membership.span.members.len())
            .map(|member| self.find(&key(member), number, member, "the matching call"))
            .collect::<Result<Vec<_>>>()?;
        let value_of = |member: usize, index: usize| {
            answers[member]
                .split(SEPARATOR)
                .nth(1 + index)
                .unwrap_or("missing")
        };
        // All members look for the first that differs from member 0, so that all report the same.
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
                let theirs = value_of(other, index).to_owned();
                return Err(self.mismatch(other, what, mine.clone(), theirs));
            }
        }
        let own = |answer: &String| answer.split(SEPARATOR).next().map(str::to_owned);
        Ok(answers.iter().filter_map(own).collect())
    }

    fn mismatch(&self, other: usize, what: &'static str, mine: String, theirs: String) -> Error {
        Error::Mismatch {
            rank: self.shared.rank,
            peer: self.membership.span.members[other],
            operation: self.operation,
            what,
            mine,
            theirs,
        }
    }

    fn key(&self, kind: &str, whose: &str, number: u64) -> String {
        let group = self.membership.slots.allocation().number;
        let channel = self.options.channel;
        format!("{kind}/{group}/{channel}/{}/{whose}", number % 2)
    }

    fn failed(&self, error: BootstrapError) -> Error {
        let error = crate::rank::agreement::translate(self.shared.rank, error);
        self.shared.health.broken(error)
    }

    fn left(&self) -> Duration {
        let limit = self.shared.deadlines.setup;
        limit.saturating_sub(self.start.elapsed())
    }

    /// Stores a text for the other members.
    fn leave(&self, key: &str, number: u64, text: &str) -> Result<()> {
        let mut value = number.to_le_bytes().to_vec();
        value.extend_from_slice(text.as_bytes());
        let store = self.shared.agreement.bootstrap().store();
        let limit = self.shared.deadlines.setup;
        store
            .set(key, &value, limit)
            .map_err(|error| self.failed(error))
    }

    /// Waits for the text of call `number` under `key`.
    fn find(&self, key: &str, number: u64, member: usize, awaited: &str) -> Result<String> {
        let store = self.shared.agreement.bootstrap().store();
        loop {
            self.shared.health.look()?;
            let left = self.left();
            match store.get(key, left) {
                Ok(value) if value.get(..8) == Some(&number.to_le_bytes()) => {
                    return Ok(String::from_utf8_lossy(&value[8..]).into_owned());
                }
                Ok(_) if !left.is_zero() => std::thread::sleep(LOOK_INTERVAL),
                Ok(_) | Err(BootstrapError::Timeout { .. }) => {
                    let rank = self.membership.span.members[member];
                    return Err(self.failed(BootstrapError::Timeout {
                        rank: self.shared.rank as u32,
                        awaited: format!(
                            "{awaited} of rank {rank}, to compare it with {} on this rank",
                            self.operation
                        ),
                        missing: vec![rank as u32],
                        elapsed: self.start.elapsed(),
                        source: None,
                    }));
                }
                Err(error) => return Err(self.failed(error)),
            }
        }
    }
}

fn joined(fields: &[Field]) -> String {
    let values: Vec<_> = fields.iter().map(|(_, value)| value.as_str()).collect();
    values.join(SEPARATOR.to_string().as_str())
}
