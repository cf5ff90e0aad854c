//! Waits for one word, any and all end when their condition holds, and only then.

use super::*;

/// Waits until word 1 of three satisfies the condition: by itself (`None`), by `wait_any` (`Some(true)`), where the
/// other words start equal to it, or by `wait_all` (`Some(false)`), where the others always satisfy it.
fn every_condition<W: Width>(communicator: &Communicator, any: Option<bool>) {
    let (rank, world) = (communicator.rank(), communicator.world_size());
    let next = (rank + 1) % world;
    let (waiting, setting) = (
        communicator.stream().unwrap(),
        communicator.stream().unwrap(),
    );
    const STRIDE: usize = 5;
    let words = communicator.allocate::<W>(&[2 * STRIDE + 1]).unwrap();
    let word = |index: usize| words.slice(index * STRIDE..index * STRIDE + 1).unwrap();
    let mut held = 0;
    for condition in CONDITIONS {
        for (value, first) in pairs::<W>() {
            let good = satisfying(condition, value);
            let others = match any {
                Some(true) => first,
                _ => good,
            };
            // The word lies between two others that the wait also reads.
            for (index, word_value) in [others, first, others].into_iter().enumerate() {
                words
                    .write(&setting, index * STRIDE, &[word_value])
                    .unwrap();
            }
            communicator.host_barrier().unwrap();
            match any {
                None => waiting.wait_word(word(1), condition, value),
                Some(true) => waiting.wait_any(words.all(), STRIDE, condition, value, None),
                Some(false) => waiting.wait_all(words.all(), STRIDE, condition, value),
            }
            .unwrap();
            if holds(condition, first, value) {
                waiting.synchronize().unwrap();
            } else {
                held += 1;
                assert!(is_held(&waiting), "{condition:?} {first:?} {value:?}");
            }
            // No rank sets a word before its owner has seen that the wait holds.
            communicator.host_barrier().unwrap();
            setting.signal_set(next, word(1), good).unwrap();
            waiting.synchronize().unwrap();
            setting.synchronize().unwrap();
            communicator.host_barrier().unwrap();
        }
    }
    // The wait holds for half of the ordered conditions and for all but four of the equalities.
    assert!(held > CONDITIONS.len() * 4, "{held}");
}

#[test]
fn a_wait_for_a_word_ends_when_and_only_when_the_condition_holds() {
    worlds(1..=3, |communicator| {
        every_condition::<u32>(communicator, None);
        every_condition::<u64>(communicator, None);
    });
}

#[test]
fn a_wait_for_any_word_ends_with_the_first_that_holds() {
    worlds(1..=2, |communicator| {
        every_condition::<u32>(communicator, Some(true));
        every_condition::<u64>(communicator, Some(true));
    });
}

#[test]
fn a_wait_for_all_words_ends_with_the_last_that_holds() {
    worlds(1..=2, |communicator| {
        every_condition::<u32>(communicator, Some(false));
        every_condition::<u64>(communicator, Some(false));
    });
}

fn names_the_word<W: Width>(communicator: &Communicator) {
    let (rank, world) = (communicator.rank(), communicator.world_size());
    let stream = communicator.stream().unwrap();
    let words = communicator.allocate::<W>(&[24]).unwrap();
    let index = communicator.allocate::<u32>(&[3]).unwrap();
    for stride in [1, 3, SIGNAL_STRIDE as usize / size_of::<W>()] {
        let count = words.len().div_ceil(stride);
        for good in 0..count {
            let mut values = [W::of(7); 24];
            values[good * stride] = W::of(8);
            words.write(&stream, 0, &values).unwrap();
            index.write(&stream, 0, &[99; 3]).unwrap();
            let place = index.slice(1..2).unwrap();
            let wait = (words.all(), stride, Condition::Greater, W::of(7));
            stream
                .wait_any(wait.0, wait.1, wait.2, wait.3, Some(place))
                .unwrap();
            let mut found = [0; 3];
            index.read(&stream, 0, &mut found).unwrap();
            assert_eq!(
                found,
                [99, good as u32, 99],
                "stride {stride}, {rank} of {world}"
            );
        }
    }
}

#[test]
fn a_wait_for_any_word_says_which() {
    worlds(1..=2, |communicator| {
        names_the_word::<u32>(communicator);
        names_the_word::<u64>(communicator);
    });
}

/// Each rank puts a part to every rank and raises its word there. A rank that has waited for all words sees all parts.
/// The words start close to the wrap and pass it.
fn raised_by_all<W: Width>(communicator: &Communicator) {
    const PART: usize = 300;
    const ROUNDS: u64 = 6;
    let (rank, world) = (communicator.rank(), communicator.world_size());
    let stream = communicator.stream().unwrap();
    let stride = SIGNAL_STRIDE as usize / size_of::<W>();
    let words = communicator.allocate::<W>(&[world * stride]).unwrap();
    let inbox = communicator.allocate::<u64>(&[world, PART]).unwrap();
    let outbox = communicator.allocate::<u64>(&[PART]).unwrap();
    let start = W::of(u64::MAX - 2);
    words
        .write(&stream, 0, &vec![start; world * stride])
        .unwrap();
    communicator.host_barrier().unwrap();
    for round in 1..=ROUNDS {
        outbox
            .write(&stream, 0, &[round << 8 | rank as u64; PART])
            .unwrap();
        for peer in 0..world {
            let part = inbox.slice(rank * PART..rank * PART + PART).unwrap();
            stream.put(peer, part, outbox.all()).unwrap();
            stream.fence().unwrap();
            let word = words.slice(rank * stride..rank * stride + 1).unwrap();
            stream.signal_add(peer, word, W::of(1)).unwrap();
        }
        let value = W::of(start.into().wrapping_add(round));
        stream
            .wait_all(words.all(), stride, Condition::GreaterOrEqual, value)
            .unwrap();
        let mut received = vec![0; world * PART];
        inbox.read(&stream, 0, &mut received).unwrap();
        for (peer, part) in received.chunks(PART).enumerate() {
            assert_eq!(part, [round << 8 | peer as u64; PART]);
        }
        // No rank overwrites a part before it was checked.
        stream.barrier().unwrap();
    }
    stream.quiet().unwrap();
    stream.synchronize().unwrap();
}

#[test]
fn whoever_waited_for_all_ranks_words_sees_what_they_had_put_across_the_wrap() {
    worlds(1..=4, |communicator| {
        raised_by_all::<u32>(communicator);
        raised_by_all::<u64>(communicator);
    });
}
