//! Atomic operations on words, waits for words, and steps.

use super::*;
use rstest::rstest;

const WORDS: u64 = DATA;

fn update(rank: &Rank, operation: WordOperation) {
    // SAFETY: all words outlive the stream.
    unsafe {
        rank.backend
            .word_update(&operation, RawStream::NULL)
            .unwrap()
    };
}

fn read_wide(address: DeviceAddress) -> u64 {
    u64::from(read(address)) | u64::from(read(DeviceAddress(address.0 + 4))) << 32
}

#[rstest]
fn an_update_does_what_it_says_and_gives_the_old_value(#[values(32, 64)] bits: u32) {
    let ranks = world(2);
    let me = &ranks[0];
    let word = me.at(1, WORDS);
    let result = me.mine(64);
    let mask = u64::MAX >> (64 - bits);
    let do_it = |update_: WordUpdate, operand: u64, compare: u64| {
        let operation = WordOperation {
            word,
            result,
            operand,
            compare,
            update: update_,
            bits,
        };
        update(me, operation);
        // The peer sees the same word, and the bytes after it have not changed.
        let seen = read_wide(ranks[1].at(1, WORDS)) & mask;
        assert_eq!(read(me.at(1, WORDS + u64::from(bits / 8))), 0);
        (read_wide(result) & mask, seen)
    };
    let top = 1 << (bits - 1) | 5;
    assert_eq!(do_it(WordUpdate::SET, top, 0), (0, top));
    assert_eq!(do_it(WordUpdate::FETCH, 9, 0), (top, top));
    assert_eq!(do_it(WordUpdate::ADD, mask, 0), (top, top - 1));
    assert_eq!(do_it(WordUpdate::SWAP, 7, 0), (top - 1, 7));
    assert_eq!(do_it(WordUpdate::COMPARE_SWAP, 8, 6), (7, 7));
    assert_eq!(do_it(WordUpdate::COMPARE_SWAP, 8, 7), (7, 8));
    update(
        me,
        WordOperation {
            word,
            operand: 3,
            update: WordUpdate::SET,
            bits,
            ..Default::default()
        },
    );
    assert_eq!(read_wide(word) & mask, 3, "without a result too");
}

#[test]
fn adds_of_several_ranks_are_all_counted() {
    let ranks = world(3);
    let rounds = if cfg!(miri) { 5 } else { 1000 };
    std::thread::scope(|scope| {
        for rank in &ranks {
            scope.spawn(move || {
                for _ in 0..rounds {
                    let word = rank.at(0, WORDS);
                    let add = WordUpdate::ADD;
                    update(
                        rank,
                        WordOperation {
                            word,
                            operand: 1,
                            update: add,
                            bits: 64,
                            ..Default::default()
                        },
                    );
                }
            });
        }
    });
    assert_eq!(read_wide(ranks[0].at(0, WORDS)), 3 * rounds);
}

fn word_wait(rank: &Rank, deadline: Duration) -> WordWait {
    WordWait {
        words: rank.at(rank.rank, WORDS),
        stride: 8,
        value: 10,
        index: rank.mine(72),
        watch: rank.watch(deadline),
        count: 3,
        condition: ConditionCode::EQUAL,
        any: 1,
        bits: 32,
    }
}

fn begin(rank: &Rank, wait: &WordWait) -> RawStream {
    let stream = rank.stream();
    // SAFETY: all words outlive the stream.
    unsafe { rank.backend.word_wait(wait, stream).unwrap() };
    stream
}

#[rstest]
#[case(ConditionCode::EQUAL, [false, true, false, false])]
#[case(ConditionCode::NOT_EQUAL, [true, false, true, true])]
#[case(ConditionCode::GREATER_OR_EQUAL, [false, true, true, false])]
#[case(ConditionCode::GREATER, [false, false, true, false])]
#[case(ConditionCode::LESS_OR_EQUAL, [true, true, false, true])]
#[case(ConditionCode::LESS, [true, false, false, true])]
fn a_condition_holds_in_wrapping_order(
    #[case] condition: ConditionCode,
    #[case] holds: [bool; 4],
    #[values(32, 64)] bits: u32,
) {
    let ranks = world(1);
    let me = &ranks[0];
    for value in [10u64, (1 << (bits - 1)) + 2, 0] {
        let half = 1u64 << (bits - 1);
        let words = [
            value - 1.min(value),
            value,
            value + 1,
            value.wrapping_add(half + 1),
        ];
        for (index, (word, holds)) in words.into_iter().zip(holds).enumerate() {
            if value == 0 && index == 0 {
                continue;
            }
            write(me.at(0, WORDS), word as u32);
            if bits == 64 {
                write(me.at(0, WORDS + 4), (word >> 32) as u32);
            }
            let wait = WordWait {
                value,
                count: 1,
                condition,
                bits,
                ..word_wait(me, Duration::from_micros(1))
            };
            me.synchronize(begin(me, &wait));
            let gave_up = me.record().state == 2;
            assert_eq!(gave_up, !holds, "{word:#x} {} {value:#x}", condition.name());
            write(me.mine(RECORD), 0);
        }
    }
}

#[rstest]
fn a_wait_ends_when_any_word_or_all_are_as_they_should_be(#[values(true, false)] any: bool) {
    let ranks = world(2);
    let (me, peer) = (&ranks[0], &ranks[1]);
    let wait = WordWait {
        any: any.into(),
        ..word_wait(me, LONG)
    };
    write(me.mine(72), 99);
    let stream = begin(me, &wait);
    assert!(!me.idle(stream));
    let set = |index: u64| {
        let word = peer.at(0, WORDS + 8 * index);
        update(
            peer,
            WordOperation {
                word,
                operand: 10,
                update: WordUpdate::SET,
                bits: 32,
                ..Default::default()
            },
        );
    };
    set(2);
    if any {
        me.synchronize(stream);
        assert_eq!(read(me.mine(72)), 2);
        return;
    }
    std::thread::sleep(Duration::from_millis(5));
    assert!(!me.idle(stream));
    set(0);
    assert!(!me.idle(stream));
    set(1);
    me.synchronize(stream);
    assert_eq!(read(me.mine(72)), 0);
    assert_eq!(me.record().state, 0);
    assert_eq!(
        read(me.at(0, WORDS + 4)),
        0,
        "the bytes after a word do not change"
    );
}

#[rstest]
fn a_wait_for_words_gives_up_and_names_the_word(#[values(false, true)] aborted: bool) {
    let ranks = world(1);
    let me = &ranks[0];
    write(me.at(0, WORDS), 10);
    let limit = Duration::from_millis(if aborted { 10_000 } else { 20 });
    let stream = begin(
        me,
        &WordWait {
            any: 0,
            ..word_wait(me, limit)
        },
    );
    assert!(!me.idle(stream));
    if aborted {
        write(me.mine(ABORT), 1);
    }
    me.synchronize(stream);
    let record = me.record();
    assert_eq!((record.state, record.kind, record.peer), (2, 3, 1));
    assert_eq!((record.expected, record.seen), (10, 0));
    assert_eq!(record.reason, if aborted { 2 } else { 1 });
}

#[test]
fn what_is_not_aligned_or_unknown_is_refused() {
    let ranks = world(1);
    let me = &ranks[0];
    let word = WordOperation {
        word: me.at(0, WORDS),
        bits: 64,
        ..Default::default()
    };
    let odd = DeviceAddress(word.word.0 + 4);
    let waits = word_wait(me, LONG);
    // SAFETY: all words are live.
    let refused = |operation: WordOperation| unsafe {
        me.backend
            .word_update(&operation, RawStream::NULL)
            .unwrap_err()
            .status
    };
    // SAFETY: all words are live.
    let not_waited = |wait: WordWait| unsafe {
        me.backend
            .word_wait(&wait, RawStream::NULL)
            .unwrap_err()
            .status
    };
    let invalid = Status::INVALID_ARGUMENT;
    assert_eq!(refused(WordOperation { word: odd, ..word }), invalid);
    assert_eq!(
        refused(WordOperation {
            result: odd,
            ..word
        }),
        invalid
    );
    assert_eq!(refused(WordOperation { bits: 16, ..word }), invalid);
    assert_eq!(
        refused(WordOperation {
            update: WordUpdate(7),
            ..word
        }),
        invalid
    );
    assert_eq!(not_waited(WordWait { count: 0, ..waits }), invalid);
    assert_eq!(not_waited(WordWait { stride: 2, ..waits }), invalid);
    assert_eq!(
        not_waited(WordWait {
            condition: ConditionCode(0),
            ..waits
        }),
        invalid
    );
    assert_eq!(
        not_waited(WordWait {
            words: DeviceAddress::NULL,
            ..waits
        }),
        invalid
    );
}

#[test]
fn steps_go_to_and_fro_eager_and_replayed() {
    let ranks = world(2);
    let rounds = if cfg!(miri) { 3 } else { 300 };
    std::thread::scope(|scope| {
        for rank in &ranks {
            scope.spawn(move || {
                let (stream, other) = (rank.stream(), 1 - rank.rank);
                let (target, wait) = (rank.target(other), rank.wait(other, LONG));
                // SAFETY: all words outlive the streams.
                let step = || unsafe { rank.backend.signal_step(&target, &wait, stream).unwrap() };
                // SAFETY: all words outlive the streams.
                let graph = unsafe {
                    rank.backend.capture_begin(stream).unwrap();
                    step();
                    step();
                    let graph = rank.backend.capture_end(stream).unwrap();
                    rank.backend.graph_instantiate(graph).unwrap()
                };
                for _ in 0..rounds {
                    step();
                    // SAFETY: the graph and all words outlive the streams.
                    unsafe { rank.backend.graph_launch(graph, stream).unwrap() };
                }
                rank.synchronize(stream);
                assert_eq!(rank.record().state, 0);
                assert_eq!(read(wait.word), 3 * rounds);
            });
        }
    });
}
