//! Waits that no rank satisfies, and calls with invalid arguments.

use super::*;

#[test]
fn a_word_that_nobody_changes_is_a_timeout_that_names_it() {
    type Enqueue = fn(&Stream, &symmem::SymmetricBuffer<u64>) -> Result<()>;
    let waits: [(Enqueue, Option<usize>); 3] = [
        (
            |stream, words| {
                let word = words.slice(4..5)?;
                stream.wait_word_within(word, Condition::Equal, 1 << 40 | 6, SHORT)
            },
            Some(0),
        ),
        (
            |stream, words| {
                stream.wait_all_within(words.all(), 2, Condition::Equal, 1 << 40 | 6, SHORT)
            },
            Some(1),
        ),
        (
            |stream, words| stream.wait_any_within(words.all(), 2, Condition::Less, 4, None, SHORT),
            // `wait_any` may name any of its words.
            None,
        ),
    ];
    for (enqueue, lacking) in waits {
        alone(|communicator| {
            let stream = communicator.stream().unwrap();
            let words = communicator.allocate::<u64>(&[6]).unwrap();
            words
                .write(&stream, 0, &[1 << 40 | 6, 0, 5, 0, 5, 0])
                .unwrap();
            let start = Instant::now();
            enqueue(&stream, &words).unwrap();
            let error = stream.synchronize().unwrap_err();
            assert!(start.elapsed() >= SHORT);
            let Error::WordTimeout {
                rank: 0,
                index,
                seen,
                expected,
                waited,
            } = error
            else {
                panic!("{error:?}");
            };
            assert!(waited >= SHORT && waited < DEADLINE, "{waited:?}");
            if let Some(lacking) = lacking {
                assert_eq!((index, seen, expected), (lacking, 5, 6));
            } else {
                assert!(index < 3 && expected == 4);
            }
            // Every later call fails with the same error.
            for later in [
                stream.fence(),
                stream.quiet(),
                stream.signal_add(0, words.slice(..1).unwrap(), 1),
                stream.wait_word(words.slice(..1).unwrap(), Condition::Equal, 0),
            ] {
                assert!(matches!(later, Err(Error::WordTimeout { .. })), "{later:?}");
            }
        });
    }
}

#[test]
fn an_abort_ends_waits_for_words_of_every_kind() {
    for kind in 0..3 {
        alone(|communicator| {
            let stream = communicator.stream().unwrap();
            let words = communicator.allocate::<u32>(&[2]).unwrap();
            match kind {
                0 => stream.wait_word(words.slice(1..2).unwrap(), Condition::Greater, 0),
                1 => stream.wait_all(words.all(), 1, Condition::Greater, 0),
                _ => stream.wait_any(words.all(), 1, Condition::Greater, 0, None),
            }
            .unwrap();
            assert!(is_held(&stream));
            communicator.abort();
            let start = Instant::now();
            let error = stream.synchronize().unwrap_err();
            assert!(matches!(error, Error::Aborted { rank: 0 }), "{error:?}");
            assert!(start.elapsed() < DEADLINE / 2);
        });
    }
}

/// The other rank of [`the_death_of_a_rank_ends_waits_for_its_words`].
#[test]
#[ignore = "a rank of the_death_of_a_rank_ends_waits_for_its_words"]
fn a_rank_that_is_killed() {
    let communicator = builder(1, 2, &std::env::var("WORDS_JOB").unwrap())
        .build()
        .unwrap();
    let _words = communicator.allocate::<u32>(&[2]).unwrap();
    println!("@ready");
    std::thread::sleep(HARD_LIMIT);
}

#[test]
fn the_death_of_a_rank_ends_waits_for_its_words() {
    limited(|| {
        let job = job();
        let mut victim = Command::new(std::env::current_exe().unwrap())
            .args([
                "failures::a_rank_that_is_killed",
                "--exact",
                "--ignored",
                "--nocapture",
            ])
            .env("WORDS_JOB", &job)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let communicator = builder(0, 2, &job).build().unwrap();
        let stream = communicator.stream().unwrap();
        let words = communicator.allocate::<u32>(&[2]).unwrap();
        let lines = BufReader::new(victim.stdout.take().unwrap()).lines();
        let ready = lines
            .map_while(std::result::Result::ok)
            .any(|line| line.contains("@ready"));
        assert!(ready, "the other rank did not arrive");
        stream
            .wait_all(words.all(), 1, Condition::Equal, 1)
            .unwrap();
        assert!(is_held(&stream));
        let start = Instant::now();
        victim.kill().unwrap();
        let error = stream.synchronize().unwrap_err();
        assert!(
            matches!(error, Error::PeerDied { rank: 0, peer: 1 }),
            "{error:?}"
        );
        assert!(
            start.elapsed() < Duration::from_secs(10),
            "{:?}",
            start.elapsed()
        );
        victim.wait().unwrap();
    });
}

#[test]
fn what_cannot_be_meant_is_refused_before_anything_is_enqueued() {
    alone(|communicator| {
        let stream = communicator.stream().unwrap();
        let words = communicator.allocate::<u64>(&[4]).unwrap();
        let word = words.slice(..1).unwrap();
        let two = words.slice(..2).unwrap();
        let none = words.slice(4..4).unwrap();
        let elsewhere = builder(0, 1, &job()).build().unwrap();
        let stranger = elsewhere.allocate::<u64>(&[1]).unwrap();
        let refusals = [
            (stream.signal_set(1, word, 0), "no rank 1"),
            (stream.signal_set(0, two, 0), "one element, not 2"),
            (stream.signal_add(0, none, 0), "one element, not 0"),
            (
                stream.atomic_fetch(0, word, two),
                "the result must be one element",
            ),
            (
                stream.atomic_swap(0, stranger.all(), 0, None),
                "different communicators",
            ),
            (
                stream.atomic_fetch_add(0, word, 0, Some(stranger.all())),
                "different communicators",
            ),
            (
                stream.wait_word(two, Condition::Equal, 0),
                "one element, not 2",
            ),
            (
                stream.wait_all(words.all(), 0, Condition::Equal, 0),
                "no words to wait for",
            ),
            (
                stream.wait_any(none, 1, Condition::Equal, 0, None),
                "no words to wait for",
            ),
            (
                stream.wait_all(stranger.all(), 1, Condition::Equal, 0),
                "different communicators",
            ),
        ];
        for (refusal, reason) in refusals {
            let error = refusal.unwrap_err();
            assert!(
                matches!(error, Error::InvalidArgument { rank: 0, .. }),
                "{error:?}"
            );
            assert!(error.to_string().contains(reason), "{error}");
        }
        assert!(stream.is_idle().unwrap());
        let mut untouched = [1; 4];
        words.read(&stream, 0, &mut untouched).unwrap();
        assert_eq!(untouched, [0; 4]);
    });
}
