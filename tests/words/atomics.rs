//! Atomic operations on words of other ranks, made by all ranks at once.

use super::*;

fn sum_of_all<W: Width>(communicator: &Communicator) {
    const EACH: usize = 50;
    let world = communicator.world_size();
    let (one, other) = (
        communicator.stream().unwrap(),
        communicator.stream().unwrap(),
    );
    let word = communicator.allocate::<W>(&[3]).unwrap();
    let old = communicator.allocate::<W>(&[2 * EACH]).unwrap();
    // The neighbors of the word must not change.
    let start = W::of(u64::MAX - 10);
    word.write(&one, 0, &[start; 3]).unwrap();
    communicator.host_barrier().unwrap();
    for index in 0..EACH {
        for (stream, at) in [(&one, index), (&other, EACH + index)] {
            let result = Some(old.slice(at..at + 1).unwrap());
            let target = word.slice(1..2).unwrap();
            stream
                .atomic_fetch_add(0, target, W::of(1), result)
                .unwrap();
        }
    }
    let mut before = vec![start; 2 * EACH];
    other.synchronize().unwrap();
    old.read(&one, 0, &mut before).unwrap();
    let mut all: Vec<u64> = communicator
        .host_all_gather(
            &before
                .iter()
                .flat_map(|&old| old.into().to_le_bytes())
                .collect::<Vec<_>>(),
        )
        .unwrap()
        .concat()
        .chunks(8)
        .map(|bytes| u64::from_le_bytes(bytes.try_into().unwrap()))
        .map(|old| W::of(old.wrapping_sub(start.into())).into())
        .collect();
    all.sort_unstable();
    assert!(
        all.iter().copied().eq(0..(2 * EACH * world) as u64),
        "{all:?}"
    );

    let result = old.slice(..1).unwrap();
    one.atomic_fetch(0, word.slice(1..2).unwrap(), result)
        .unwrap();
    let mut sum = [start];
    old.read(&one, 0, &mut sum).unwrap();
    assert_eq!(
        sum[0],
        W::of(start.into().wrapping_add((2 * EACH * world) as u64))
    );
    let mut around = [W::of(0); 3];
    word.read(&one, 0, &mut around).unwrap();
    assert_eq!((around[0], around[2]), (start, start));
    communicator.host_barrier().unwrap();
}

#[test]
fn additions_of_all_ranks_and_streams_to_one_word_are_each_counted_once() {
    worlds(1..=4, |communicator| {
        sum_of_all::<u32>(communicator);
        sum_of_all::<u64>(communicator);
    });
}

fn one_wins<W: Width>(communicator: &Communicator) {
    let (rank, world) = (communicator.rank(), communicator.world_size());
    let stream = communicator.stream().unwrap();
    let word = communicator.allocate::<W>(&[1]).unwrap();
    let old = communicator.allocate::<W>(&[2]).unwrap();
    let last = world - 1;
    // Wide values show that neither half is lost.
    let of = |rank: usize| W::of(0x0102_0304_0506_0700 + rank as u64);
    for round in 0..20 {
        word.write(&stream, 0, &[W::of(round)]).unwrap();
        communicator.host_barrier().unwrap();
        let result = Some(old.slice(..1).unwrap());
        stream
            .atomic_compare_swap(last, word.all(), W::of(round), of(rank), result)
            .unwrap();
        let mut seen = [W::of(99)];
        old.read(&stream, 0, &mut seen).unwrap();
        let won = seen[0] == W::of(round);
        let winners = communicator
            .host_all_gather(&[u8::from(won)])
            .unwrap()
            .concat();
        assert_eq!(winners.iter().sum::<u8>(), 1, "{winners:?}");
        let winner = winners.iter().position(|&won| won == 1).unwrap();
        assert!(won || seen[0] == of(winner));
        // Swaps pass the word's value on and lose none, so each rank sees a different one.
        let result = Some(old.slice(1..2).unwrap());
        stream
            .atomic_swap(last, word.all(), of(rank + world), result)
            .unwrap();
        old.read(&stream, 1, &mut seen).unwrap();
        let seen = communicator
            .host_all_gather(&seen[0].into().to_le_bytes())
            .unwrap();
        let mut chain: Vec<_> = seen
            .concat()
            .chunks(8)
            .map(|b| u64::from_le_bytes(b.try_into().unwrap()))
            .collect();
        let mut end = [W::of(0)];
        stream
            .atomic_fetch(last, word.all(), old.slice(1..2).unwrap())
            .unwrap();
        old.read(&stream, 1, &mut end).unwrap();
        chain.push(end[0].into());
        chain.sort_unstable();
        let mut expected: Vec<u64> = (world..2 * world).map(|rank| of(rank).into()).collect();
        expected.push(of(winner).into());
        expected.sort_unstable();
        assert_eq!(chain, expected);
        communicator.host_barrier().unwrap();
    }
}

#[test]
fn of_all_ranks_that_compare_and_swap_one_wins_and_swaps_lose_nothing() {
    worlds(1..=4, |communicator| {
        one_wins::<u32>(communicator);
        one_wins::<u64>(communicator);
    });
}

#[test]
fn captured_words_count_on_at_every_replay_and_outlive_their_buffers() {
    worlds(1..=3, |communicator| {
        let (rank, world) = (communicator.rank(), communicator.world_size());
        let (next, previous) = ((rank + 1) % world, (rank + world - 1) % world);
        let mut stream = communicator.stream().unwrap();
        let words = communicator.allocate::<u32>(&[4]).unwrap();
        let sums = communicator.allocate::<u64>(&[2]).unwrap();
        let index = communicator.allocate::<u32>(&[1]).unwrap();
        // The previous rank raises word 0; word 1 answers that it was seen.
        let graph = stream
            .capture(|queue| {
                queue.signal_add(next, words.slice(..1)?, 1)?;
                queue.wait_any(words.slice(..1)?, 1, Condition::Equal, 1, Some(index.all()))?;
                queue.atomic_fetch_add(rank, sums.slice(..1)?, 1, Some(sums.slice(1..2)?))?;
                queue.signal_set(rank, words.slice(..1)?, 0)?;
                queue.signal_set(previous, words.slice(1..2)?, 1)?;
                queue.wait_word(words.slice(1..2)?, Condition::NotEqual, 0)?;
                queue.signal_set(rank, words.slice(1..2)?, 0)?;
                queue.barrier()
            })
            .unwrap();
        drop(index);
        for _ in 0..10 {
            stream.launch_graph(&graph).unwrap();
        }
        let mut seen = [0; 2];
        sums.read(&stream, 0, &mut seen).unwrap();
        assert_eq!(seen, [10, 9]);
    });
}
