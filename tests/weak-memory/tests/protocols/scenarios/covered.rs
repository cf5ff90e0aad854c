//! Protocols that mutants of the sources showed to be untested: see `cargo xtask kernels mutate`.

use symmem_weak_memory::decode::decode;

use super::*;

pub const SCENARIOS: [Scenario; 14] = [
    Scenario {
        name: "unrolled put",
        kernels: &["symmem_copy_unrolled", "symmem_copy_vector", "symmem_wait"],
        run: unrolled_put,
    },
    Scenario {
        name: "round trips",
        kernels: &["symmem_latency_packet", "symmem_latency_signal"],
        run: round_trips,
    },
    Scenario {
        name: "steps",
        kernels: &["symmem_copy_vector", "symmem_step"],
        run: steps,
    },
    Scenario {
        name: "words",
        kernels: &["symmem_word_update", "symmem_word_wait"],
        run: words,
    },
    Scenario {
        name: "swap",
        kernels: &["symmem_copy_vector", "symmem_swap"],
        run: swap,
    },
    Scenario {
        name: "moves in packets",
        kernels: &MOVES_IN_PACKETS,
        run: moves_in_packets,
    },
    Scenario {
        name: "reduce-scatter",
        kernels: &["symmem_copy_vector", "symmem_reduce_u32"],
        run: reduce_scatter,
    },
    Scenario {
        name: "abort",
        kernels: &["symmem_wait", "symmem_word_update"],
        run: abort,
    },
    Scenario {
        name: "barrier of many",
        kernels: &["symmem_copy_vector", "symmem_barrier"],
        run: barrier_of_many,
    },
    Scenario {
        name: "wrong payload",
        kernels: &["symmem_latency_signal"],
        run: wrong_payload,
    },
    Scenario {
        name: "exchanged words",
        kernels: &["symmem_word_update"],
        run: exchanged_words,
    },
    Scenario {
        name: "fetched words",
        kernels: &["symmem_word_update"],
        run: fetched_words,
    },
    Scenario {
        name: "lines of Lamport packets",
        kernels: &[lamport::MOVES[1]],
        run: lamport::lines,
    },
    Scenario {
        name: "exchange by many blocks",
        kernels: &["symmem_copy_vector", "symmem_exchange"],
        run: exchange::exchange_by_many,
    },
];

/// The kernels for all calls, for few units, and for few units in a group of two.
const MOVES_IN_PACKETS: [&str; 3] = [
    "symmem_move_packets",
    "symmem_move_packets_few",
    "symmem_move_packets_pair1",
];

/// Rank 0 puts into an inbox of rank 1, which waits and copies the data out.
fn unrolled_put(kernels: &Kernels, seed: u64) -> Result<(), Error> {
    let mut world = World::new(kernels, seed);
    let inbox = world.each("inbox", BYTES as u64, false)[1];
    let taken = world.each("taken", BYTES as u64, false)[1];
    let data = world.filled("data", BYTES, 1)[0];
    let [word, arrivals] = [world.signals[1], world.signals[0] + STRIDE];
    let arguments = Arguments::default()
        .longs(&[inbox, data, BYTES as u64])
        .signal(word, arrivals, 1)
        .words(&[0, 0]);
    world.launch(0, "symmem_copy_unrolled", BLOCKS, THREADS, arguments);
    world.wait(1, word, 1);
    world.copy(1, taken, inbox, BYTES, NO_SIGNAL);
    world.run(&[(taken, pattern(BYTES, 0, 1))])
}

/// Round trips of packets and of signals behind data, which the kernel itself checks.
fn round_trips(kernels: &Kernels, seed: u64) -> Result<(), Error> {
    const ROUNDS: u32 = 4;
    const PAYLOAD: u64 = 1040;
    let mut world = World::new(kernels, seed);
    let boxes = world.each("box", STRIDE + 2 * PAYLOAD, true);
    let packets = world.each("packet", 64, true);
    let results = world.each("result", 128, false);
    for rank in 0..RANKS {
        for (index, (kernel, memory)) in [
            ("symmem_latency_packet", &packets),
            ("symmem_latency_signal", &boxes),
        ]
        .into_iter()
        .enumerate()
        {
            let result = results[rank] + 64 * index as u64;
            let arguments = Arguments::default()
                .longs(&[memory[rank], memory[1 - rank], PAYLOAD, result])
                .watch(world.watch, rank)
                .words(&[ROUNDS, 0, u32::from(rank == 0), 1 - rank as u32]);
            world.launch(rank, kernel, 1, THREADS, arguments);
        }
    }
    world.finish()?;
    for result in results {
        for word in [result, result + 64] {
            if !is_whole() {
                continue;
            }
            let memory = world.machine.memory();
            if memory.read(word, 8) == [0xff; 8] || memory.read(word, 8) == [0; 8] {
                let place = memory.describe(word);
                return Err(Error::Violation(format!(
                    "{place}: a payload was wrong, or there is no result"
                )));
            }
        }
    }
    Ok(())
}

/// A round trip in which rank 1 expects more than rank 0 puts. Its first thread has none of what is missing.
fn wrong_payload(kernels: &Kernels, seed: u64) -> Result<(), Error> {
    const PUT: u64 = 8 * (THREADS as u64 + 2);
    const EXPECTED: u64 = 2 * 8 * THREADS as u64;
    let mut world = World::new(kernels, seed);
    let boxes = world.each("box", STRIDE + 2 * EXPECTED, true);
    let results = world.each("result", 64, false);
    for (rank, bytes) in [PUT, EXPECTED].into_iter().enumerate() {
        let arguments = Arguments::default()
            .longs(&[boxes[rank], boxes[1 - rank], bytes, results[rank]])
            .watch(world.watch, rank)
            // The second round, whose payload is in the first slot, where it does not depend on the size.
            .words(&[1, 1, u32::from(rank == 0), 1 - rank as u32]);
        world.launch(rank, "symmem_latency_signal", 1, THREADS, arguments);
    }
    world.finish()?;
    let time = world.machine.memory().read(results[1], 8);
    if is_whole() && time != [0xff; 8] {
        return Err(Error::Violation(format!(
            "a rank that got a wrong payload says that it took {time:?} ns"
        )));
    }
    Ok(())
}

/// Both ranks swap values with the same word: each value is found by one of them, or stays.
fn exchanged_words(kernels: &Kernels, seed: u64) -> Result<(), Error> {
    const SWAP: u32 = 3;
    const TIMES: usize = 6;
    let mut world = World::new(kernels, seed);
    let bits = [32, 64][(seed / 3 % 2) as usize];
    let word = world.each("shared word", 64, true)[0];
    let results = world.each("results", 8 * TIMES as u64, false);
    for time in 0..TIMES {
        for (rank, base) in results.iter().enumerate() {
            let result = base + 8 * time as u64;
            let value = (1 + time * RANKS + rank) as u64;
            let arguments = Arguments::default()
                .longs(&[word, result, value, 0])
                .words(&[SWAP, bits]);
            world.launch(rank, "symmem_word_update", 1, 64, arguments);
        }
    }
    world.finish()?;
    let memory = world.machine.memory();
    let places = results
        .iter()
        .flat_map(|base| (0..TIMES as u64).map(move |time| base + 8 * time));
    let mut found: Vec<u8> = places
        .chain([word])
        .map(|place| memory.read(place, 1)[0])
        .collect();
    found.sort_unstable();
    let all: Vec<u8> = (0..=(TIMES * RANKS) as u8).collect();
    if is_whole() && found != all {
        return Err(Error::Violation(format!(
            "values were swapped, and {found:?} were found"
        )));
    }
    Ok(())
}

/// Rank 0 counts in a word of its own, and rank 1 fetches the word now and then.
fn fetched_words(kernels: &Kernels, seed: u64) -> Result<(), Error> {
    const FETCH: u32 = 0;
    const SET: u32 = 1;
    const TIMES: u64 = 6;
    let mut world = World::new(kernels, seed);
    let bits = [32, 64][(seed / 3 % 2) as usize];
    let word = world.each("shared word", 64, true)[0];
    let results = world.each("results", 8 * TIMES, false)[1];
    for time in 0..TIMES {
        let update = |how: u32, result: u64, value: u64| {
            Arguments::default()
                .longs(&[word, result, value, 0])
                .words(&[how, bits])
        };
        let set = update(SET, 0, time + 1);
        world.launch(0, "symmem_word_update", 1, 64, set);
        let fetch = update(FETCH, results + 8 * time, 0);
        world.launch(1, "symmem_word_update", 1, 64, fetch);
    }
    world.finish()?;
    let memory = world.machine.memory();
    let places = (0..TIMES).map(|time| results + 8 * time);
    let found: Vec<u8> = places.map(|place| memory.read(place, 1)[0]).collect();
    if is_whole() && !found.is_sorted() {
        return Err(Error::Violation(format!(
            "a word counts, and {found:?} were found, one after the other"
        )));
    }
    Ok(())
}

/// Each rank puts to the other and meets it in a step, whose signals the device counts. Twice, with the same memory.
fn steps(kernels: &Kernels, seed: u64) -> Result<(), Error> {
    let mut world = World::new(kernels, seed);
    let inboxes = world.each("inbox", BYTES as u64, false);
    let mut expected = Vec::new();
    let step = |world: &mut World, rank: usize| {
        let own = world.signals[rank];
        let arguments = Arguments::default()
            .longs(&[world.signals[1 - rank], own + STRIDE, own + 2 * STRIDE])
            .words(&[0, 0])
            .longs(&[own, own + 3 * STRIDE])
            .watch(world.watch, rank)
            .words(&[0, 1 - rank as u32, 0, 0]);
        world.launch(rank, "symmem_step", 1, THREADS, arguments);
    };
    for round in 0..2 {
        let data = world.filled(&format!("data {round}"), BYTES, round);
        let taken = world.each(&format!("taken {round}"), BYTES as u64, false);
        for rank in 0..RANKS {
            let peer = 1 - rank;
            world.copy(rank, inboxes[peer], data[rank], BYTES, NO_SIGNAL);
            step(&mut world, rank);
            world.copy(rank, taken[rank], inboxes[rank], BYTES, NO_SIGNAL);
            step(&mut world, rank);
            expected.push((taken[rank], pattern(BYTES, peer, round)));
        }
    }
    world.run(&expected)
}

/// Both ranks change the same words, and wait for words that the other sets or adds to.
fn words(kernels: &Kernels, seed: u64) -> Result<(), Error> {
    const SET: u32 = 1;
    const ADD: u32 = 2;
    const SWAP: u32 = 3;
    const COMPARE_SWAP: u32 = 4;
    const EQUAL: u32 = 1;
    const AT_LEAST: u32 = 3;
    const TIMES: u64 = 5;
    let mut world = World::new(kernels, seed);
    let shared = world.each("shared words", 256, true)[0];
    let flags = world.signals.clone();
    let results = world.each("result", 256, false);
    let watch = world.watch;
    let update = |world: &mut World, rank, word, result, operand, compare, how: [u32; 2]| {
        let arguments = Arguments::default()
            .longs(&[word, result, operand, compare])
            .words(&how);
        world.launch(rank, "symmem_word_update", 1, 64, arguments);
    };
    for rank in 0..RANKS {
        for bits in [32, 64] {
            let word = shared + u64::from(bits);
            for _ in 0..TIMES {
                update(&mut world, rank, word, 0, 1, 0, [ADD, bits]);
            }
        }
        // Two words of the peer: one is set, the other one counts and gives its previous value.
        let peer = flags[1 - rank];
        update(&mut world, rank, peer, 0, 7, 0, [SET, 32]);
        update(
            &mut world,
            rank,
            peer + STRIDE,
            results[rank],
            9,
            0,
            [SWAP, 32],
        );
        let wait = |any: u32, value: u64, index: u64, condition: u32| {
            Arguments::default()
                .longs(&[flags[rank], STRIDE, value, index])
                .watch(watch, rank)
                .words(&[2, condition, any, 32])
        };
        world.launch(
            rank,
            "symmem_word_wait",
            1,
            64,
            wait(0, 7, results[rank] + 64, AT_LEAST),
        );
        world.launch(
            rank,
            "symmem_word_wait",
            1,
            64,
            wait(1, 9, results[rank] + 128, EQUAL),
        );
        // Only the first rank's exchange succeeds.
        update(
            &mut world,
            rank,
            shared + 128,
            results[rank] + 192,
            5 + rank as u64,
            0,
            [COMPARE_SWAP, 64],
        );
    }
    let all = RANKS as u64 * TIMES;
    let mut expected = vec![
        (shared + 32, (all as u32).to_le_bytes().to_vec()),
        (shared + 64, all.to_le_bytes().to_vec()),
    ];
    for result in &results {
        // The previous value, the index of all words, and that of the second word.
        for (offset, value) in [(0, 0u32), (64, 0), (128, 1)] {
            expected.push((result + offset, value.to_le_bytes().to_vec()));
        }
    }
    world.run(&expected)
}

/// An all-to-all in place: each rank swaps one half of the bytes that a pair exchanges. Twice, with the same memory.
fn swap(kernels: &Kernels, seed: u64) -> Result<(), Error> {
    const PART: usize = 2064;
    const FIRST: usize = 1040;
    let mut world = World::new(kernels, seed);
    let slots = world.slots(0);
    let data = world.each("data", (PART * RANKS) as u64, false);
    let mut expected = Vec::new();
    for round in 0..2 {
        let fresh = world.filled(&format!("fresh {round}"), PART * RANKS, round);
        let taken = world.each(&format!("taken {round}"), (PART * RANKS) as u64, false);
        for rank in 0..RANKS {
            let peer = 1 - rank;
            let (begin, bytes) = [(0, FIRST), (FIRST, PART - FIRST)][rank];
            let place = |of: usize, part: usize| data[of] + (part * PART + begin) as u64;
            world.copy(rank, data[rank], fresh[rank], PART * RANKS, NO_SIGNAL);
            let arguments = Arguments::default()
                .group(world.watch, &slots, 0, rank)
                .table(&[place(rank, peer)], 0)
                .table(&[place(peer, rank)], 0)
                .table(&[bytes as u64], 0)
                .words(&[1, 1]);
            world.launch(rank, "symmem_swap", BLOCKS, THREADS, arguments);
            world.copy(rank, taken[rank], data[rank], PART * RANKS, NO_SIGNAL);
            let mut swapped = pattern(PART * RANKS, rank, round);
            let other = pattern(PART * RANKS, peer, round);
            swapped[peer * PART..][..PART].copy_from_slice(&other[rank * PART..][..PART]);
            expected.push((taken[rank], swapped));
        }
    }
    world.run(&expected)
}

/// All-to-alls in packets, by kernels in turn. The number of uses wraps in the second call.
fn moves_in_packets(kernels: &Kernels, seed: u64) -> Result<(), Error> {
    const PACKET_BYTES: u64 = 2 * RANKS as u64 * 2048;
    const USES_BEFORE: u32 = u32::MAX - 1;
    let mut world = World::new(kernels, seed);
    let slots = world.slots(PACKET_BYTES);
    world.count_uses(&slots, USES_BEFORE);
    let mut expected = Vec::new();
    for (round, length) in [(0, 1000), (1, 2603), (2, 1000), (0, 1004), (1, 1000)]
        .into_iter()
        .map(|(kernel, length)| (kernel, length as usize))
    {
        let number = expected.len();
        // Only the kernel for all calls takes messages that are long or no whole units.
        let kernel = if length == 1000 {
            MOVES_IN_PACKETS[round]
        } else {
            MOVES_IN_PACKETS[0]
        };
        let data = world.filled(&format!("data {number}"), length * RANKS, number);
        let results = world.each(&format!("result {number}"), (length * RANKS) as u64, false);
        for rank in 0..RANKS {
            let parts = |base: u64| -> Vec<u64> {
                (0..RANKS)
                    .map(|part| base + (part * length) as u64)
                    .collect()
            };
            let arguments = Arguments::default()
                .group(world.watch, &slots, PACKET_BYTES, rank)
                .table(&parts(data[rank]), 0)
                .table(&parts(results[rank]), 0)
                .table(&[length as u64; RANKS], 0)
                .table(&[length as u64; RANKS], 0);
            world.launch(rank, kernel, BLOCKS, THREADS, arguments);
            let received = (0..RANKS).flat_map(|from| {
                let sent = pattern(length * RANKS, from, number);
                sent[rank * length..][..length].to_vec()
            });
            expected.push((results[rank], received.collect()));
        }
    }
    world.run(&expected)
}

/// A reduction whose results only its own rank keeps: the last barrier tells that data has been read. Twice, with the same
/// memory.
fn reduce_scatter(kernels: &Kernels, seed: u64) -> Result<(), Error> {
    const SHARE: usize = 2064;
    let mut world = World::new(kernels, seed);
    let slots = world.slots(0);
    let data = world.each("data", (SHARE * RANKS) as u64, false);
    let mut expected = Vec::new();
    for round in 0..2 {
        let fresh = world.filled(&format!("fresh {round}"), SHARE * RANKS, round);
        let results = world.each(&format!("result {round}"), SHARE as u64, false);
        for rank in 0..RANKS {
            let share = |base: &u64| base + (rank * SHARE) as u64;
            let sources: Vec<u64> = data.iter().map(share).collect();
            let destinations: Vec<u64> = (0..RANKS)
                .map(|each| if each == rank { results[rank] } else { 0 })
                .collect();
            world.copy(rank, data[rank], fresh[rank], SHARE * RANKS, NO_SIGNAL);
            let arguments = Arguments::default()
                .group(world.watch, &slots, 0, rank)
                .reduce(&sources, &destinations, SHARE as u64 / 4, SUM_OF_U32);
            world.launch(rank, "symmem_reduce_u32", BLOCKS, THREADS, arguments);
            let all = sums(SHARE * RANKS, round);
            expected.push((results[rank], all[rank * SHARE..][..SHARE].to_vec()));
        }
    }
    world.run(&expected)
}

/// Rank 0 waits for a signal that does not come, until rank 1, in the host's place, sets the abort word. The wait then ends
/// with a record.
fn abort(kernels: &Kernels, seed: u64) -> Result<(), Error> {
    const SET: u32 = 1;
    let mut world = World::new(kernels, seed);
    let record = world.machine.memory().allocate("record", 64, true);
    let aborted = world.machine.memory().allocate("aborted", 64, true);
    let abort = WatchWords::of(world.watch, 0).abort;
    let wait = Arguments::default()
        .longs(&[world.signals[0], 0])
        .longs(&[abort, record, aborted, 1 << 62])
        .words(&[0, 0])
        .words(&[5, 1, 3, 0]);
    world.launch(0, "symmem_wait", 1, 64, wait);
    let set = Arguments::default()
        .longs(&[abort, 0, 1, 0])
        .words(&[SET, 32]);
    world.launch(1, "symmem_word_update", 1, 64, set);
    let words = |words: &[u32]| words.iter().flat_map(|word| word.to_le_bytes()).collect();
    world.run(&[
        (record, words(&[2, 1, 0, 1, 3, 5, 0, 2])),
        (aborted, words(&[1])),
    ])
}

/// The barrier of a world whose second rank has a number so high that another wave signals it and waits for it.
fn barrier_of_many(kernels: &Kernels, seed: u64) -> Result<(), Error> {
    const NUMBERS: [usize; RANKS] = [0, 65];
    const WORLD: usize = NUMBERS[1] + 1;
    let mut world = World::new(kernels, seed);
    let words = world.each("words", WORLD as u64 * STRIDE, true);
    let counters = world.each("counter", 64, false);
    let inboxes = world.each("inbox", BYTES as u64, false);
    let mut expected = Vec::new();
    let meet = |world: &mut World, rank: usize| {
        let peer = 1 - rank;
        let mut peers = [0; WORLD];
        peers[NUMBERS[peer]] = words[peer] + NUMBERS[rank] as u64 * STRIDE;
        let arguments = Arguments::default()
            .watch(world.watch, rank)
            .longs(&[counters[rank], words[rank]])
            .table(&peers, 0)
            .words(&[WORLD as u32, 0]);
        world.launch(rank, "symmem_barrier", 1, THREADS, arguments);
    };
    for round in 0..2 {
        let data = world.filled(&format!("data {round}"), BYTES, round);
        let taken = world.each(&format!("taken {round}"), BYTES as u64, false);
        for rank in 0..RANKS {
            let peer = 1 - rank;
            world.copy(rank, inboxes[peer], data[rank], BYTES, NO_SIGNAL);
            meet(&mut world, rank);
            world.copy(rank, taken[rank], inboxes[rank], BYTES, NO_SIGNAL);
            meet(&mut world, rank);
            expected.push((taken[rank], pattern(BYTES, peer, round)));
        }
    }
    world.run(&expected)
}

/// Runs two schedules of each purpose for each scenario and target, or one where a commit draws its part; of a GEMM, a third of
/// those that a commit draws.
fn for_all(how: &str, run: impl Fn(&Scenario, &Kernels, u64) -> Result<(), Error>) {
    if !crate::installed() {
        return;
    }
    for scenario in super::SCENARIOS.iter().chain(&SCENARIOS) {
        let parts = if scenario.is_gemm() { 6 } else { 2 };
        for target in scenario.targets() {
            let kernels = Kernels::load(scenario, target).unwrap();
            for seed in crate::amount::drawn(6, parts) {
                if let Err(error) = run(scenario, &kernels, seed) {
                    panic!(
                        "{} on {}, {how}, seed {seed}: {error}",
                        scenario.name,
                        target.name()
                    );
                }
            }
        }
    }
}

#[test]
fn a_rank_whose_peer_does_not_come_ends_when_it_is_aborted() {
    for_all("alone", alone);
}

#[test]
fn a_rank_whose_waits_give_up_at_any_moment_misleads_nobody() {
    for_all("interrupted", |scenario, kernels, seed| {
        (scenario.run)(kernels, seed)?;
        interrupted(scenario, kernels, seed)
    });
}

/// A block that takes all votes as cast for it tells its peers that it has stored all, although one of its waits gave up.
#[test]
fn a_vote_that_is_not_counted_is_found_where_a_wait_gives_up() {
    if !crate::installed() {
        return;
    }
    let push = &super::SCENARIOS[6];
    for target in Target::ALL {
        let mut kernels = Kernels::load(push, target).unwrap();
        let changed = kernels.plant("symmem_reduce_push_f32", |code, index| {
            match code[index].operation {
                Operation::SharedLoad { destination, .. } => {
                    decode(&format!("v_mov_b32_e32 v{destination}, 1"), None)
                }
                _ => None,
            }
        });
        assert!(changed > 0, "no vote in {}", target.name());
        let found = (0..20).any(|seed| {
            (push.run)(&kernels, seed).unwrap();
            let found = interrupted(push, &kernels, seed);
            found.is_err_and(|error| {
                println!("{}, seed {seed}: {error}", target.name());
                error
                    .to_string()
                    .contains("to another rank after a wait of the block gave up")
            })
        });
        assert!(found, "{}", target.name());
    }
}

macro_rules! protocols {
    ($($test:ident: $index:literal,)*) => {
        $(#[test]
        fn $test() {
            crate::holds(&SCENARIOS[$index]);
        })*
    };
}

protocols! {
    an_unrolled_put_holds: 0,
    round_trips_hold: 1,
    steps_that_the_device_counts_hold: 2,
    words_that_ranks_change_and_wait_for_hold: 3,
    a_swap_holds: 4,
    moves_in_packets_whose_number_wraps_hold: 5,
    a_reduce_scatter_holds: 6,
    a_wait_that_is_aborted_holds: 7,
    a_barrier_of_many_holds: 8,
    a_payload_that_is_wrong_is_reported: 9,
    words_that_are_exchanged_keep_every_value: 10,
    words_that_are_fetched_hold: 11,
    lines_of_lamport_packets_hold: 12,
    an_exchange_by_many_blocks_holds: 13,
}
