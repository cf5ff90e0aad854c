//! Sends and receives that run concurrently.
//!
//! One launch carries at most one send to, and one receive from, each member. So the `k`-th send to a member
//! goes in launch `k`, and meets its `k`-th receive there. Only the two ranks of a pair keep in step; others
//! need not make the call.

use crate::backend::CollectiveKernels as _;
use crate::backend::abi::*;
use crate::base::element::Element;
use crate::base::error::Result;
use crate::base::limits::MAX_WORLD;
use crate::buffer::operand::Operand;
use crate::buffer::slice::UntypedSlice;
use crate::collectives::api::Collectives;
use crate::collectives::chosen::{exchange_blocks, exchange_query};
use crate::collectives::compare::{Comparison, Message};
use crate::collectives::nodes::pairs::Pair;
use crate::collectives::options::CollectiveOptions;
use crate::collectives::parts::{AllToAllParts, Ranges, own_pair};
use crate::collectives::run::dispatch::watch;
use crate::collectives::run::kernel::geometry;
use crate::collectives::select::{choose, group, log};
use crate::group::choice::Choice;
use crate::group::membership::Membership;
use crate::group::nccl;
use crate::rank::memory_range::MemoryRange;
use crate::stream::queue::Queue;

/// The operation's name in errors.
const NAME: &str = "exchange";
/// Number of sends and receives that need no allocation.
const INLINE: usize = 32;
/// A send or a receive.
#[derive(Clone, Copy)]
struct Entry<'b> {
    /// The other member.
    peer: usize,
    sends: bool,
    element_bytes: u64,
    memory: MemoryRange<'b>,
}

impl Entry<'_> {
    fn message(&self) -> Message {
        Message {
            member: self.peer,
            sends: self.sends,
            element_bytes: self.element_bytes,
            bytes: self.memory.bytes(),
        }
    }
}

/// Sends and receives of a queue that run concurrently, so that none waits for another: a rank may exchange
/// with itself, and in a ring. Nothing is enqueued before [`Exchange::enqueue`]. Every rank that takes part
/// must call it; the host does not wait.
///
/// The sends from one rank to another match its receives in order. Slices need not be symmetric. A source must
/// not overlap what arrives here in the same exchange: its bytes are undefined then. What arrives must not overlap. The receiver, too, must
/// keep the sender's buffer until it has received: if it has dropped that buffer, it gets
/// [`crate::Error::Mismatch`] at its next synchronization.
///
/// A source that is a [`DeviceSlice`](crate::DeviceSlice) goes in chunks by way of memory that the communicator has for it,
/// which takes longer. The receiver need not know.
///
/// ```no_run
/// # use symmem::*;
/// # fn f(stream: &Stream, right: usize, left: usize, out: &SymmetricBuffer<f32>, inbox: &SymmetricBuffer<f32>) -> Result<()> {
/// let mut exchange = stream.exchange();
/// exchange.send(right, out)?;
/// exchange.recv(left, inbox)?;
/// exchange.enqueue()
/// # }
/// ```
#[must_use = "nothing is sent or received before `enqueue`"]
pub struct Exchange<'b> {
    queue: &'b Queue,
    options: CollectiveOptions<'b>,
    world: usize,
    inline: [Option<Entry<'b>>; INLINE],
    more: Vec<Entry<'b>>,
    length: usize,
}

impl<'b> Exchange<'b> {
    fn new(queue: &'b Queue, options: CollectiveOptions<'b>) -> Self {
        Self {
            queue,
            options,
            world: match options.group {
                Some(group) => group.world_size(),
                None => queue.world().world,
            },
            inline: [None; INLINE],
            more: Vec::new(),
            length: 0,
        }
    }

    /// Adds a send of `source` to `peer`.
    ///
    /// # Errors
    /// [`crate::Error::InvalidArgument`] if there is no such peer, or the buffer is another communicator's. The
    /// exchange is unchanged then.
    pub fn send<T: Element>(
        &mut self,
        peer: usize,
        source: impl Into<Operand<'b, T>>,
    ) -> Result<()> {
        self.add("send", peer, source.into().untyped(), size_of::<T>())
    }

    /// Adds a receive into `destination` of what `peer` sends.
    ///
    /// # Errors
    /// As [`Exchange::send`].
    pub fn recv<T: Element>(
        &mut self,
        peer: usize,
        destination: impl Into<Operand<'b, T>>,
    ) -> Result<()> {
        self.add("recv", peer, destination.into().untyped(), size_of::<T>())
    }

    /// Enqueues all sends and receives. Does not wait for them.
    ///
    /// # Errors
    /// As [`crate::Collectives::all_reduce`]; [`crate::Error::InvalidArgument`] if two destinations overlap.
    pub fn enqueue(self) -> Result<()> {
        self.run()
    }

    fn add(
        &mut self,
        name: &'static str,
        peer: usize,
        slice: UntypedSlice<'b>,
        element_bytes: usize,
    ) -> Result<()> {
        if peer >= self.world {
            let world = self.world;
            let message = format!("there is no rank {peer} in a group of {world}");
            return Err(self.queue.invalid(name, message));
        }
        self.queue.check_same(slice.world, name)?;
        let sends = name == "send";
        if sends {
            check_sent(self.queue, name, &slice.memory)?;
        }
        let entry = Entry {
            peer,
            sends,
            element_bytes: element_bytes.max(1) as u64,
            memory: slice.memory,
        };
        match self.inline.get_mut(self.length) {
            Some(place) => *place = Some(entry),
            None => self.more.push(entry),
        }
        self.length += 1;
        Ok(())
    }

    fn entries(&self) -> impl Iterator<Item = &Entry<'b>> + Clone {
        self.inline.iter().flatten().chain(&self.more)
    }

    /// Returns the `number`-th send to, and receive from, every member that has one.
    fn launch(&self, number: usize) -> impl Iterator<Item = &Entry<'b>> {
        let mut seen = [[0u32; 2]; MAX_WORLD];
        self.entries().filter(move |entry| {
            let count = &mut seen[entry.peer][usize::from(entry.sends)];
            *count += 1;
            *count as usize == number + 1
        })
    }

    /// Checks that no two messages arrive in the same memory.
    fn check_destinations(&self) -> Result<()> {
        let rank = self.queue.world().rank;
        let mut received = self.entries().filter(|entry| !entry.sends);
        while let Some(one) = received.next() {
            let mut others = received.clone();
            if let Some(two) = others.find(|two| one.memory.overlaps(rank, &two.memory)) {
                let message = format!(
                    "what comes from rank {} and from rank {} would arrive in the same memory; pass destinations that do \
                     not overlap",
                    one.peer, two.peer
                );
                return Err(self.queue.invalid(NAME, message));
            }
        }
        Ok(())
    }

    fn run(&self) -> Result<()> {
        let (queue, options) = (self.queue, &self.options);
        let world = queue.world();
        world.health.check()?;
        self.check_destinations()?;
        let membership = group(world, NAME, options)?;
        let (rank, ranks) = (membership.span.rank, membership.span.members.len());
        let launches = (0..).take_while(|&number| self.launch(number).next().is_some());
        let launches = launches.count();
        // All sends of this rank to itself are checked before anything is enqueued.
        for number in 0..launches {
            own_pair_of(self, (world.rank, rank), number)
                .map_err(|message| queue.invalid(NAME, message))?;
        }
        if world.collectives.check_calls {
            let comparison = Comparison::new(world, membership, options, NAME);
            for number in 0..launches {
                let others = self.launch(number).filter(|entry| entry.peer != rank);
                let messages: Vec<_> = others.map(Entry::message).collect();
                comparison.of_messages(&messages)?;
            }
        }
        if membership.span.placement.spans_nodes() {
            let operation = CollectiveOperationCode::EXCHANGE;
            let nodes = queue.nodes((NAME, operation), options, membership)?;
            for number in 0..launches {
                let mut pairs = vec![Pair::default(); ranks];
                for entry in self.launch(number) {
                    let pair = &mut pairs[entry.peer];
                    match entry.sends {
                        true => pair.sent = Some(entry.memory),
                        false => pair.received = Some(entry.memory),
                    }
                }
                nodes.pairs(false, |member| pairs[member])?;
            }
            return Ok(());
        }
        let call = Call::new(
            queue,
            NAME,
            CollectiveOperationCode::EXCHANGE,
            membership,
            options,
        )?;
        if call.library.is_some() {
            return call.by_library(self.entries().copied());
        }
        for number in 0..launches {
            let own = own_pair_of(self, (world.rank, membership.rank), number);
            if let Some((from, to)) = own.ok().flatten() {
                queue.copy_local(NAME, &to, &from)?;
            }
            let others = self.launch(number).copied();
            call.by_kernel(others.filter(|entry| entry.peer != membership.rank))?;
        }
        Ok(())
    }
}

impl Queue {
    /// Begins an [`Exchange`] with default options. Enqueues nothing yet.
    pub fn exchange(&self) -> Exchange<'_> {
        Exchange::new(self, CollectiveOptions::default())
    }
}

impl<'q> Collectives<'q> {
    /// Begins an [`Exchange`] with these options. Enqueues nothing yet.
    pub fn exchange(&self) -> Exchange<'q> {
        Exchange::new(self.queue, *self.options)
    }

    /// [`Collectives::all_to_all_v`] of elements of `element_bytes` bytes.
    pub(crate) fn all_to_all_parts(
        &self,
        destination: UntypedSlice<'_>,
        source: UntypedSlice<'_>,
        parts: &AllToAllParts<'_>,
        element_bytes: usize,
    ) -> Result<()> {
        const NAME: &str = "all_to_all_v";
        let (queue, options) = (self.queue, self.options);
        let world = queue.world();
        world.health.check()?;
        let membership = group(world, NAME, options)?;
        let (to, from) = (self.memory(NAME, destination)?, self.memory(NAME, source)?);
        check_sent(queue, NAME, &from)?;
        let members = membership.span.members.len();
        let element_bytes = element_bytes.max(1) as u64;
        let ranges = Ranges {
            parts,
            to,
            from,
            element_bytes,
            world: members,
        };
        // Everything is checked before anything is enqueued.
        let validated = ranges
            .validate(world.rank, membership.span.rank)
            .map_err(|message| queue.invalid(NAME, message));
        if world.collectives.check_calls {
            let compared = Comparison::new(world, membership, options, NAME).of_parts(
                element_bytes,
                parts,
                validated.as_ref().err(),
            );
            // This rank's own error is more precise than the comparison's.
            validated.and(compared)?;
        } else {
            validated?;
        }
        if membership.span.placement.spans_nodes() {
            let operation = CollectiveOperationCode::ALL_TO_ALL_V;
            let nodes = queue.nodes((NAME, operation), options, membership)?;
            return nodes.pairs(false, |member| match ranges.pair(member) {
                Ok((sent, received)) => Pair {
                    sent: Some(sent),
                    received: Some(received),
                },
                // Every part was checked above.
                Err(_) => Pair::default(),
            });
        }
        let operation = CollectiveOperationCode::ALL_TO_ALL_V;
        let call = Call::new(queue, NAME, operation, membership, options)?;
        // Every part was checked above.
        let entries = (0..members).flat_map(|peer| {
            let pair = ranges.pair(peer).ok();
            pair.into_iter().flat_map(move |(sent, received)| {
                let entry = |sends, memory| Entry {
                    peer,
                    sends,
                    element_bytes,
                    memory,
                };
                [entry(true, sent), entry(false, received)]
            })
        });
        if call.library.is_some() {
            return call.by_library(entries);
        }
        if let Ok((sent, received)) = ranges.pair(membership.rank) {
            queue.copy_local(NAME, &received, &sent)?;
        }
        call.by_kernel(entries.filter(|entry| entry.peer != membership.rank))
    }
}

impl Queue {
    /// Enqueues sends and receives within this node: the other member's number there, whether it is a send, and the memory. At
    /// most one of each with a member, and none with this rank.
    pub(crate) fn exchange_within(
        &self,
        name: &'static str,
        options: &CollectiveOptions<'_>,
        membership: &Membership,
        entries: &[(usize, bool, MemoryRange<'_>)],
    ) -> Result<()> {
        if entries.is_empty() {
            return Ok(());
        }
        let operation = CollectiveOperationCode::EXCHANGE;
        let call = Call::new(self, name, operation, membership, options)?;
        call.by_kernel(entries.iter().map(|&(peer, sends, memory)| Entry {
            peer,
            sends,
            element_bytes: 1,
            memory,
        }))
    }
}

/// How an exchange is done: by NCCL or by the kernel, and with which grid. The same on all members, whatever
/// they send.
struct Call<'c> {
    queue: &'c Queue,
    name: &'static str,
    operation: CollectiveOperationCode,
    membership: &'c Membership,
    options: &'c CollectiveOptions<'c>,
    choice: Choice,
    /// NCCL's communicator, if NCCL does the exchange.
    library: Option<RawNccl>,
}

impl<'c> Call<'c> {
    fn new(
        queue: &'c Queue,
        name: &'static str,
        operation: CollectiveOperationCode,
        membership: &'c Membership,
        options: &'c CollectiveOptions<'c>,
    ) -> Result<Self> {
        let world = queue.world();
        // Sends and receives do not go through windows, so they may start anywhere.
        let library = world.collectives.nccl.of(options.provider, true);
        let library = library.filter(|_| membership.whole);
        let query = exchange_query(operation, membership.world(), library.is_some());
        let choice = choose(world, name, &query, options)?;
        log(world, name, &query, choice);
        let call = Self {
            queue,
            name,
            operation,
            membership,
            options,
            choice,
            library: library.filter(|_| choice.algorithm == AlgorithmCode::VENDOR),
        };
        // A rank that sends only to itself copies.
        if membership.world() > 1 {
            queue.admit(name, membership.sequence(options.channel))?;
        }
        Ok(call)
    }

    fn by_library<'e>(&self, entries: impl Iterator<Item = Entry<'e>>) -> Result<()> {
        let Some(library) = self.library else {
            return Ok(());
        };
        let submit = self.queue.submit(self.name);
        // NCCL chooses its own grid.
        submit.follow(self.membership.sequence(self.options.channel), u32::MAX);
        let rank = submit.rank();
        let messages = entries.map(|entry| {
            let address = submit.address(&entry.memory, rank);
            (entry.peer, entry.sends, address, entry.memory.bytes())
        });
        // SAFETY: the ranges are inside live allocations, which `submit` keeps. NCCL sees whether both ranks of a
        // pair mean the same message.
        let enqueued =
            unsafe { nccl::messages(submit.backend(), library, messages, submit.stream()) };
        submit.end(enqueued)
    }

    /// Makes one launch: at most one send to, and one receive from, each other member.
    fn by_kernel<'e>(&self, entries: impl Iterator<Item = Entry<'e>>) -> Result<()> {
        let mut entries = entries.peekable();
        if entries.peek().is_none() {
            return Ok(());
        }
        let (shared, membership) = (self.queue.world(), self.membership);
        let (blocks, per_peer) =
            exchange_blocks(shared, self.name, self.choice, membership.world())?;
        let threads = self.choice.threads;
        let selector = &shared.collectives.selector;
        let slots = &membership.slots;
        let watch = watch(shared, self.options);
        let dependents = self.options.dependents;
        let header = slots.header(self.options.channel, self.operation, watch, dependents);
        let grid = geometry(blocks, threads);
        let submit = self.queue.submit(self.name);
        submit.hold(slots.allocation());
        submit.follow(
            membership.sequence(self.options.channel),
            selector.residency().fits(blocks),
        );
        let everyone = &shared.collectives.everyone.slots;
        submit.hold(everyone.allocation());
        let (staging, chunk_bytes) = slots.staging(self.options.channel, per_peer);
        let mut arguments = ExchangeArguments {
            group: *header.channel,
            send_tokens: [NO_TOKEN; MAX_RANKS],
            send_bytes: [0; MAX_RANKS],
            destinations: [NO_TOKEN; MAX_RANKS],
            receive_bytes: [0; MAX_RANKS],
            table: everyone.table(shared.rank),
            table_ranks: shared.placement.node_members(shared.rank).len() as u32,
            blocks_per_peer: per_peer,
            staging,
            chunk_bytes,
            reserved: 0,
        };
        header.complete(&mut arguments.group);
        for Entry {
            peer,
            sends,
            memory,
            ..
        } in entries
        {
            let address = submit.address(&memory, shared.rank);
            if sends {
                // `check_sent` has passed.
                arguments.send_tokens[peer] = token(&memory, shared.rank).unwrap_or(NO_TOKEN);
                arguments.send_bytes[peer] = memory.bytes();
            } else {
                arguments.destinations[peer] = address.0;
                arguments.receive_bytes[peer] = memory.bytes();
            }
        }
        // SAFETY: this rank's ranges are inside live allocations, which `submit` keeps, and a sender's stream
        // waits until the receiver is done. The kernel finds peers' sources in the address table. An allocation
        // is removed from it before it is unmapped, and the unmapping waits until no ticket is out; `submit`
        // holds one.
        let enqueued = unsafe {
            submit
                .backend()
                .collective_exchange(&arguments, &grid, submit.stream())
        };
        submit.end(enqueued)
    }
}

/// Returns the token of memory that this rank, `rank` of the communicator, sends. Receivers do not check it: only a peer of
/// the same version writes one, and it can write to this rank's memory anyway.
fn token(memory: &MemoryRange<'_>, rank: usize) -> Option<u64> {
    match memory.row() {
        Some(row) => Some(row << TOKEN_OFFSET_BITS | memory.offset()),
        None => ExchangeArguments::own_token(DeviceAddress(memory.start(rank))),
    }
}

/// Checks that memory to be sent has a token wherever a part of it begins.
///
/// # Errors
/// [`crate::Error::InvalidArgument`] if its addresses have too many bits.
fn check_sent(queue: &Queue, name: &'static str, memory: &MemoryRange<'_>) -> Result<()> {
    let rank = queue.world().rank;
    if token(&memory.part(memory.bytes(), 0), rank).is_some() {
        return Ok(());
    }
    let message = format!(
        "memory at {:#x} cannot be sent, since its addresses have more than {TOKEN_OFFSET_BITS} bits; copy it to a \
         symmetric buffer",
        memory.start(rank)
    );
    Err(queue.invalid(name, message))
}

/// Returns what this rank sends itself in launch `number`, and where it receives it. This rank is member `rank`
/// of the group and rank `own` of the communicator.
fn own_pair_of<'b>(
    exchange: &Exchange<'b>,
    (own, rank): (usize, usize),
    number: usize,
) -> std::result::Result<Option<(MemoryRange<'b>, MemoryRange<'b>)>, String> {
    let (mut sent, mut received) = (None, None);
    for entry in exchange.launch(number).filter(|entry| entry.peer == rank) {
        let place = if entry.sends {
            &mut sent
        } else {
            &mut received
        };
        *place = Some(entry.memory);
    }
    match (sent, received) {
        (None, None) => Ok(None),
        (Some(sent), Some(received)) => {
            own_pair(own, &sent, &received)?;
            Ok(Some((sent, received)))
        }
        (Some(_), None) => Err(
            "a send to this rank itself has no matching receive; add a `recv` from this rank to the exchange".into(),
        ),
        (None, Some(_)) => Err(
            "a receive from this rank itself has no matching send; add a `send` to this rank to the exchange".into(),
        ),
    }
}
