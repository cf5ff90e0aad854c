//! Words that hold counts or flags: updates of a peer's word, waits for words, and the steps between copy engines.

use super::*;

pub const WORDS_AND_STEPS: [&str; 4] = [
    "symmem_copy_vector",
    "symmem_word_update",
    "symmem_word_wait",
    "symmem_step",
];
pub const STEPS: [&str; 2] = ["symmem_copy_vector", "symmem_step"];

/// `WordUpdate`
const SET: u32 = 1;
const ADD: u32 = 2;
const SWAP: u32 = 3;
const COMPARE_SWAP: u32 = 4;
/// `Condition::equal` and `Condition::greater_or_equal`
const EQUAL: u32 = 1;
const GREATER_OR_EQUAL: u32 = 3;
/// Words of each rank; the peer updates the one of its round, or the only one.
const COUNT: usize = 3;
const ROUNDS: usize = 4;

/// Enqueues an update of a word, whose previous value goes to `result`.
fn update(
    world: &mut World,
    rank: usize,
    [word, result]: [u64; 2],
    how: u32,
    [operand, compare]: [u64; 2],
    bits: u32,
) {
    let arguments = Arguments::default()
        .longs(&[word, result, operand, compare])
        .words(&[how, bits]);
    world.launch(rank, "symmem_word_update", 1, 64, arguments);
}

/// Enqueues a wait of a rank for its words.
fn wait(
    world: &mut World,
    rank: usize,
    [words, index]: [u64; 2],
    value: u64,
    condition: u32,
    (any, bits): (bool, u32),
) {
    let arguments = Arguments::default()
        .longs(&[words, STRIDE, value, index])
        .watch(world.watch, rank)
        .words(&[COUNT as u32, condition, any.into(), bits]);
    world.launch(rank, "symmem_word_wait", 1, THREADS, arguments);
}

/// Each rank puts to the other, updates words there, waits for its own words and copies out what it received. Each round
/// updates in another way, and waits for all words or any; words of 32 and of 64 bits take turns.
pub fn words(kernels: &Kernels, seed: u64) -> Result<(), Error> {
    let mut world = World::new(kernels, seed);
    let inboxes = world.each("inbox", BYTES as u64, false);
    let bases = world.each("words", 2 * COUNT as u64 * STRIDE, true);
    let results = world.each("results", 1024, false);
    let mut expected = Vec::new();
    for round in 0..ROUNDS {
        let bits = if (round + seed as usize).is_multiple_of(2) {
            32
        } else {
            64
        };
        // Each width has words of its own, and each of them counts the rounds of that width.
        let words: Vec<u64> = bases
            .iter()
            .map(|base| base + if bits == 32 { 0 } else { COUNT as u64 * STRIDE })
            .collect();
        let before = (round / 2) as u64;
        let value = before + 1;
        let any = (round / 2 + seed as usize / 2) % 2 == 1;
        let data = world.filled(&format!("data {round}"), BYTES, round);
        let taken = world.each(&format!("taken {round}"), BYTES as u64, false);
        for rank in 0..RANKS {
            let peer = 1 - rank;
            world.copy(rank, inboxes[peer], data[rank], BYTES, NO_SIGNAL);
            for word in 0..COUNT {
                let (how, operand) = match (round + word + seed as usize) % 4 {
                    0 => (SET, value),
                    1 => (ADD, 1),
                    2 => (SWAP, value),
                    _ => (COMPARE_SWAP, value),
                };
                // Without a result, setting a word is a store.
                let result = match how {
                    SET => 0,
                    _ => results[rank] + ((round * COUNT + word) * 8) as u64,
                };
                let place = words[peer] + word as u64 * STRIDE;
                update(
                    &mut world,
                    rank,
                    [place, result],
                    how,
                    [operand, before],
                    bits,
                );
                if result != 0 {
                    let seen = &before.to_le_bytes()[..bits as usize / 8];
                    expected.push((result, seen.to_vec()));
                }
            }
            // One word is enough for `any`; the data follows all of them.
            let condition = if any { GREATER_OR_EQUAL } else { EQUAL };
            let index = results[rank] + 512 + 4 * round as u64;
            wait(
                &mut world,
                rank,
                [words[rank], index],
                value,
                condition,
                (any, bits),
            );
            wait(
                &mut world,
                rank,
                [words[rank], 0],
                value,
                EQUAL,
                (false, bits),
            );
            world.copy(rank, taken[rank], inboxes[rank], BYTES, NO_SIGNAL);
            // The inbox may be used again when both have met.
            world.step(rank, round as u32 + 1);
            expected.push((taken[rank], pattern(BYTES, peer, round)));
        }
    }
    world.run(&expected)
}

impl World<'_> {
    /// Enqueues a step of a rank: it signals its peer, and waits for the peer's signal.
    pub(super) fn step(&mut self, rank: usize, value: u32) {
        let word = |at: usize| self.signals[at] + STRIDE;
        let arguments = Arguments::default()
            .signal(word(1 - rank), 0, value)
            .longs(&[word(rank), 0])
            .watch(self.watch, rank)
            .words(&[value, 1 - rank as u32, 0, 0]);
        self.launch(rank, "symmem_step", 1, 64, arguments);
    }
}

/// What collectives by copy engines do, with copies by kernels in place of the engines: each rank copies to the other,
/// steps, copies out what it received, and steps again.
pub fn steps(kernels: &Kernels, seed: u64) -> Result<(), Error> {
    let mut world = World::new(kernels, seed);
    let inboxes = world.each("inbox", BYTES as u64, false);
    let mut expected = Vec::new();
    for round in 0..3 {
        let data = world.filled(&format!("data {round}"), BYTES, round);
        let taken = world.each(&format!("taken {round}"), BYTES as u64, false);
        for rank in 0..RANKS {
            let peer = 1 - rank;
            world.copy(rank, inboxes[peer], data[rank], BYTES, NO_SIGNAL);
            world.step(rank, 2 * round as u32 + 1);
            world.copy(rank, taken[rank], inboxes[rank], BYTES, NO_SIGNAL);
            world.step(rank, 2 * round as u32 + 2);
            expected.push((taken[rank], pattern(BYTES, peer, round)));
        }
    }
    world.run(&expected)
}
