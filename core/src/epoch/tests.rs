//! Each rule by itself, and two threads that follow them.

use super::*;
use proptest::prelude::*;
use std::sync::atomic::{AtomicU32, Ordering};

#[test]
fn an_epoch_is_reached_by_itself_and_by_later_ones_across_the_wrap() {
    for expected in [0, 1, 7, u32::MAX - 1, u32::MAX, 1 << 31] {
        assert!(reached(expected, expected));
        assert!(reached(expected.wrapping_add(1), expected));
        assert!(reached(expected.wrapping_add((1 << 31) - 1), expected));
        assert!(!reached(expected.wrapping_add(1 << 31), expected));
        assert!(!reached(expected.wrapping_sub(1), expected));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: if cfg!(miri) { 8 } else { 256 }, ..ProptestConfig::default() })]
    #[test]
    fn of_two_different_epochs_one_comes_first(first: u32, ahead in 1..1u32 << 31) {
        let second = first.wrapping_add(ahead);
        prop_assert!(reached(second, first));
        prop_assert!(!reached(first, second));
    }
}

#[test]
fn a_raised_word_never_goes_back_and_counts_across_the_wrap() {
    let (word, sleepers) = (AtomicU32::new(u32::MAX), AtomicU32::new(0));
    assert!(!raise(&word, &sleepers, 1));
    assert!(!raise(&word, &sleepers, 0));
    assert_eq!(word.load(Ordering::Relaxed), 1);
}

#[test]
fn the_giver_hears_of_a_sleeper_until_it_has_left() {
    let (word, sleepers) = (AtomicU32::new(0), AtomicU32::new(0));
    register_sleeper(&sleepers);
    assert!(publish(&word, &sleepers, 1));
    unregister_sleeper(&sleepers);
    assert!(!publish(&word, &sleepers, 2));
}

#[test]
fn of_several_words_those_are_woken_on_which_somebody_sleeps() {
    let words = [AtomicU32::new(0), AtomicU32::new(0)];
    let sleepers = [AtomicU32::new(0), AtomicU32::new(2)];
    let mut woken = Vec::new();
    publish_all(words.iter().zip(&sleepers), 5, |word| woken.push(word));
    assert!(words.iter().all(|word| word.load(Ordering::Relaxed) == 5));
    assert!(woken.len() == 1 && std::ptr::eq(woken[0], &words[1]));
}

#[test]
fn halves_take_turns_across_the_wrap() {
    let halves = [u32::MAX - 1, u32::MAX, 0, 1].map(half_of);
    assert_eq!(halves, [0, 1, 0, 1]);
}

#[test]
fn a_signal_that_has_come_counts_although_the_abort_word_is_set() {
    let (word, abort) = (AtomicU32::new(4), AtomicU32::new(1));
    assert_eq!(look(&word, 4, Some(&abort)), Outlook::Reached);
    assert_eq!(look(&word, 5, Some(&abort)), Outlook::Aborted { seen: 4 });
    assert_eq!(look(&word, 5, None), Outlook::Waiting { seen: 4 });
}

#[test]
fn threads_give_and_wait_in_turn_across_the_wrap() {
    let start = u32::MAX - 3;
    let words = [AtomicU32::new(start), AtomicU32::new(start)];
    let sleepers = AtomicU32::new(0);
    std::thread::scope(|scope| {
        for rank in 0..2 {
            let (words, sleepers) = (&words, &sleepers);
            scope.spawn(move || {
                for round in 1..=8 {
                    let epoch = start.wrapping_add(round);
                    assert!(!publish(&words[1 - rank], sleepers, epoch));
                    while look(&words[rank], epoch, None) != Outlook::Reached {
                        std::thread::yield_now();
                    }
                }
            });
        }
    });
}
