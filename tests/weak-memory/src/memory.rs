//! Global memory, as weak as the instruction set allows.
//!
//! - Each rank has dies, each die has a level 2 cache, and each block has a level 1 cache before it.
//! - A plain store ends in its die's level 2. Peers and other dies see it once a write-back, or an eviction at any
//!   moment, has moved it to memory. A store for the system ends in memory.
//! - A plain load may see what memory held at any moment since the cache was last invalidated, because another access
//!   may have fetched the line at any time. Only stores through the same caches are certain to be seen. A load for the
//!   system reads memory.
//! - On gfx90a, only accesses to uncached memory bypass the level 2. Signals are in uncached memory.
//! - A write-back covers the earlier stores of the issuing wave, and those of the block's other waves that were complete
//!   when it was issued (the first rule in `device/include/symmem/memory.h`). An invalidation covers the block's level 1
//!   and the die's level 2.
//!
//! This is weaker than the hardware, where a write-back covers the whole level 2 and a peer's store invalidates the
//! owner's lines. Sources: LLVM's "User Guide for AMDGPU Backend", memory models of gfx90a and gfx942.

use rustc_hash::{FxHashMap, FxHashSet};

use crate::random::Random;

/// Bytes of a cache line.
pub const LINE: u64 = 64;

/// The number of a store; 0 is the host's initial value.
pub type StoreNumber = u32;

/// A line's bytes, and the store that each byte is from.
#[derive(Clone, Copy, Debug)]
struct Content {
    bytes: [u8; LINE as usize],
    stores: [StoreNumber; LINE as usize],
}

const EMPTY: Content = Content {
    bytes: [0; LINE as usize],
    stores: [0; LINE as usize],
};

/// An allocation.
#[derive(Clone, Debug)]
pub struct Region {
    pub name: String,
    pub base: u64,
    pub bytes: u64,
    /// Whether no level 2 caches it on gfx90a, as is needed for signals.
    pub uncached: bool,
    /// The rank whose memory it is, if that was said.
    pub rank: Option<usize>,
    /// Whether a plain load may find a flag or not, as it comes.
    pub loads_may_race: bool,
}

/// The caches that a wave's accesses go through.
#[derive(Clone, Copy, Debug)]
pub struct Path {
    pub die: usize,
    pub level1: usize,
}

/// Which caches an access bypasses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reach {
    pub past_level1: bool,
    pub past_level2: bool,
}

/// A byte that a load read although a newer store to it was issued.
#[derive(Clone, Copy, Debug)]
pub struct Stale {
    pub address: u64,
    pub seen: StoreNumber,
    pub newest: StoreNumber,
}

#[derive(Default)]
struct Level2 {
    lines: FxHashMap<u64, Cached>,
    /// When the cache was last invalidated.
    since: u64,
    /// When it last wrote each line back or passed a store on: a line fetched later is no older.
    floors: FxHashMap<u64, u64>,
}

#[derive(Default)]
struct Cached {
    clean: Option<Content>,
    dirty: Option<(Content, u64)>,
}

#[derive(Default)]
struct Level1 {
    lines: FxHashMap<u64, Content>,
    since: u64,
    /// Lines that the block has stored to, or an earlier grid: it sees these stores.
    touched: FxHashSet<u64>,
}

/// All memory of all ranks.
pub struct Memory {
    regions: Vec<Region>,
    /// The versions of each line in memory, each with the time from which it holds.
    lines: FxHashMap<u64, Vec<(u64, Content)>>,
    /// The newest store issued to each byte.
    newest: FxHashMap<u64, [StoreNumber; LINE as usize]>,
    dies: Vec<Level2>,
    level1: Vec<Level1>,
    /// The line that the last load found which bypassed the level 1 cache.
    past_level1: Content,
    /// The current time in steps.
    pub now: u64,
    /// Percentage of fetched lines that are old if old versions are allowed.
    pub staleness: u64,
}

fn line_of(address: u64) -> (u64, usize) {
    (address / LINE, (address % LINE) as usize)
}

/// Splits a range at line boundaries: line, first byte in it, offset in the range, length.
fn parts(address: u64, bytes: usize) -> impl Iterator<Item = (u64, usize, usize, usize)> {
    let (line, first) = line_of(address);
    let here = bytes.min(LINE as usize - first);
    let rest = (bytes > here).then_some((line + 1, 0, here, bytes - here));
    std::iter::once((line, first, 0, here)).chain(rest)
}

impl Memory {
    /// Creates memory with `dies` level 2 caches.
    pub fn new(dies: usize) -> Self {
        Self {
            regions: Vec::new(),
            lines: FxHashMap::default(),
            newest: FxHashMap::default(),
            dies: (0..dies).map(|_| Level2::default()).collect(),
            level1: Vec::new(),
            past_level1: EMPTY,
            now: 1,
            staleness: 50,
        }
    }

    /// Allocates zeroed memory, aligned to 4096 bytes, with a gap behind it.
    pub fn allocate(&mut self, name: &str, bytes: u64, uncached: bool) -> u64 {
        let end = self
            .regions
            .last()
            .map_or(0x7000_0000_0000, |last| last.base + last.bytes);
        let base = (end + 4096).next_multiple_of(4096);
        self.regions.push(Region {
            name: name.to_owned(),
            base,
            bytes,
            uncached,
            rank: None,
            loads_may_race: false,
        });
        base
    }

    /// Says that plain loads from the allocation at an address may race with stores that are atomic. Only gfx90a needs it,
    /// where stores do not say whether they are.
    pub fn let_loads_race(&mut self, base: u64) {
        let mut regions = self.regions.iter_mut();
        if let Some(region) = regions.find(|region| region.base == base) {
            region.loads_may_race = true;
        }
    }

    /// Says whose memory the newest allocation is.
    pub fn belongs_to(&mut self, rank: usize) {
        if let Some(last) = self.regions.last_mut() {
            last.rank = Some(rank);
        }
    }

    /// Returns the allocation that contains a range.
    pub fn region(&self, address: u64, bytes: usize) -> Option<&Region> {
        let index = self
            .regions
            .partition_point(|region| region.base <= address);
        let region = &self.regions[index.checked_sub(1)?];
        (address + bytes as u64 <= region.base + region.bytes).then_some(region)
    }

    /// Describes an address, such as `0x7000… (inbox+0x40)`.
    pub fn describe(&self, address: u64) -> String {
        match self.region(address, 1) {
            Some(region) => format!(
                "{address:#x} ({}+{:#x})",
                region.name,
                address - region.base
            ),
            None => format!("{address:#x} (not allocated)"),
        }
    }

    /// Writes as the host does before a kernel starts.
    pub fn write(&mut self, address: u64, bytes: &[u8]) {
        for (index, chunk) in bytes.chunks(LINE as usize).enumerate() {
            let address = address + index as u64 * LINE;
            for (line, first, offset, length) in parts(address, chunk.len()) {
                let content = self.current(line);
                content.bytes[first..first + length]
                    .copy_from_slice(&chunk[offset..offset + length]);
                content.stores[first..first + length].fill(0);
                if let Some(newest) = self.newest.get_mut(&line) {
                    newest[first..first + length].fill(0);
                }
            }
        }
    }

    /// Reads the latest version in memory.
    pub fn read(&self, address: u64, bytes: usize) -> Vec<u8> {
        (0..bytes as u64)
            .map(|index| {
                let (line, byte) = line_of(address + index);
                self.latest(line).bytes[byte]
            })
            .collect()
    }

    /// Whether waves have stored to a range.
    pub fn is_stored_to(&self, address: u64, bytes: usize) -> bool {
        parts(address, bytes).any(|(line, first, _, length)| {
            self.newest.get(&line).is_some_and(|newest| {
                newest[first..first + length]
                    .iter()
                    .any(|store| *store != 0)
            })
        })
    }

    fn latest(&self, line: u64) -> &Content {
        self.lines
            .get(&line)
            .and_then(|versions| versions.last())
            .map_or(&EMPTY, |(_, content)| content)
    }

    /// Returns a new current version of a line, to be changed.
    fn current(&mut self, line: u64) -> &mut Content {
        let now = self.now;
        let versions = self.lines.entry(line).or_insert_with(|| vec![(0, EMPTY)]);
        let last = versions.len() - 1;
        if versions[last].0 != now {
            let content = versions[last].1;
            versions.push((now, content));
        }
        let last = versions.len() - 1;
        &mut versions[last].1
    }

    /// Returns a version that memory held at some moment since `since`.
    fn version(&self, line: u64, since: u64, random: &mut Random) -> Content {
        let Some(versions) = self.lines.get(&line) else {
            return EMPTY;
        };
        let last = versions.len() - 1;
        let first = versions
            .partition_point(|(time, _)| *time <= since)
            .saturating_sub(1);
        let index = if first == last || random.below(100) >= self.staleness {
            last
        } else if random.below(2) == 0 {
            first
        } else {
            first + random.below((last - first + 1) as u64) as usize
        };
        versions[index].1
    }

    /// Adds the level 1 cache of another block on a die and returns its index.
    pub fn add_level1(&mut self, die: usize) -> usize {
        self.level1.push(Level1 {
            since: self.now,
            lines: FxHashMap::default(),
            // What earlier grids have stored is in the level 2 cache, and may not be in memory.
            touched: self.dirty_lines(die).into_iter().collect(),
        });
        self.level1.len() - 1
    }

    /// Notes that a store has been issued.
    pub fn issue(&mut self, address: u64, bytes: usize, store: StoreNumber) {
        for (line, first, _, length) in parts(address, bytes) {
            let newest = self.newest.entry(line).or_insert([0; LINE as usize]);
            newest[first..first + length].fill(store);
        }
    }

    /// Completes a store. Calls `dirtied` for each line that then needs a write-back.
    pub fn store(
        &mut self,
        path: Path,
        reach: Reach,
        address: u64,
        bytes: &[u8],
        store: StoreNumber,
        mut dirtied: impl FnMut(u64),
    ) {
        for (line, first, offset, length) in parts(address, bytes.len()) {
            let range = first..first + length;
            let put = |content: &mut Content| {
                content.bytes[range.clone()].copy_from_slice(&bytes[offset..offset + length]);
                content.stores[range.clone()].fill(store);
            };
            let mask = (!0u64 >> (64 - length)) << first;
            let level1 = &mut self.level1[path.level1];
            level1.touched.insert(line);
            if let Some(content) = level1.lines.get_mut(&line) {
                put(content);
            }
            if reach.past_level2 {
                put(self.current(line));
                let die = &mut self.dies[path.die];
                die.floors.insert(line, self.now);
                if let Some(cached) = die.lines.get_mut(&line) {
                    cached.clean.as_mut().map(put);
                    cached.dirty = cached
                        .dirty
                        .map(|(content, dirty)| (content, dirty & !mask))
                        .filter(|(_, dirty)| *dirty != 0);
                }
            } else {
                let cached = self.dies[path.die].lines.entry(line).or_default();
                let (content, dirty) = cached.dirty.get_or_insert((EMPTY, 0));
                put(content);
                *dirty |= mask;
                dirtied(line);
            }
        }
    }

    /// Reads at most 16 bytes. Returns one of them that is not the newest, if any, and the store that each is from.
    pub fn load(
        &mut self,
        path: Path,
        reach: Reach,
        address: u64,
        bytes: &mut [u8],
        random: &mut Random,
    ) -> (Option<Stale>, [StoreNumber; 16]) {
        let mut stale = None;
        let mut stores = [0; 16];
        for (line, first, offset, length) in parts(address, bytes.len()) {
            let range = first..first + length;
            let content = self.line(path, reach, line, random);
            bytes[offset..offset + length].copy_from_slice(&content.bytes[range.clone()]);
            stores[offset..offset + length].copy_from_slice(&content.stores[range.clone()]);
            let newest = self.newest.get(&line).unwrap_or(&EMPTY.stores);
            let seen = &stores[offset..offset + length];
            let pairs = seen.iter().zip(&newest[range]);
            if let Some((byte, (seen, newest))) =
                pairs.enumerate().find(|(_, (seen, newest))| seen != newest)
                && stale.is_none()
            {
                stale = Some(Stale {
                    address: line * LINE + (first + byte) as u64,
                    seen: *seen,
                    newest: *newest,
                });
            }
        }
        (stale, stores)
    }

    /// Returns a line as a load sees it.
    fn line(&mut self, path: Path, reach: Reach, line: u64, random: &mut Random) -> &Content {
        if reach.past_level1 {
            self.past_level1 = self.line_of_level2(path.die, reach, line, random);
            return &self.past_level1;
        }
        let level1 = &self.level1[path.level1];
        let is_cached = level1.lines.contains_key(&line);
        let fetched = if is_cached {
            EMPTY
        } else if !level1.touched.contains(&line) && random.below(100) < self.staleness {
            self.version(line, level1.since, random)
        } else {
            self.line_of_level2(path.die, reach, line, random)
        };
        let lines = &mut self.level1[path.level1].lines;
        lines.entry(line).or_insert(fetched)
    }

    fn line_of_level2(
        &mut self,
        die: usize,
        reach: Reach,
        line: u64,
        random: &mut Random,
    ) -> Content {
        let level2 = &self.dies[die];
        let cached = level2.lines.get(&line);
        let clean = cached.and_then(|cached| cached.clean.as_ref());
        let is_cached = reach.past_level2 || clean.is_some();
        let mut content = if reach.past_level2 {
            *self.latest(line)
        } else if let Some(clean) = clean {
            *clean
        } else {
            let floor = level2.floors.get(&line).copied().unwrap_or(0);
            self.version(line, level2.since.max(floor), random)
        };
        let fetched = content;
        if let Some((stored, dirty)) = cached.and_then(|cached| cached.dirty.as_ref()) {
            merge(&mut content, stored, *dirty);
        }
        if !is_cached {
            self.dies[die].lines.entry(line).or_default().clean = Some(fetched);
        }
        content
    }

    /// Writes a die's dirty lines back to memory.
    pub fn write_back(&mut self, die: usize, lines: impl IntoIterator<Item = u64>) {
        for line in lines {
            let Some(cached) = self.dies[die].lines.get_mut(&line) else {
                continue;
            };
            let Some((stored, dirty)) = cached.dirty.take() else {
                continue;
            };
            if let Some(clean) = &mut cached.clean {
                merge(clean, &stored, dirty);
            }
            self.dies[die].floors.insert(line, self.now);
            merge(self.current(line), &stored, dirty);
        }
    }

    /// Returns the lines that a die has not written back, in order.
    pub fn dirty_lines(&self, die: usize) -> Vec<u64> {
        let lines = self.dies[die].lines.iter();
        let mut dirty: Vec<u64> = lines
            .filter(|(_, cached)| cached.dirty.is_some())
            .map(|(line, _)| *line)
            .collect();
        dirty.sort_unstable();
        dirty
    }

    /// Invalidates caches, except for dirty bytes.
    pub fn invalidate(&mut self, path: Path, level1: bool, level2: bool) {
        if level1 {
            let level1 = &mut self.level1[path.level1];
            level1.lines.clear();
            level1.since = self.now;
        }
        if level2 {
            self.invalidate_die(path.die);
        }
    }

    /// Invalidates a die's level 2 cache, except for dirty bytes.
    pub fn invalidate_die(&mut self, die: usize) {
        let die = &mut self.dies[die];
        die.since = self.now;
        die.lines.retain(|_, cached| {
            cached.clean = None;
            cached.dirty.is_some()
        });
    }

    /// Describes where a store's byte is.
    pub fn whereabouts(&self, store: StoreNumber, address: u64) -> String {
        let (line, byte) = line_of(address);
        let holds = |content: &Content| content.stores[byte] == store;
        for (number, die) in self.dies.iter().enumerate() {
            let dirty = die.lines.get(&line).and_then(|cached| cached.dirty);
            if dirty.is_some_and(|(content, dirty)| dirty >> byte & 1 == 1 && holds(&content)) {
                return format!("only in the level 2 of die {number}, not written back");
            }
        }
        let versions = self.lines.get(&line).map_or(&[][..], |versions| versions);
        match versions.iter().find(|(_, content)| holds(content)) {
            Some((time, _)) => {
                format!("in memory since step {time}, but a cache has an older line")
            }
            None => "in flight".to_owned(),
        }
    }
}

fn merge(content: &mut Content, stored: &Content, dirty: u64) {
    for byte in 0..LINE as usize {
        if dirty >> byte & 1 == 1 {
            content.bytes[byte] = stored.bytes[byte];
            content.stores[byte] = stored.stores[byte];
        }
    }
}
