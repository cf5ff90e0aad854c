//! Sends and receives, done at once.
//!
//! One launch carries at most one send to, and one receipt from, each member; so the `k`-th send to a
//! member goes in launch `k`, and meets its `k`-th receipt there. Only the two of a pair keep in step:
//! the others need not make the call.

use crate::backend::Collectives;
use crate::backend::abi::*;
use crate::base::element::Element;
use crate::base::error::{Error, Result};
use crate::buffer::symmetric::BufferRange;
use crate::collectives::call::CollectiveOptions;
use crate::collectives::check::{Comparison, Message};
use crate::collectives::launch::{Extent, geometry};
use crate::collectives::parts::{Parts, Ranges};
use crate::group::membership::Group;
use crate::group::membership::Membership;
use crate::group::selector::{Choice, Query};
use crate::group::slots::COLLECTIVE_CHANNELS;
use crate::rank::allocation::Allocation;
use crate::rank::context::Kept;
use crate::rank::context::Shared;
use crate::stream::transfers::Stream;
use std::sync::Arc;

/// Sends and receives that are remembered without allocating.
const INLINE: usize = 32;
/// Offsets in a token are below this; the allocation's row of the table is above. Receivers take a token
/// as it is: only a peer of the same version writes one, which can write to this rank's memory anyway.
const TOKEN_OFFSET_BITS: u32 = 48;

/// One send or receipt.
#[derive(Clone, Copy)]
struct Entry<'b> {
    /// The other member.
    peer: usize,
    sends: bool,
    element_bytes: u64,
    extent: Extent<'b>,
}

impl Entry<'_> {
    fn message(&self) -> Message {
        Message {
            member: self.peer,
            sends: self.sends,
            element_bytes: self.element_bytes,
            bytes: self.extent.bytes,
        }
    }
}

/// The sends and receives of one [`crate::Stream::exchange`].
pub struct Exchange<'b> {
    shared: Arc<Shared>,
    world: usize,
    inline: [Option<Entry<'b>>; INLINE],
    more: Vec<Entry<'b>>,
    length: usize,
}

impl<'b> Exchange<'b> {
    pub(super) fn new(shared: &Arc<Shared>, options: &CollectiveOptions<'_>) -> Result<Self> {
        Ok(Self {
            shared: shared.clone(),
            world: options.group.map_or(shared.world, Group::world),
            inline: [None; INLINE],
            more: Vec::new(),
            length: 0,
        })
    }

    /// Adds a send of `source` to `peer`.
    ///
    /// # Errors
    /// [`crate::Error::InvalidArgument`] if there is no such peer, or the buffer is another
    /// communicator's.
    pub fn send<T: Element>(&mut self, peer: usize, source: BufferRange<'b, T>) -> Result<()> {
        self.add("send", peer, source)
    }

    /// Adds a receipt into `destination` of what `peer` sends.
    ///
    /// # Errors
    /// As [`Exchange::send`].
    pub fn receive<T: Element>(
        &mut self,
        peer: usize,
        destination: BufferRange<'b, T>,
    ) -> Result<()> {
        self.add("receive", peer, destination)
    }

    fn add<T: Element>(
        &mut self,
        name: &'static str,
        peer: usize,
        range: BufferRange<'b, T>,
    ) -> Result<()> {
        let invalid = |message: String| Error::InvalidArgument {
            rank: self.shared.rank,
            operation: name,
            message,
        };
        if peer >= self.world {
            let world = self.world;
            return Err(invalid(format!(
                "there is no rank {peer} in a group of {world}"
            )));
        }
        if !Arc::ptr_eq(range.buffer().shared(), &self.shared) {
            return Err(invalid(
                "buffer and stream belong to different communicators".into(),
            ));
        }
        let entry = Entry {
            peer,
            sends: name == "send",
            element_bytes: size_of::<T>() as u64,
            extent: Extent {
                allocation: range.buffer().allocation(),
                offset: range.byte_offset(),
                bytes: range.bytes(),
            },
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

    /// The `number`-th send to, or receipt from, every member that has one.
    fn launch(&self, number: usize) -> impl Iterator<Item = &Entry<'b>> {
        let mut seen = [[0usize; 2]; MAX_RANKS];
        self.entries().filter(move |entry| {
            let count = &mut seen[entry.peer][usize::from(entry.sends)];
            *count += 1;
            *count == number + 1
        })
    }
}

impl Stream {
    /// Does what was collected.
    pub(super) fn exchange_all(
        &self,
        exchange: &Exchange<'_>,
        options: &CollectiveOptions<'_>,
    ) -> Result<()> {
        const NAME: &str = "exchange";
        let shared = self.shared();
        shared.health.check()?;
        let membership = self.membership(NAME, options)?;
        let uses = || exchange.entries().map(|entry| entry.extent.allocation);
        let launches = (0..).take_while(|&number| exchange.launch(number).next().is_some());
        let launches = launches.count();
        // All of this rank's own are checked before anything is enqueued.
        for number in 0..launches {
            own_pair(exchange, membership.rank, number)
                .map_err(|message| self.invalid(NAME, message))?;
        }
        if shared.collectives().check_calls {
            let comparison = Comparison::new(shared, membership, options, NAME);
            for number in 0..launches {
                let others = exchange
                    .launch(number)
                    .filter(|entry| entry.peer != membership.rank);
                let messages: Vec<_> = others.map(Entry::message).collect();
                comparison.of_messages(&messages)?;
            }
        }
        let operation = CollectiveOperation::EXCHANGE;
        let way = self.way(NAME, operation, membership, options)?;
        if let Some(vendor) = way.vendor {
            let entries = exchange.entries().copied();
            return self.exchange_by_vendor(NAME, vendor, entries, uses());
        }
        for number in 0..launches {
            let mut request = Request::new();
            let own = own_pair(exchange, membership.rank, number).ok().flatten();
            if let Some((from, to)) = own {
                self.copy_local(NAME, to, from, to.bytes)?;
            }
            for entry in exchange.launch(number) {
                if entry.peer != membership.rank {
                    request.add(entry.peer, entry.sends, &entry.extent, shared.rank);
                }
            }
            self.submit_exchange(NAME, &way, membership, request, uses(), options)?;
        }
        Ok(())
    }

    /// See [`Stream::all_to_all_v`].
    pub(super) fn all_to_all_parts<T: Element>(
        &self,
        destination: BufferRange<'_, T>,
        source: BufferRange<'_, T>,
        parts: &Parts<'_>,
        options: &CollectiveOptions<'_>,
    ) -> Result<()> {
        const NAME: &str = "all_to_all_v";
        let shared = self.shared();
        shared.health.check()?;
        let membership = self.membership(NAME, options)?;
        let (to, from) = (self.extent(NAME, destination)?, self.extent(NAME, source)?);
        let world = membership.world();
        let element_bytes = size_of::<T>() as u64;
        let ranges = Ranges {
            parts,
            to,
            from,
            element_bytes,
            world,
        };
        // Everything is checked before anything is enqueued.
        let judged = ranges
            .judge(membership.rank)
            .map_err(|message| self.invalid(NAME, message));
        if shared.collectives().check_calls {
            let compared = Comparison::new(shared, membership, options, NAME).of_parts(
                element_bytes,
                parts,
                judged.as_ref().err(),
            );
            // This rank knows best what it got wrong itself.
            judged.and(compared)?;
        } else {
            judged?;
        }
        let way = self.way(NAME, CollectiveOperation::ALL_TO_ALL_V, membership, options)?;
        // Every part was found good above.
        let pairs = || (0..world).filter_map(|member| Some((member, ranges.pair(member).ok()?)));
        let uses = [to.allocation, from.allocation].into_iter();
        if let Some(vendor) = way.vendor {
            let entries = pairs().flat_map(|(peer, (sent, received))| {
                let entry = |sends, extent| Entry {
                    peer,
                    sends,
                    element_bytes,
                    extent,
                };
                [entry(true, sent), entry(false, received)]
            });
            return self.exchange_by_vendor(NAME, vendor, entries, uses);
        }
        let mut request = Request::new();
        for (member, (sent, received)) in pairs() {
            if member == membership.rank {
                self.copy_local(NAME, received, sent, received.bytes)?;
            } else {
                request.add(member, true, &sent, shared.rank);
                request.add(member, false, &received, shared.rank);
            }
        }
        self.submit_exchange(NAME, &way, membership, request, uses, options)
    }

    /// Who does it, and with which grid; alike on all members, whatever they send.
    fn way(
        &self,
        name: &'static str,
        operation: CollectiveOperation,
        membership: &Membership,
        options: &CollectiveOptions<'_>,
    ) -> Result<Way> {
        let vendors = &self.shared().collectives().vendors;
        // Sends and receives do not go through windows, so they may start anywhere.
        let vendor = vendors
            .of(options.provider, true)
            .filter(|_| membership.whole);
        let query = Query {
            push_channels: 0,
            multicast: false,
            operation,
            element: ElementType::U8,
            reduce: ReduceOperation::default(),
            world: membership.world() as u32,
            // No rank knows what the others send, and all need the same.
            bytes: u64::MAX,
            in_place: false,
            vendor: vendor.is_some(),
        };
        let choice = self.choose(name, &query, options)?;
        Ok(Way {
            operation,
            choice,
            vendor: vendor.filter(|_| choice.algorithm == Algorithm::VENDOR),
        })
    }

    fn exchange_by_vendor<'a>(
        &self,
        name: &'static str,
        vendor: RawVendor,
        entries: impl Iterator<Item = Entry<'a>>,
        uses: impl Iterator<Item = &'a Arc<Allocation>> + Clone,
    ) -> Result<()> {
        let shared = self.shared();
        let entries = entries.map(|entry| (entry.peer, entry.sends, entry.extent));
        let kept = || uses.clone().map(|used| used.clone() as Kept).collect();
        self.enqueue(kept, || {
            let (backend, rank) = (&*shared.backend, shared.rank);
            // SAFETY: the ranges are inside live allocations that are released only once this rank's
            // streams are idle; that both of a pair mean the same is for the library to see.
            unsafe {
                crate::group::nccl::exchange(backend, vendor, rank, entries, self.raw_handle())
            }
        })
        .map_err(|failure| shared.failed(name, failure))
    }

    fn submit_exchange<'a>(
        &self,
        name: &'static str,
        way: &Way,
        membership: &'a Membership,
        request: Request,
        uses: impl Iterator<Item = &'a Arc<Allocation>> + Clone,
        options: &CollectiveOptions<'_>,
    ) -> Result<()> {
        let shared = self.shared();
        if !request.any {
            return Ok(());
        }
        debug_assert!(options.channel < COLLECTIVE_CHANNELS);
        let world = membership.world() as u32;
        let choice = &way.choice;
        // One block announces; each member's sends are received by as many blocks of the rest.
        let per_peer = (choice.blocks.saturating_sub(1) / world).max(1);
        let blocks = world * per_peer + 1;
        let selector = &shared.collectives().selector;
        let most =
            selector.most_resident(CollectiveKernel::EXCHANGE, ElementType::U8, choice.threads);
        if selector.has_grids() && blocks > most {
            return Err(self.invalid(
                name,
                format!(
                    "an exchange of {world} ranks takes {blocks} blocks of {} threads, but only {most} \
                     can be resident at once; use fewer threads",
                    choice.threads
                ),
            ));
        }
        let operation = way.operation;
        let slots = &membership.slots;
        let header = slots.header(options.channel, operation, self.watch(options));
        let mut arguments = ExchangeArguments {
            group: *header.channel,
            send_tokens: request.send_tokens,
            send_bytes: request.send_bytes,
            destinations: request.destinations,
            receive_bytes: request.receive_bytes,
            table: shared.collectives().everyone.slots.table(shared.rank),
            table_ranks: shared.world as u32,
            blocks_per_peer: per_peer,
        };
        header.complete(&mut arguments.group);
        let grid = geometry(blocks, choice.threads);
        let slots = std::iter::once(membership.slots.allocation());
        let kept = || {
            let uses = uses.clone().chain(slots.clone());
            uses.map(|used| used.clone() as Kept).collect()
        };
        self.enqueue(kept, || {
            // SAFETY: all ranges are inside live allocations that are released only once this rank's
            // streams are idle; a sender's stream is not before the receiver is done.
            unsafe {
                shared
                    .backend
                    .collective_exchange(&arguments, &grid, self.raw_handle())
            }
        })
        .map_err(|failure| shared.failed(name, failure))
    }
}

/// How an exchange is done.
struct Way {
    operation: CollectiveOperation,
    choice: Choice,
    /// The library's communicator, where it does it.
    vendor: Option<RawVendor>,
}

/// What one launch sends and receives.
struct Request {
    send_tokens: [u64; MAX_RANKS],
    send_bytes: [u64; MAX_RANKS],
    destinations: [u64; MAX_RANKS],
    receive_bytes: [u64; MAX_RANKS],
    any: bool,
}

impl Request {
    fn new() -> Self {
        Self {
            send_tokens: [NO_TOKEN; MAX_RANKS],
            send_bytes: [0; MAX_RANKS],
            destinations: [NO_TOKEN; MAX_RANKS],
            receive_bytes: [0; MAX_RANKS],
            any: false,
        }
    }

    fn add(&mut self, peer: usize, sends: bool, extent: &Extent<'_>, rank: usize) {
        self.any = true;
        if sends {
            let row = extent.allocation.entry() as u64;
            self.send_tokens[peer] = row << TOKEN_OFFSET_BITS | extent.offset;
            self.send_bytes[peer] = extent.bytes;
        } else {
            self.destinations[peer] = extent.address(rank).0;
            self.receive_bytes[peer] = extent.bytes;
        }
    }
}

/// What a rank sends itself in one launch, and where it receives it.
fn own_pair<'b>(
    exchange: &Exchange<'b>,
    rank: usize,
    number: usize,
) -> std::result::Result<Option<(Extent<'b>, Extent<'b>)>, String> {
    let (mut sent, mut received) = (None, None);
    for entry in exchange.launch(number).filter(|entry| entry.peer == rank) {
        let place = if entry.sends {
            &mut sent
        } else {
            &mut received
        };
        *place = Some(entry.extent);
    }
    match (sent, received) {
        (None, None) => Ok(None),
        (Some(sent), Some(received)) => {
            pair(sent, received)?;
            Ok(Some((sent, received)))
        }
        _ => Err(
            "a send of this rank to itself has no receipt in the same exchange, or the other way \
             round"
                .into(),
        ),
    }
}

/// Checks a send of a rank to itself.
pub(super) fn pair(sent: Extent<'_>, received: Extent<'_>) -> std::result::Result<(), String> {
    if sent.bytes != received.bytes {
        return Err(format!(
            "this rank sends itself {} bytes but expects {}",
            sent.bytes, received.bytes
        ));
    }
    if own_start(&sent) != own_start(&received) && overlap(&sent, &received) {
        return Err("what this rank sends itself overlaps where it receives it".into());
    }
    Ok(())
}

/// Where this rank's copy of a range starts.
fn own_start(extent: &Extent<'_>) -> u64 {
    extent.allocation.own.address.0 + extent.offset
}

/// Whether two ranges of this rank have a byte in common.
pub(super) fn overlap(one: &Extent<'_>, other: &Extent<'_>) -> bool {
    let (start, its) = (own_start(one), own_start(other));
    // No bytes overlap nothing, also inside another range.
    one.bytes > 0 && other.bytes > 0 && start < its + other.bytes && its < start + one.bytes
}
