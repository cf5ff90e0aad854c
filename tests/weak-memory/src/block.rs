//! A block: its shared memory, and which of its waves accessed what since its last barrier.
//!
//! Two waves race if both access a byte, at least one of them stores to it, and no barrier of the block is between them:
//! whatever the schedule was, another one has them in the other order. An access counts from its issue until it is
//! complete, since a barrier does not wait for what a wave has not waited for.
//!
//! Atomics, loads that poll, and stores for the system race with nothing; two copies to shared memory may bring the same
//! bytes. What a wave does in global memory behind a poll is taken to come after all that other waves did before, since a
//! flag may have told it so: whether it did, the memory's own check of what loads see tells.

use rustc_hash::FxHashMap;

/// Where an access is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Space {
    Shared,
    Global,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    Load,
    Store,
    /// A store of what comes from global memory.
    Copy,
}

/// The newest accesses to a byte, each with its epoch: zero for none. Bit `n` of the set is for wave `n`.
#[derive(Clone, Copy, Default)]
struct Byte {
    stored_in: u32,
    storer: u8,
    copied: bool,
    loaded_in: u32,
    loaders: u32,
}

type Word = [Byte; 4];

/// A block of a grid.
pub struct Block {
    pub shared: Vec<u8>,
    /// It begins with one and ends with each barrier and each poll.
    epoch: u32,
    /// What other waves did before these epochs comes before what a wave does now: by the last barrier, and in global
    /// memory by wave also by its last poll.
    since_barrier: u32,
    since_poll: Vec<u32>,
    /// The epoch of the first wait that gave up.
    gave_up: Option<u32>,
    words_of_shared: Vec<Word>,
    words: FxHashMap<u64, Word>,
}

impl Block {
    pub fn new(shared: Vec<u8>) -> Self {
        Self {
            words_of_shared: vec![[Byte::default(); 4]; shared.len().div_ceil(4)],
            shared,
            epoch: 1,
            since_barrier: 1,
            since_poll: Vec::new(),
            gave_up: None,
            words: FxHashMap::default(),
        }
    }

    /// The epoch that its last barrier began.
    pub fn since_barrier(&self) -> u32 {
        self.since_barrier
    }

    /// A wave has found that its waits give up.
    pub fn give_up(&mut self) {
        self.gave_up.get_or_insert(self.epoch);
    }

    /// Whether all waves know that a wait gave up: they have met since.
    pub fn knows_that_it_gave_up(&self) -> bool {
        self.gave_up.is_some_and(|epoch| epoch < self.since_barrier)
    }

    /// All waves have come to a barrier.
    pub fn pass_barrier(&mut self) {
        self.epoch += 1;
        self.since_barrier = self.epoch;
        self.words.clear();
    }

    /// A wave has loaded a flag, which may tell what other waves of its block did.
    pub fn poll(&mut self, wave: usize) {
        self.epoch += 1;
        if self.since_poll.len() <= wave {
            self.since_poll.resize(wave + 1, 0);
        }
        self.since_poll[wave] = self.epoch;
    }

    /// Records a wave's access, and fails if it races with another wave's.
    pub fn access(
        &mut self,
        wave: usize,
        (space, at, bytes): (Space, u64, usize),
        kind: Access,
    ) -> Result<(), String> {
        let polled = self.since_poll.get(wave).copied().unwrap_or_default();
        let since = match space {
            Space::Shared => self.since_barrier,
            Space::Global => self.since_barrier.max(polled),
        };
        let end = at + bytes as u64;
        for number in at / 4..end.div_ceil(4) {
            let word = match space {
                Space::Shared => match self.words_of_shared.get_mut(number as usize) {
                    Some(word) => word,
                    None => continue,
                },
                Space::Global => self.words.entry(number).or_default(),
            };
            let inside = |byte: &usize| (at..end).contains(&(4 * number + *byte as u64));
            let mut bytes = (0..4).filter(inside);
            let other = bytes.find_map(|byte| word[byte].access((self.epoch, since), wave, kind));
            if let Some((other, before)) = other {
                let access = |kind| match kind {
                    Access::Load => "a load",
                    Access::Store => "a store",
                    Access::Copy => "a copy",
                };
                return Err(format!(
                    "{} by wave {wave} races with {} by wave {other}: no barrier of the block is between them",
                    access(kind),
                    access(before),
                ));
            }
        }
        Ok(())
    }
}

impl Byte {
    /// Records an access and returns the wave and the kind of one that it races with.
    fn access(
        &mut self,
        (epoch, since): (u32, u32),
        wave: usize,
        kind: Access,
    ) -> Option<(usize, Access)> {
        let stored = self.stored_in >= since && usize::from(self.storer) != wave;
        let is_copy = kind == Access::Copy;
        if stored && !(is_copy && self.copied) {
            return Some((self.storer.into(), Access::Store));
        }
        if self.loaded_in < since {
            self.loaders = 0;
        }
        let own = 1 << wave;
        if kind == Access::Load {
            self.loaded_in = epoch;
            self.loaders |= own;
            return None;
        }
        let others = self.loaders & !own;
        if others != 0 {
            return Some((others.trailing_zeros() as usize, Access::Load));
        }
        self.stored_in = epoch;
        self.storer = wave as u8;
        self.copied = is_copy;
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block() -> Block {
        Block::new(vec![0; 64])
    }

    #[test]
    fn a_store_races_with_accesses_of_other_waves_up_to_the_next_barrier() {
        for space in [Space::Shared, Space::Global] {
            let word = (space, 8, 4);
            for (first, second, races) in [
                (Access::Load, Access::Load, false),
                (Access::Load, Access::Store, true),
                (Access::Store, Access::Load, true),
                (Access::Store, Access::Store, true),
            ] {
                let mut same_wave = block();
                same_wave.access(0, word, first).unwrap();
                same_wave.access(0, word, second).unwrap();
                let mut ordered = block();
                ordered.access(0, word, first).unwrap();
                ordered.pass_barrier();
                ordered.access(1, word, second).unwrap();
                let mut unordered = block();
                unordered.access(0, word, first).unwrap();
                let found = unordered.access(1, word, second);
                assert_eq!(found.is_err(), races, "{space:?} {first:?} {second:?}");
            }
        }
    }

    #[test]
    fn a_poll_orders_global_memory_only() {
        for (space, races) in [(Space::Shared, true), (Space::Global, false)] {
            let mut polled = block();
            polled.access(0, (space, 8, 4), Access::Load).unwrap();
            polled.poll(1);
            let found = polled.access(1, (space, 8, 4), Access::Store);
            assert_eq!(found.is_err(), races, "{space:?}");
            let mut other = block();
            other.access(0, (space, 8, 4), Access::Load).unwrap();
            other.poll(1);
            other.access(2, (space, 8, 4), Access::Store).unwrap_err();
        }
    }

    #[test]
    fn copies_race_with_loads_and_not_with_copies() {
        let word = (Space::Shared, 8, 4);
        let mut block = block();
        block.access(0, word, Access::Copy).unwrap();
        block.access(1, word, Access::Copy).unwrap();
        block.access(2, word, Access::Load).unwrap_err();
    }

    #[test]
    fn stores_to_other_bytes_of_a_word_do_not_race() {
        let mut block = block();
        block
            .access(0, (Space::Global, 8, 2), Access::Load)
            .unwrap();
        block
            .access(1, (Space::Global, 10, 2), Access::Load)
            .unwrap();
        block
            .access(0, (Space::Global, 8, 2), Access::Store)
            .unwrap();
        block
            .access(1, (Space::Global, 10, 2), Access::Store)
            .unwrap();
        block
            .access(2, (Space::Global, 11, 8), Access::Store)
            .unwrap_err();
    }
}
