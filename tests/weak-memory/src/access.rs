//! Memory accesses: what happens at issue, and at completion.

use crate::block::{Access, Space};
use crate::machine::{Core, Fault, NO_VOTES};
use crate::memory::{Reach, StoreNumber};
use crate::operation::{Address, M0, Modifiers, Operation, Update};
use crate::pending::{Dirtied, Kind, Lanes, Pending};
use crate::shared::outside;
use crate::wave::{Late, Registers, Wave};
use symmem_kernels_hip::Target;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Direction {
    Load,
    Store,
    Atomic,
}

/// Returns which caches an access bypasses (LLVM's "User Guide for AMDGPU Backend", memory models of gfx90a and
/// gfx942).
fn reach(target: Target, direction: Direction, modifiers: Modifiers, uncached: bool) -> Reach {
    if target == Target::Gfx90a {
        // `glc` loads a flag; `glc slc` is a streaming load.
        let flag = modifiers.glc && !modifiers.slc;
        return Reach {
            past_level1: direction != Direction::Load || flag,
            past_level2: uncached,
        };
    }
    match direction {
        Direction::Atomic => Reach {
            past_level1: true,
            past_level2: modifiers.sc1,
        },
        _ => Reach {
            past_level1: modifiers.sc1,
            past_level2: modifiers.sc0 && modifiers.sc1,
        },
    }
}

impl Core {
    /// Returns the address of each active lane.
    fn addresses(
        &self,
        wave: &Wave,
        address: Address,
        modifiers: Modifiers,
        bytes: usize,
    ) -> Result<Lanes, Fault> {
        let first = address.vector;
        let base = match address.base {
            Some(register) => Some(wave.scalar(register, true)?),
            None => None,
        };
        let width = if base.is_some() { 1 } else { 2 };
        wave.check(Registers::Vector(first..first + width))?;
        let mut lanes = Vec::with_capacity(64);
        for lane in wave.lanes() {
            let low = u64::from(wave.vectors[first][lane]);
            let from = match base {
                Some(base) => base.wrapping_add(low),
                None => u64::from(wave.vectors[first + 1][lane]) << 32 | low,
            };
            let at = from.wrapping_add(modifiers.offset as u64);
            if self.memory.region(at, bytes).is_none() {
                return Err(Fault::Memory(format!(
                    "lane {lane} accesses {bytes} bytes at {}",
                    self.memory.describe(at)
                )));
            }
            lanes.push((lane, at));
        }
        Ok(lanes.into())
    }

    fn is_uncached(&self, lanes: &[(usize, u64)]) -> bool {
        lanes
            .first()
            .and_then(|(_, address)| self.memory.region(*address, 1))
            .is_some_and(|region| region.uncached)
    }

    /// Begins an access; returns false for an instruction that is not an access.
    pub fn issue(&mut self, wave: &mut Wave, operation: &Operation) -> Result<bool, Fault> {
        match *operation {
            Operation::Load {
                destination,
                bytes,
                signed,
                address,
                modifiers,
            } => {
                let registers = Registers::Vector(destination..destination + bytes.div_ceil(4));
                let lanes = self.addresses(wave, address, modifiers, bytes)?;
                let loads = wave.pending.iter().any(|each| {
                    each.is_load() && each.shared.is_none() && each.writes_to(Some(&registers))
                });
                if !loads || wave.is_late(&registers) {
                    wave.check(registers.clone())?;
                }
                let uncached = self.is_uncached(&lanes);
                wave.mark(&registers, true);
                self.push(
                    wave,
                    Pending {
                        kind: Kind::Load { signed },
                        reach: reach(wave.program.target, Direction::Load, modifiers, uncached),
                        lanes,
                        bytes,
                        registers: Some(registers),
                        ..Pending::default()
                    },
                )?;
            }
            Operation::LoadToShared {
                bytes,
                address,
                modifiers,
            } => {
                let lanes = self.addresses(wave, address, modifiers, bytes)?;
                let first = wave.scalar(M0, false)? as usize;
                let end = first + 64 * bytes;
                if self.block(wave)?.shared.len() < end {
                    return Err(outside(end - 1));
                }
                let uncached = self.is_uncached(&lanes);
                self.push(
                    wave,
                    Pending {
                        kind: Kind::Load { signed: false },
                        reach: reach(wave.program.target, Direction::Load, modifiers, uncached),
                        lanes,
                        bytes,
                        shared: Some(first),
                        ..Pending::default()
                    },
                )?;
            }
            Operation::Store {
                source,
                skipped,
                bytes,
                address,
                modifiers,
            } => {
                let lanes = self.addresses(wave, address, modifiers, bytes)?;
                let data = data(wave, source, skipped, bytes, &lanes)?;
                let uncached = self.is_uncached(&lanes);
                let mut pending = Pending {
                    kind: Kind::Store,
                    reach: reach(wave.program.target, Direction::Store, modifiers, uncached),
                    lanes,
                    bytes,
                    data,
                    ..Pending::default()
                };
                self.complete_loads_before(wave, &pending)?;
                self.look_for_stores_after_giving_up(wave, &pending)?;
                // On gfx90a, stores of words and halves of packets look alike whether they are atomic or not.
                let plain = match wave.program.target {
                    Target::Gfx90a => bytes > 8 || modifiers.slc,
                    _ => !pending.reach.past_level2,
                };
                pending.store = self.record(wave, plain);
                for (_, address) in pending.lanes.iter() {
                    self.memory.issue(*address, bytes, pending.store);
                }
                self.push(wave, pending)?;
            }
            Operation::Atomic {
                update,
                destination,
                source,
                bytes,
                address,
                modifiers,
            } => {
                let lanes = self.addresses(wave, address, modifiers, bytes)?;
                let operands = if update == Update::CompareSwap { 2 } else { 1 };
                let data = data(wave, source, 0, bytes * operands, &lanes)?;
                let registers =
                    destination.map(|first| Registers::Vector(first..first + bytes / 4));
                if let Some(registers) = &registers {
                    wave.check(registers.clone())?;
                    wave.mark(registers, true);
                }
                let store = self.record(wave, false);
                let uncached = self.is_uncached(&lanes);
                self.push(
                    wave,
                    Pending {
                        kind: Kind::Atomic { update },
                        reach: reach(wave.program.target, Direction::Atomic, modifiers, uncached),
                        lanes,
                        bytes,
                        data,
                        store,
                        registers,
                        ..Pending::default()
                    },
                )?;
            }
            Operation::WriteBack { system } => self.push(
                wave,
                Pending {
                    kind: Kind::WriteBack { system },
                    ..Pending::default()
                },
            )?,
            Operation::Invalidate { level1, level2 } => {
                let is_complete = |order| wave.pending.iter().all(|each| each.order != order);
                if wave.found.is_some_and(is_complete) {
                    wave.found = None;
                }
                self.memory.invalidate(wave.path, level1, level2);
            }
            Operation::ScalarLoad {
                destination,
                words,
                base,
                offset,
            } => {
                let address = wave.scalar(base, true)?.wrapping_add(offset as u64);
                // Only arguments and constants. Values that waves store would need a model of the scalar cache.
                if self.memory.region(address, words * 4).is_none()
                    || self.memory.is_stored_to(address, words * 4)
                {
                    return Err(Fault::Memory(format!(
                        "a scalar load of {}",
                        self.memory.describe(address)
                    )));
                }
                let bytes = self.memory.read(address, words * 4);
                let words = bytes
                    .chunks(4)
                    .map(|word| u32::from_le_bytes([word[0], word[1], word[2], word[3]]));
                arrive(wave, destination, &words.collect::<Vec<_>>())?;
            }
            Operation::Clock { destination } => {
                let now = self.memory.now;
                arrive(wave, destination, &[now as u32, (now >> 32) as u32])?;
            }
            Operation::SharedLoad {
                destination,
                address,
                ref offsets,
            } => self.load_shared(wave, destination, address, offsets)?,
            Operation::SharedLoadTransposed {
                destination,
                address,
                offset,
            } => self.load_transposed(wave, destination, address, offset)?,
            Operation::Permute {
                destination,
                address,
                source,
            } => self.permute(wave, destination, address, source)?,
            Operation::SharedStore { address, ref words } => {
                self.store_shared(wave, address, words)?;
            }
            Operation::SharedStoreHalf {
                source,
                high,
                address,
                offset,
            } => self.store_shared_half(wave, address, (source, high), offset)?,
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Fails if a block whose waves have met since a wait gave up stores to another rank: its kernel must return.
    fn look_for_stores_after_giving_up(
        &mut self,
        wave: &Wave,
        store: &Pending,
    ) -> Result<(), Fault> {
        let Some((_, address)) = store.lanes.first() else {
            return Ok(());
        };
        let owner = self
            .memory
            .region(*address, 1)
            .and_then(|region| region.rank);
        let is_others =
            owner.is_some_and(|rank| rank != wave.rank) && !wave.program.name.starts_with(NO_VOTES);
        if is_others && self.block(wave)?.knows_that_it_gave_up() {
            return Err(Fault::Memory(format!(
                "{}: a store to another rank after a wait of the block gave up",
                self.memory.describe(*address)
            )));
        }
        Ok(())
    }

    /// Completes the wave's loads of bytes that a store is about to change: they need not see it, though it is newer.
    fn complete_loads_before(&mut self, wave: &mut Wave, store: &Pending) -> Result<(), Fault> {
        let waits = |each: &Pending| each.is_load() && each.meets(store);
        while let Some(mut first) = wave.pending.iter().position(waits) {
            let pending = &wave.pending;
            while let Some(before) =
                (0..first).find(|&each| pending[each].holds_up(&pending[first]))
            {
                first = before;
            }
            self.complete(wave, first)?;
        }
        Ok(())
    }

    fn push(&mut self, wave: &mut Wave, mut pending: Pending) -> Result<(), Fault> {
        self.accesses += 1;
        wave.issued += 1;
        pending.number = self.accesses;
        pending.order = wave.issued;
        pending.instruction = wave.next - 1;
        self.look_for_races(wave, &pending)?;
        if pending.reach.past_level1 && pending.registers.is_some() {
            wave.found = Some(pending.order);
        }
        wave.pending.push(pending);
        Ok(())
    }

    /// Fails if an access, which may happen now, races with one of another wave of the block.
    fn look_for_races(&mut self, wave: &Wave, pending: &Pending) -> Result<(), Fault> {
        // On gfx90a, a store for the system looks like any other one.
        let is_gfx90a = wave.program.target == Target::Gfx90a;
        let kind = match pending.kind {
            Kind::Load { .. } if !pending.reach.past_level1 => Access::Load,
            Kind::Store if !pending.reach.past_level2 || is_gfx90a => Access::Store,
            _ => return Ok(()),
        };
        for &(lane, address) in pending.lanes.iter() {
            let region = self.memory.region(address, 1);
            let may_race = is_gfx90a && region.is_some_and(|region| region.loads_may_race);
            if !may_race {
                self.access(wave, Space::Global, (address, pending.bytes), kind)?;
            }
            if let Some(first) = pending.shared {
                let at = (first + lane * pending.bytes) as u64;
                self.access(wave, Space::Shared, (at, pending.bytes), Access::Copy)?;
            }
        }
        Ok(())
    }

    /// Completes one of a wave's accesses.
    pub fn complete(&mut self, wave: &mut Wave, index: usize) -> Result<(), Fault> {
        let pending = wave.pending.remove(index);
        if let Some(registers) = &pending.registers {
            wave.mark(registers, false);
        }
        match pending.kind {
            Kind::Load { signed } => {
                self.look_for_races(wave, &pending)?;
                if pending.reach.past_level1 {
                    self.block(wave)?.poll(wave.number);
                }
                self.complete_load(wave, &pending, signed)
            }
            Kind::Store => {
                for (slot, (_, address)) in pending.lanes.iter().enumerate() {
                    let bytes = &pending.data[slot * pending.bytes..][..pending.bytes];
                    self.store(wave, &pending, *address, bytes);
                }
                Ok(())
            }
            Kind::Atomic { update } => {
                self.complete_atomic(wave, &pending, update);
                Ok(())
            }
            Kind::WriteBack { system } => {
                if system {
                    // What earlier grids have left, its own wave's earlier stores, which are complete, and what the block's
                    // other waves had completed.
                    let left = self.left.remove(&wave.path.die);
                    let mut lines: Vec<u64> = left.unwrap_or_default();
                    let dirtied = self.dirtied.entry(wave.path.level1).or_default();
                    dirtied.retain(|line, first| {
                        let since = if first.wave == wave.number {
                            first.issued
                        } else {
                            first.completed
                        };
                        let covered = since < pending.number;
                        if covered {
                            lines.push(*line);
                        }
                        !covered
                    });
                    self.memory.write_back(wave.path.die, lines);
                }
                Ok(())
            }
        }
    }

    fn store(&mut self, wave: &mut Wave, pending: &Pending, address: u64, bytes: &[u8]) {
        let dirtied = self.dirtied.entry(wave.path.level1).or_default();
        let first = Dirtied {
            wave: wave.number,
            issued: pending.number,
            completed: self.accesses,
        };
        self.memory.store(
            wave.path,
            pending.reach,
            address,
            bytes,
            pending.store,
            |line| {
                dirtied.entry(line).or_insert(first);
            },
        );
    }

    fn complete_load(
        &mut self,
        wave: &mut Wave,
        pending: &Pending,
        signed: bool,
    ) -> Result<(), Fault> {
        let registers = match &pending.registers {
            Some(Registers::Vector(registers)) => registers.clone(),
            _ => 0..0,
        };
        let mut bytes = [0; 16];
        for (lane, address) in pending.lanes.iter() {
            let (stale, stores) = self.memory.load(
                wave.path,
                pending.reach,
                *address,
                &mut bytes[..pending.bytes],
                &mut self.random,
            );
            if pending.reach.past_level1 {
                self.look_for_plain_stores(wave, *address, &stores[..pending.bytes])?;
                if self.watched.contains(address) {
                    wave.looked.get_or_insert(pending.instruction);
                    if bytes[..pending.bytes] != [0; 16][..pending.bytes] {
                        self.block(wave)?.give_up();
                    }
                }
            }
            // A load that bypasses the level 1 cache polls, and is expected to see old values.
            if let Some(stale) = stale
                && !pending.reach.past_level1
                && !self.excused[wave.rank]
            {
                return Err(Fault::Stale {
                    lane: *lane,
                    instruction: pending.instruction,
                    stale,
                });
            }
            if pending.bytes < 4 {
                let negative = signed && bytes[pending.bytes - 1] >= 0x80;
                bytes[pending.bytes..4].fill(if negative { 0xff } else { 0 });
            }
            if let Some(first) = pending.shared {
                let at = first + lane * pending.bytes;
                let block = self.block(wave)?;
                block
                    .shared
                    .get_mut(at..at + pending.bytes)
                    .ok_or_else(|| outside(at))?
                    .copy_from_slice(&bytes[..pending.bytes]);
            }
            for (word, register) in registers.clone().enumerate() {
                let word = &bytes[4 * word..4 * word + 4];
                wave.vectors[register][*lane] =
                    u32::from_le_bytes([word[0], word[1], word[2], word[3]]);
            }
        }
        Ok(())
    }

    /// Fails if a poll sees what a plain store wrote, unless a block barrier or the end of a grid is between them: the
    /// store may have been only half there, or never come.
    fn look_for_plain_stores(
        &mut self,
        wave: &Wave,
        address: u64,
        stores: &[StoreNumber],
    ) -> Result<(), Fault> {
        let since = self.block(wave)?.since_barrier();
        let plain = stores
            .iter()
            .find(|store| self.is_plain(**store, wave, since));
        plain.map_or(Ok(()), |store| {
            Err(Fault::Memory(format!(
                "{}: a load that polls sees a plain store, {}",
                self.memory.describe(address),
                self.story(*store)
            )))
        })
    }

    fn complete_atomic(&mut self, wave: &mut Wave, pending: &Pending, update: Update) {
        let bytes = pending.bytes;
        let number = |bytes: &[u8]| {
            let mut whole = [0; 8];
            whole[..bytes.len()].copy_from_slice(bytes);
            u64::from_le_bytes(whole)
        };
        let operands = pending.data.len() / pending.lanes.len().max(1);
        for (slot, (lane, address)) in pending.lanes.iter().enumerate() {
            let mut seen = [0; 8];
            self.memory.load(
                wave.path,
                pending.reach,
                *address,
                &mut seen[..bytes],
                &mut self.random,
            );
            let seen = number(&seen[..bytes]);
            let data = &pending.data[slot * operands..][..operands];
            let operand = number(&data[..bytes]);
            let result = match update {
                Update::Add => Some(seen.wrapping_add(operand)),
                Update::Swap => Some(operand),
                // The new value precedes the value that memory is compared with.
                Update::CompareSwap => (seen == number(&data[bytes..])).then_some(operand),
            };
            if let Some(result) = result {
                self.memory.issue(*address, bytes, pending.store);
                self.store(wave, pending, *address, &result.to_le_bytes()[..bytes]);
            }
            if let Some(Registers::Vector(registers)) = &pending.registers {
                for (word, register) in registers.clone().enumerate() {
                    wave.vectors[register][*lane] = (seen >> (32 * word)) as u32;
                }
            }
        }
    }
}

/// Sets scalar registers, which may be used once the load has been waited for.
fn arrive(wave: &mut Wave, destination: usize, words: &[u32]) -> Result<(), Fault> {
    let registers = Registers::Scalar(destination..destination + words.len());
    wave.check(registers.clone())?;
    wave.scalars[destination..destination + words.len()].copy_from_slice(words);
    wave.mark(&registers, true);
    wave.scalar_pending.push_back(Late {
        registers,
        words: Vec::new(),
        kind: Access::Load,
    });
    Ok(())
}

/// Returns what each lane stores: bytes of its registers, after the skipped ones.
fn data(
    wave: &Wave,
    source: usize,
    skipped: usize,
    bytes: usize,
    lanes: &[(usize, u64)],
) -> Result<Vec<u8>, Fault> {
    let registers = source..source + (skipped + bytes).div_ceil(4);
    wave.check(Registers::Vector(registers.clone()))?;
    let mut data = Vec::with_capacity(lanes.len() * bytes);
    for (lane, _) in lanes {
        let start = data.len();
        for register in registers.clone() {
            data.extend(wave.vectors[register][*lane].to_le_bytes());
        }
        data.drain(start..start + skipped);
        data.truncate(start + bytes);
    }
    Ok(data)
}
