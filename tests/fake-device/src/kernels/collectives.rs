//! Collectives, step kernels and operations on words.
//!
//! One thread emulates a grid, as in the host backend. Only addresses that the arguments name are looked up, and what
//! would break on a GPU is a violation.

use std::cell::RefCell;

use symmem_core::backend::abi::{
    CollectiveGroup, DeviceAddress, ElementTypeCode, ExchangeArguments, MAX_RANKS, MoveArguments,
    NO_TOKEN, PACKET_BLOCKS, PUSH_PAIR_THREADS, PacketArguments, PieceArguments, ReduceArguments,
    ReducePacketArguments, ReducePushArguments, SLOT_BLOCKS, SLOT_BYTES, StepArguments, Watch,
    WordOperation, WordWait,
};
use symmem_core::host::emulation::{self, Work};

use super::signals::{give, target_ranges, wait_for, wait_ranges_of, watch_ranges};
use super::{Launch, touched};
use crate::error::{Code, Result};
use crate::memory::{Engine, Piece};
use crate::multicast::Accessing;
use crate::report::violation;
use crate::work::Runner;

/// Translates device addresses to addresses in this process and keeps the memory mapped.
pub(super) struct Translation<'a> {
    runner: &'a Runner,
    kept: RefCell<Vec<Piece>>,
    accesses: RefCell<Vec<Accessing>>,
}

impl<'a> Translation<'a> {
    pub(super) fn new(runner: &'a Runner) -> Self {
        Self {
            runner,
            kept: RefCell::default(),
            accesses: RefCell::default(),
        }
    }

    /// Returns where `bytes` from an address lie. With zero bytes the address is returned unchecked.
    pub(super) fn find(&self, address: DeviceAddress, bytes: u64) -> Result<DeviceAddress> {
        if bytes == 0 {
            return Ok(address);
        }
        let mut pieces = self.runner.resolve(address.0, bytes, Engine::Kernel)?;
        let together = pieces
            .windows(2)
            .all(|pair| pair[0].pointer.wrapping_add(pair[0].bytes) == pair[1].pointer);
        let Some(first) = pieces.first().filter(|_| together) else {
            violation(format!(
                "{bytes} bytes at {:#x} are several allocations, which this fake's collectives cannot take",
                address.0
            ));
            return Err(Code::ILLEGAL_ADDRESS);
        };
        let found = DeviceAddress(first.pointer.expose_provenance() as u64);
        self.kept.borrow_mut().append(&mut pieces);
        Ok(found)
    }

    /// Returns where each member's bytes behind a multicast address lie, in the order of the switch.
    pub(super) fn replicas(
        &self,
        address: DeviceAddress,
        bytes: u64,
    ) -> Result<Vec<DeviceAddress>> {
        let (mut pieces, accessing) = self.runner.replicas(address.0, bytes)?;
        self.accesses.borrow_mut().push(accessing);
        let at = |piece: &Piece| DeviceAddress(piece.pointer.expose_provenance() as u64);
        let found = pieces.iter().map(at).collect();
        self.kept.borrow_mut().append(&mut pieces);
        Ok(found)
    }

    /// Translates an address in place, as [`Translation::find`] does, unless it is null.
    pub(super) fn change(&self, address: &mut DeviceAddress, bytes: u64) -> Result {
        if address.0 != 0 {
            *address = self.find(*address, bytes)?;
        }
        Ok(())
    }

    pub(super) fn watch(&self, watch: &mut Watch) -> Result {
        self.change(&mut watch.abort, 4)?;
        self.change(&mut watch.record, RECORD_BYTES)?;
        self.change(&mut watch.aborted, 4)
    }

    pub(super) fn group(&self, group: &mut CollectiveGroup, packets: bool) -> Result {
        let bytes = slots_bytes(group, packets);
        self.group_of(group, bytes)
    }

    /// Translates a group's addresses, each member's slots with `bytes`.
    fn group_of(&self, group: &mut CollectiveGroup, bytes: u64) -> Result {
        self.watch(&mut group.watch)?;
        let world = members(group)?;
        // Peers write into this rank's slots, which it polls.
        if world > 1 {
            self.runner.check_polled(group.slots[group.rank as usize].0);
        }
        for slots in &mut group.slots[..world] {
            *slots = self.find(*slots, bytes)?;
        }
        Ok(())
    }

    /// Runs the work and returns the error that the driver would report.
    pub(super) fn run(&self, launch: &Launch, work: Work<'_>) -> Result {
        let mut rounds = 0;
        let mut end = Ok(());
        let mut pause = || {
            end = self.runner.pause(&mut rounds);
            end.is_ok()
        };
        // SAFETY: every address was looked up with the size that the kernel uses, and stays mapped while `self.kept`
        // lives.
        let ran = unsafe { emulation::run(work, &mut pause) };
        if let Err(failure) = ran {
            violation(format!("{}: {}", launch.kernel.name, failure.message));
            return Err(Code::ILLEGAL_ADDRESS);
        }
        end
    }
}

const RECORD_BYTES: u64 = size_of::<symmem_core::backend::abi::WaitRecord>() as u64;

pub(super) fn members(group: &CollectiveGroup) -> Result<usize> {
    let world = group.world as usize;
    if world == 0 || world > MAX_RANKS || group.rank >= group.world {
        violation(format!(
            "a collective of {world} ranks, here as rank {}",
            group.rank
        ));
        return Err(Code::ILLEGAL_ADDRESS);
    }
    Ok(world)
}

pub(super) fn slots_bytes(group: &CollectiveGroup, packets: bool) -> u64 {
    let regions = if packets {
        u64::from(PACKET_BLOCKS) * u64::from(group.packet_bytes)
    } else {
        0
    };
    u64::from(SLOT_BLOCKS) * SLOT_BYTES + regions
}

/// Reports a grid with more blocks than there are slots or regions.
pub(super) fn check_grid(launch: &Launch, most: u32) {
    let [blocks, y, z] = launch.blocks;
    if blocks > most || y != 1 || z != 1 {
        violation(format!(
            "{} has slots for {most} blocks, not for {:?}",
            launch.kernel.name, launch.blocks
        ));
    }
}

/// Whether the element type in a kernel's name is the one in its arguments; reports a violation if not.
pub(super) fn check_element(launch: &Launch, prefix: &str, element: ElementTypeCode) -> bool {
    let named = launch.kernel.name.strip_prefix(prefix).unwrap_or_default();
    let same = named == element.name().to_ascii_lowercase();
    if !same {
        violation(format!(
            "{} is given elements of {} ({})",
            launch.kernel.name,
            element.name(),
            element.0
        ));
    }
    same
}

pub(super) fn group_ranges(group: &CollectiveGroup, packets: bool) -> Vec<(u64, u64)> {
    let bytes = slots_bytes(group, packets);
    let world = (group.world as usize).min(MAX_RANKS);
    let slots = group.slots[..world].iter().map(|slots| (slots.0, bytes));
    slots.chain(watch_ranges(&group.watch)).collect()
}

pub(super) fn spans<'a>(
    addresses: &'a [DeviceAddress],
    bytes: impl Fn(usize) -> u64 + 'a,
) -> impl Iterator<Item = (u64, u64)> + 'a {
    let named = addresses.iter().enumerate();
    named
        .map(move |(index, address)| (address.0, bytes(index)))
        .filter(|(address, bytes)| *address != 0 && *bytes != 0)
}

// ---- copies and swaps between two barriers ----

pub(super) fn move_bytes(launch: &Launch, runner: &Runner) -> Result {
    let mut arguments: MoveArguments = launch.arguments();
    let translation = translated(launch, runner, &mut arguments)?;
    translation.run(launch, Work::Move(&arguments))
}

pub(super) fn swap_bytes(launch: &Launch, runner: &Runner) -> Result {
    let mut arguments: MoveArguments = launch.arguments();
    let translation = translated(launch, runner, &mut arguments)?;
    translation.run(launch, Work::Swap(&arguments))
}

/// Checks the grid and translates all addresses in the arguments.
fn translated<'a>(
    launch: &Launch,
    runner: &'a Runner,
    arguments: &mut MoveArguments,
) -> Result<Translation<'a>> {
    check_grid(launch, SLOT_BLOCKS);
    let translation = Translation::new(runner);
    translation.group(&mut arguments.group, false)?;
    let copies = (arguments.copies as usize).min(MAX_RANKS);
    if arguments.concurrent == 0 {
        violation(format!(
            "{} divides its blocks among no copies",
            launch.kernel.name
        ));
    }
    for index in 0..copies {
        let bytes = arguments.bytes[index];
        // The kernel skips a copy onto itself, so equal addresses must stay equal.
        if arguments.destinations[index] == arguments.sources[index] {
            continue;
        }
        translation.change(&mut arguments.destinations[index], bytes)?;
        translation.change(&mut arguments.sources[index], bytes)?;
    }
    Ok(translation)
}

pub(super) fn move_ranges(launch: &Launch) -> Vec<(u64, u64)> {
    let arguments: MoveArguments = launch.arguments();
    let copies = (arguments.copies as usize).min(MAX_RANKS);
    let mut ranges = group_ranges(&arguments.group, false);
    for addresses in [&arguments.destinations, &arguments.sources] {
        ranges.extend(spans(&addresses[..copies], |index| arguments.bytes[index]));
    }
    ranges
}

// ---- packets ----

pub(super) fn move_packets(launch: &Launch, runner: &Runner) -> Result {
    let arguments: PacketArguments = launch.arguments();
    check_grid(launch, PACKET_BLOCKS);
    check_small_move(launch, &arguments, members(&arguments.group)?);
    moved_in_packets(launch, &Translation::new(runner), arguments)
}

fn moved_in_packets(
    launch: &Launch,
    translation: &Translation<'_>,
    mut arguments: PacketArguments,
) -> Result {
    translation.group(&mut arguments.group, true)?;
    for member in 0..members(&arguments.group)? {
        let (sent, received) = (
            arguments.send_bytes[member],
            arguments.receive_bytes[member],
        );
        translation.change(&mut arguments.sources[member], sent)?;
        translation.change(&mut arguments.destinations[member], received)?;
    }
    translation.run(launch, Work::Packets(&arguments))
}

/// Has the same effect as `move_packets`. Checks that the inboxes are mapped, and does not touch them.
pub(super) fn move_pieces(launch: &Launch, runner: &Runner) -> Result {
    let arguments: PieceArguments = launch.arguments();
    check_grid(launch, SLOT_BLOCKS);
    check_channels(launch, arguments.channels);
    let world = members(&arguments.group)?;
    let lengths = [&arguments.send_bytes, &arguments.receive_bytes];
    let too_long = |bytes: &&[u64; MAX_RANKS]| {
        bytes[..world]
            .iter()
            .any(|&bytes| bytes > arguments.longest)
    };
    if lengths.iter().any(too_long) {
        violation(format!(
            "{} has a message of more than {} bytes",
            launch.kernel.name, arguments.longest
        ));
    }
    let translation = Translation::new(runner);
    for (address, bytes) in inbox_ranges(&arguments) {
        translation.find(DeviceAddress(address), bytes)?;
    }
    moved_in_packets(launch, &translation, arguments.in_packets())
}

fn inbox_ranges(arguments: &PieceArguments) -> Vec<(u64, u64)> {
    let world = (arguments.group.world as usize).min(MAX_RANKS);
    let inbox = u64::from(arguments.channels) * arguments.channel_bytes;
    spans(&arguments.inboxes[..world], |_| inbox).collect()
}

pub(super) fn pieces_ranges(launch: &Launch) -> Vec<(u64, u64)> {
    let arguments: PieceArguments = launch.arguments();
    let mut ranges = moved_ranges(&arguments.in_packets());
    ranges.extend(inbox_ranges(&arguments));
    ranges
}

/// How much a small kernel does in one call, as its name says.
#[derive(Clone, Copy)]
pub(super) struct Small {
    /// The word of the name.
    pub name: &'static str,
    /// Packets of a thread for each peer.
    pub each: u64,
    /// The only number of members that it serves, if there is one.
    pub only: Option<usize>,
}

impl Small {
    /// Returns whether the kernel serves a group whose members get different data.
    pub fn serves(&self, world: usize) -> bool {
        self.only.map_or(world <= 8, |only| world == only)
    }
}

/// Returns what a small kernel does; `None` for other kernels.
pub(super) fn small(kernel: &str) -> Option<Small> {
    const SMALL: [(&str, u64, Option<usize>); 6] = [
        ("few", 1, None),
        ("pair1", 1, Some(2)),
        ("pair2", 2, Some(2)),
        ("pair4", 4, Some(2)),
        ("four", 1, Some(4)),
        ("eight", 1, Some(8)),
    ];
    let named = |&(name, ..): &(&str, u64, _)| kernel.split('_').any(|word| word == name);
    let (name, each, only) = SMALL.into_iter().find(named)?;
    Some(Small { name, each, only })
}

/// Reports a call that is not one of a small kernel's: it takes one round, and neither odd ends nor odd addresses.
fn check_small_move(launch: &Launch, arguments: &PacketArguments, world: usize) {
    let Some(small) = small(launch.kernel.name) else {
        return;
    };
    let lengths = arguments.send_bytes[..world]
        .iter()
        .chain(&arguments.receive_bytes[..world]);
    let longest = lengths.clone().max().copied().unwrap_or(0);
    let addresses = arguments.sources[..world]
        .iter()
        .chain(&arguments.destinations[..world]);
    let all = lengths
        .copied()
        .chain(addresses.map(|address| address.0))
        .fold(0, |all, number| all | number);
    let room = u64::from(arguments.group.packet_bytes) / 2 / world as u64 / 16;
    let (width, blocks) = (u64::from(launch.threads[0]), u64::from(launch.blocks[0]));
    let each = small.each;
    let fits = longest / 8 <= each * width * blocks && each * width <= room;
    if !small.serves(world) || !fits || !all.is_multiple_of(8) {
        violation(format!(
            "{} is given up to {longest} bytes in a group of {world}, for {blocks} blocks of {width} threads and \
             {room} packets of room; the bits of all lengths and addresses are {all:#x}",
            launch.kernel.name
        ));
    }
}

pub(super) fn packets_ranges(launch: &Launch) -> Vec<(u64, u64)> {
    moved_ranges(&launch.arguments())
}

fn moved_ranges(arguments: &PacketArguments) -> Vec<(u64, u64)> {
    let world = (arguments.group.world as usize).min(MAX_RANKS);
    let mut ranges = group_ranges(&arguments.group, true);
    ranges.extend(spans(&arguments.sources[..world], |member| {
        arguments.send_bytes[member]
    }));
    ranges.extend(spans(&arguments.destinations[..world], |member| {
        arguments.receive_bytes[member]
    }));
    ranges
}

// ---- reductions ----

pub(super) fn reduce(launch: &Launch, runner: &Runner) -> Result {
    let mut arguments: ReduceArguments = launch.arguments();
    check_grid(launch, SLOT_BLOCKS);
    check_element(launch, "symmem_reduce_", arguments.element);
    reduce_loaded(launch, &Translation::new(runner), &mut arguments)
}

fn reduce_loaded(
    launch: &Launch,
    translation: &Translation<'_>,
    arguments: &mut ReduceArguments,
) -> Result {
    translation.group(&mut arguments.group, false)?;
    let bytes = arguments.count * arguments.element.bytes();
    for member in 0..members(&arguments.group)? {
        translation.change(&mut arguments.sources[member], bytes)?;
        translation.change(&mut arguments.destinations[member], bytes)?;
    }
    translation.run(launch, Work::Reduce(arguments))
}

pub(super) fn reduce_ranges(launch: &Launch) -> Vec<(u64, u64)> {
    loaded_ranges(&launch.arguments())
}

fn loaded_ranges(arguments: &ReduceArguments) -> Vec<(u64, u64)> {
    let world = (arguments.group.world as usize).min(MAX_RANKS);
    let bytes = arguments.count * arguments.element.bytes();
    let mut ranges = group_ranges(&arguments.group, false);
    for addresses in [&arguments.destinations, &arguments.sources] {
        ranges.extend(spans(&addresses[..world], |_| bytes));
    }
    ranges
}

/// Has the same effect as `reduce`, or in packets if each member keeps its result. Checks that the pushed data and the
/// inboxes are mapped, and does not touch the inboxes.
pub(super) fn reduce_push(launch: &Launch, runner: &Runner) -> Result {
    let mut arguments: ReducePushArguments = launch.arguments();
    check_grid(launch, SLOT_BLOCKS);
    check_element(launch, "symmem_reduce_push_", arguments.reduce.element);
    check_channels(launch, arguments.channels);
    let translation = Translation::new(runner);
    for (address, bytes) in pushed_ranges(&arguments) {
        translation.find(DeviceAddress(address), bytes)?;
    }
    match arguments.in_packets() {
        Some(packets) => reduce_in_packets(launch, &translation, packets),
        None => reduce_loaded(launch, &translation, &mut arguments.reduce),
    }
}

/// Reports a grid with another number of pairs of warps than there are channels for.
fn check_channels(launch: &Launch, channels: u32) {
    // As core divides an inbox: a grid with waves of 64 threads uses half of it.
    let pairs = launch.threads[0] / PUSH_PAIR_THREADS * launch.blocks[0];
    if pairs == 0 || pairs > channels {
        violation(format!(
            "{} has {pairs} pairs of warps in a grid, and {channels} channels",
            launch.kernel.name
        ));
    }
}

/// Returns the ranges that a member pushes, and the inboxes.
fn pushed_ranges(arguments: &ReducePushArguments) -> Vec<(u64, u64)> {
    let world = (arguments.reduce.group.world as usize).min(MAX_RANKS);
    let size = arguments.reduce.element.bytes();
    let inbox = u64::from(arguments.channels) * arguments.channel_bytes;
    let pushed = spans(&arguments.sources[..world], |member| {
        arguments.counts[member] * size
    });
    let inboxes = spans(&arguments.inboxes[..world], |_| inbox);
    pushed.chain(inboxes).collect()
}

pub(super) fn reduce_push_ranges(launch: &Launch) -> Vec<(u64, u64)> {
    let arguments: ReducePushArguments = launch.arguments();
    let mut ranges = match arguments.in_packets() {
        Some(packets) => reduced_ranges(&packets),
        None => loaded_ranges(&arguments.reduce),
    };
    ranges.extend(pushed_ranges(&arguments));
    ranges
}

/// Returns how many bytes a packet reduction reads or writes at an entry of this rank's memory.
fn reduced_bytes(arguments: &ReducePacketArguments, member: usize) -> u64 {
    arguments.counts[member] * arguments.element.bytes()
}

/// Whether this rank stores anything at that entry.
fn stores(arguments: &ReducePacketArguments, member: usize) -> bool {
    arguments.two_shot == 1 || member == arguments.group.rank as usize
}

pub(super) fn reduce_packets(launch: &Launch, runner: &Runner) -> Result {
    let arguments: ReducePacketArguments = launch.arguments();
    check_grid(launch, PACKET_BLOCKS);
    check_element(launch, "symmem_reduce_packets_", arguments.element);
    reduce_in_packets(launch, &Translation::new(runner), arguments)
}

fn reduce_in_packets(
    launch: &Launch,
    translation: &Translation<'_>,
    mut arguments: ReducePacketArguments,
) -> Result {
    translation.group(&mut arguments.group, true)?;
    for member in 0..members(&arguments.group)? {
        let bytes = reduced_bytes(&arguments, member);
        translation.change(&mut arguments.sources[member], bytes)?;
        if stores(&arguments, member) {
            translation.change(&mut arguments.destinations[member], bytes)?;
        }
    }
    translation.run(launch, Work::ReducePackets(&arguments))
}

pub(super) fn reduce_packets_ranges(launch: &Launch) -> Vec<(u64, u64)> {
    reduced_ranges(&launch.arguments())
}

fn reduced_ranges(arguments: &ReducePacketArguments) -> Vec<(u64, u64)> {
    let world = (arguments.group.world as usize).min(MAX_RANKS);
    let mut ranges = group_ranges(&arguments.group, true);
    let bytes = |member| reduced_bytes(arguments, member);
    ranges.extend(spans(&arguments.sources[..world], bytes));
    ranges.extend(spans(&arguments.destinations[..world], |member| {
        u64::from(stores(arguments, member)) * bytes(member)
    }));
    ranges
}

// ---- sends and receives ----

pub(super) fn exchange(launch: &Launch, runner: &Runner) -> Result {
    let mut arguments: ExchangeArguments = launch.arguments();
    check_grid(launch, SLOT_BLOCKS);
    let wanted = arguments.group.world * arguments.blocks_per_peer + 1;
    if launch.blocks[0] != wanted || arguments.blocks_per_peer == 0 {
        violation(format!(
            "symmem_exchange takes {wanted} blocks with {} for each peer, not {}",
            arguments.blocks_per_peer, launch.blocks[0]
        ));
    }
    if let Err(why) = arguments.check() {
        violation(format!("symmem_exchange takes {why}"));
    }
    let translation = Translation::new(runner);
    let bytes = staged_bytes(&arguments).max(slots_bytes(&arguments.group, false));
    translation.group_of(&mut arguments.group, bytes)?;
    for member in 0..members(&arguments.group)? {
        let token = &mut arguments.send_tokens[member];
        if let Some(own) = ExchangeArguments::own_address(*token) {
            let found = translation.find(own, arguments.send_bytes[member])?;
            let Some(translated) = ExchangeArguments::own_token(found) else {
                violation(format!(
                    "{found:?} of this process has too many bits for a token"
                ));
                return Err(Code::ILLEGAL_ADDRESS);
            };
            *token = translated;
        }
        let destination = &mut arguments.destinations[member];
        if *destination != NO_TOKEN {
            let bytes = arguments.receive_bytes[member];
            *destination = translation.find(DeviceAddress(*destination), bytes)?.0;
        }
    }
    let mut end = Ok(());
    let mut resolve = |address: DeviceAddress, bytes: u64| {
        let found = translation.find(address, bytes);
        found.map_err(|code| end = Err(code)).ok()
    };
    translation.run(launch, Work::Exchange(&arguments, &mut resolve))?;
    end
}

/// Returns the bytes of a member's slots up to the end of its staging.
fn staged_bytes(arguments: &ExchangeArguments) -> u64 {
    let peers = u64::from(arguments.group.world).saturating_sub(1);
    let chunks = peers * u64::from(arguments.blocks_per_peer);
    match arguments.chunk_bytes {
        0 => 0,
        bytes => arguments.staging + chunks * u64::from(bytes),
    }
}

pub(super) fn exchange_ranges(launch: &Launch) -> Vec<(u64, u64)> {
    let arguments: ExchangeArguments = launch.arguments();
    let world = (arguments.group.world as usize).min(MAX_RANKS);
    let mut ranges = group_ranges(&arguments.group, false);
    for member in 0..world {
        if let Some(own) = ExchangeArguments::own_address(arguments.send_tokens[member]) {
            ranges.push((own.0, arguments.send_bytes[member]));
        }
        let destination = arguments.destinations[member];
        if destination != NO_TOKEN && arguments.receive_bytes[member] != 0 {
            ranges.push((destination, arguments.receive_bytes[member]));
        }
    }
    if arguments.table.0 != 0 {
        ranges.push((arguments.table.0, 8 * u64::from(arguments.table_ranks)));
    }
    ranges
}

// ---- steps and words ----

pub(super) fn step(launch: &Launch, runner: &Runner) -> Result {
    let arguments: StepArguments = launch.arguments();
    if launch.blocks.iter().product::<u32>() != 1 {
        violation("symmem_step takes one block: each would give the signal".into());
    }
    give(runner, &arguments.target)?;
    wait_for(runner, &arguments.wait).map(drop)
}

pub(super) fn step_ranges(launch: &Launch) -> Vec<(u64, u64)> {
    let arguments: StepArguments = launch.arguments();
    let mut ranges = target_ranges(&arguments.target);
    ranges.extend(wait_ranges_of(&arguments.wait));
    ranges
}

pub(super) fn word_update(launch: &Launch, runner: &Runner) -> Result {
    let mut operation: WordOperation = launch.arguments();
    if launch.blocks.iter().product::<u32>() != 1 {
        violation("symmem_word_update takes one block: each would do the operation".into());
    }
    let translation = Translation::new(runner);
    let bytes = u64::from(operation.bits / 8);
    translation.change(&mut operation.word, bytes)?;
    translation.change(&mut operation.result, bytes)?;
    translation.run(launch, Work::UpdateWord(&operation))
}

pub(super) fn word_update_ranges(launch: &Launch) -> Vec<(u64, u64)> {
    let operation: WordOperation = launch.arguments();
    let bytes = u64::from(operation.bits / 8);
    spans(&[operation.word, operation.result], |_| bytes).collect()
}

/// Returns the length in bytes from the start of the first word to the end of the last.
fn words_bytes(wait: &WordWait) -> u64 {
    u64::from(wait.count.saturating_sub(1)) * wait.stride + u64::from(wait.bits / 8)
}

pub(super) fn word_wait(launch: &Launch, runner: &Runner) -> Result {
    let mut wait: WordWait = launch.arguments();
    let translation = Translation::new(runner);
    translation.watch(&mut wait.watch)?;
    translation.change(&mut wait.index, 4)?;
    let bytes = words_bytes(&wait);
    translation.change(&mut wait.words, bytes)?;
    translation.run(launch, Work::WaitForWords(&wait))
}

pub(super) fn word_wait_ranges(launch: &Launch) -> Vec<(u64, u64)> {
    let wait: WordWait = launch.arguments();
    let mut ranges = watch_ranges(&wait.watch);
    ranges.push((wait.words.0, words_bytes(&wait)));
    ranges.extend(touched(&[wait.index.0]));
    ranges
}
