//! Tests of the coordinator alone: no sockets, and a clock that the test sets.

use super::super::frame::{Frame, HEADER_BYTES};
use super::super::process::ProcessIdentity;
use super::*;

const SECOND: u64 = 1_000_000;

/// The connection of `rank`.
fn connection(rank: u32) -> Token {
    if rank == 0 {
        HOST
    } else {
        100 + u64::from(rank)
    }
}

/// A coordinator and its clock.
struct Bench {
    coordinator: Coordinator,
    now: Instant,
}

impl Bench {
    fn empty(world: u32) -> Self {
        let coordinator = Coordinator::new(world, 7, "boot".into());
        Self {
            coordinator,
            now: Instant::now(),
        }
    }

    fn joined(world: u32) -> Self {
        let mut bench = Self::empty(world);
        for rank in 0..world {
            bench.join(connection(rank), rank, world);
        }
        bench.news();
        bench
    }

    fn join(&mut self, token: Token, rank: u32, world: u32) {
        self.join_from(token, rank, world, 7, "boot", None);
    }

    fn join_from(
        &mut self,
        token: Token,
        rank: u32,
        world: u32,
        generation: u64,
        boot: &str,
        onward: Option<&str>,
    ) {
        let process = ProcessIdentity {
            pid: 1,
            start_time: 2,
            namespace: 3,
        };
        let peer = PeerInformation {
            rank,
            process,
            uid: 0,
            boot_id: boot.into(),
            node: boot.into(),
        };
        let join = Request::Join {
            version: VERSION,
            world,
            generation,
            peer,
            deadline: 10 * SECOND,
        };
        self.coordinator
            .handle(token, onward, 1, join, SentDescriptor::Nothing, self.now)
            .unwrap();
    }

    fn request(&mut self, rank: u32, number: u64, request: Request) {
        let token = connection(rank);
        self.coordinator
            .handle(
                token,
                None,
                number,
                request,
                SentDescriptor::Nothing,
                self.now,
            )
            .unwrap();
    }

    fn gather(&mut self, rank: u32, number: u64, tag: &str) {
        let payload = vec![rank as u8];
        self.request(
            rank,
            number,
            Request::AllGather {
                tag: tag.into(),
                payload,
                deadline: SECOND,
            },
        );
    }

    fn after(&mut self, milliseconds: u64) {
        self.now += Duration::from_millis(milliseconds);
        self.coordinator.expire(self.now);
    }

    /// What was sent since the last call: connection, request, reply. In order of connection.
    fn news(&mut self) -> Vec<(Token, u64, Reply)> {
        let mut news: Vec<_> = self
            .coordinator
            .take_actions()
            .into_iter()
            .filter_map(|action| match action {
                Action::Send { to, frame, .. } => {
                    let parsed = Frame::parse(&frame).unwrap().unwrap();
                    assert_eq!(frame.len(), HEADER_BYTES + parsed.body.len());
                    Some((
                        to,
                        parsed.request,
                        Reply::parse(parsed.kind, parsed.body).unwrap(),
                    ))
                }
                Action::StopListening | Action::Finish => None,
            })
            .collect();
        news.sort_by_key(|(to, ..)| *to);
        news
    }
}

fn timed_out(missing: &[u32]) -> Reply {
    Reply::Failure(Failure::TimedOut {
        missing: missing.to_vec(),
    })
}

#[test]
fn ranks_are_welcomed_when_the_last_has_come_and_the_door_closes_first() {
    let mut bench = Bench::empty(2);
    bench.join(101, 1, 2);
    assert_eq!(bench.news(), []);
    bench.join(HOST, 0, 2);
    let actions = bench.coordinator.take_actions();
    assert!(matches!(actions[0], Action::StopListening));
    // Rank 0 last: the store may end on its answer.
    assert!(matches!(actions[1], Action::Send { to: 101, .. }));
    assert!(matches!(actions[2], Action::Send { to: HOST, .. }));
}

#[test]
fn a_gather_completes_when_every_rank_waits_and_the_tag_is_free_again() {
    let mut bench = Bench::joined(3);
    for round in 2..4 {
        bench.gather(2, round, "a");
        bench.gather(0, round, "a");
        assert_eq!(bench.news(), []);
        bench.gather(1, round, "a");
        let news = bench.news();
        assert_eq!(news.len(), 3);
        for (_, request, reply) in news {
            let Reply::Gathered { parts } = reply else {
                panic!("{reply:?}")
            };
            assert_eq!(request, round);
            assert_eq!(
                parts.iter().map(|part| part.payload[0]).collect::<Vec<_>>(),
                [0, 1, 2]
            );
        }
    }
}

#[test]
fn a_deadline_names_the_ranks_that_never_came_not_those_that_gave_up_before() {
    let mut bench = Bench::joined(3);
    bench.gather(0, 2, "a");
    bench.after(500);
    bench.gather(1, 2, "a");
    bench.after(600);
    assert_eq!(bench.news(), [(HOST, 2, timed_out(&[2]))]);
    bench.after(600);
    assert_eq!(bench.news(), [(101, 2, timed_out(&[2]))]);
    // Now rank 2 comes after the others have given up.
    bench.gather(2, 2, "a");
    bench.after(1000);
    assert_eq!(bench.news(), [(102, 2, timed_out(&[0, 1]))]);
    // The call can be repeated.
    (0..3).for_each(|rank| bench.gather(rank, 3, "a"));
    assert_eq!(bench.news().len(), 3);
}

#[test]
fn the_last_to_come_hears_of_those_who_gave_up() {
    let mut bench = Bench::joined(2);
    bench.gather(0, 2, "a");
    bench.after(999);
    bench.gather(1, 2, "b");
    assert_eq!(
        bench.news().len(),
        2,
        "both wait, elsewhere: at once, not at the deadline"
    );
    let mut bench = Bench::joined(3);
    bench.gather(0, 2, "a");
    bench.after(500);
    bench.gather(1, 2, "a");
    bench.after(500);
    bench.gather(2, 2, "a");
    bench.news();
    bench.after(1000);
    assert_eq!(
        bench.news(),
        [(101, 2, timed_out(&[0])), (102, 2, timed_out(&[0]))]
    );
}

#[test]
fn all_ranks_waiting_under_different_tags_are_told_at_once() {
    let mut bench = Bench::joined(3);
    bench.gather(0, 2, "a");
    bench.gather(1, 2, "a");
    assert_eq!(bench.news(), []);
    bench.gather(2, 2, "b");
    let mismatch = |rank, tag: &str| {
        Reply::Failure(Failure::TagMismatch {
            rank,
            tag: tag.into(),
        })
    };
    let expected = [
        (HOST, 2, mismatch(2, "b")),
        (101, 2, mismatch(2, "b")),
        (102, 2, mismatch(0, "a")),
    ];
    assert_eq!(bench.news(), expected);
    (0..3).for_each(|rank| bench.gather(rank, 3, "a"));
    assert!(
        matches!(bench.news()[0].2, Reply::Gathered { .. }),
        "nothing is left over"
    );
}

#[test]
fn a_death_fails_what_is_pending_and_what_comes_later_and_the_first_reason_stands() {
    let mut bench = Bench::joined(3);
    bench.gather(0, 2, "a");
    bench.coordinator.disconnect(102, None, bench.now);
    let died = Reply::Failure(Failure::Died { rank: 2 });
    assert_eq!(
        bench.news(),
        [(HOST, UNSOLICITED, died.clone()), (101, UNSOLICITED, died)]
    );
    bench.request(
        1,
        5,
        Request::Fail {
            reason: "later".into(),
        },
    );
    bench.gather(0, 3, "a");
    assert_eq!(bench.news(), [], "each rank was told once");
}

#[test]
fn a_rank_that_left_fails_the_collectives_that_need_it_and_nothing_else() {
    let mut bench = Bench::joined(3);
    bench.gather(0, 2, "a");
    bench.request(2, 2, Request::Leave);
    bench.coordinator.disconnect(102, None, bench.now);
    let left = Reply::Failure(Failure::Left { rank: 2 });
    assert_eq!(bench.news(), [(HOST, 2, left.clone())]);
    bench.gather(1, 2, "b");
    assert_eq!(bench.news(), [(101, 2, left)]);
    bench.request(
        1,
        3,
        Request::Set {
            key: "k".into(),
            value: vec![1],
        },
    );
    assert_eq!(bench.news(), [(101, 3, Reply::Done)]);
}

#[test]
fn a_get_waits_for_its_key_and_a_counter_counts() {
    let mut bench = Bench::joined(2);
    bench.request(
        1,
        2,
        Request::Get {
            key: "k".into(),
            deadline: SECOND,
        },
    );
    bench.request(
        0,
        2,
        Request::Add {
            key: "k".into(),
            amount: 5,
        },
    );
    let bytes = 5i64.to_le_bytes().to_vec();
    assert_eq!(
        bench.news(),
        [
            (HOST, 2, Reply::Sum { value: 5 }),
            (101, 2, Reply::Value { bytes })
        ]
    );
    bench.request(
        0,
        3,
        Request::Add {
            key: "k".into(),
            amount: -7,
        },
    );
    assert_eq!(bench.news(), [(HOST, 3, Reply::Sum { value: -2 })]);
    bench.request(
        0,
        4,
        Request::Set {
            key: "k".into(),
            value: b"text".to_vec(),
        },
    );
    bench.request(
        0,
        5,
        Request::Add {
            key: "k".into(),
            amount: 1,
        },
    );
    let failure = Reply::Failure(Failure::NotACounter { key: "k".into() });
    assert_eq!(bench.news()[1..], [(HOST, 5, failure)]);
    bench.request(
        1,
        6,
        Request::Get {
            key: "never".into(),
            deadline: SECOND,
        },
    );
    bench.after(1000);
    assert_eq!(bench.news(), [(101, 6, timed_out(&[]))]);
}

#[test]
fn a_rank_that_does_not_fit_fails_the_rendezvous_for_all() {
    type Misfit = (fn(&mut Bench), Failure);
    let misfits: [Misfit; 4] = [
        (
            |bench| bench.join(200, 1, 3),
            Failure::RankTaken { rank: 1 },
        ),
        (
            |bench| bench.join(200, 2, 4),
            Failure::WorldMismatch {
                rank: 2,
                world: 4,
                expected: 3,
            },
        ),
        (
            |bench| bench.join_from(200, 2, 3, 8, "boot", Some("name")),
            Failure::GenerationMismatch {
                rank: 2,
                generation: 8,
                expected: 7,
            },
        ),
        (
            |bench| bench.join_from(200, 2, 3, 7, "elsewhere", Some("name")),
            Failure::OtherHost { rank: 2 },
        ),
    ];
    for (misfit, failure) in misfits {
        let mut bench = Bench::empty(3);
        bench.join(HOST, 0, 3);
        bench.join(101, 1, 3);
        misfit(&mut bench);
        let told = |to| (to, UNSOLICITED, Reply::Failure(failure.clone()));
        let mut news = bench.news();
        // Rank 0 comes last, and waits for a rank that may still come.
        bench.after(FAREWELL.as_millis() as u64);
        news.extend(bench.news());
        assert_eq!(news.len(), 3);
        assert!(news.iter().all(|(to, ..)| [HOST, 101, 200].contains(to)));
        assert!(news.iter().all(|one| *one == told(one.0)), "{news:?}");
    }
}

#[test]
fn a_death_is_told_to_all_who_come_late_before_rank_0_ends_the_store() {
    let mut bench = Bench::empty(8);
    for rank in 0..6 {
        bench.join(connection(rank), rank, 8);
    }
    bench.coordinator.disconnect(101, None, bench.now);
    let died = Reply::Failure(Failure::Died { rank: 1 });
    let told = |to: &[Token]| -> Vec<(Token, u64, Reply)> {
        let all = to.iter().map(|&to| (to, UNSOLICITED, died.clone()));
        all.collect()
    };
    assert_eq!(bench.news(), told(&[102, 103, 104, 105]));
    // Each of them ends, which counts for no other rank.
    for rank in 2..6 {
        let token = connection(rank);
        bench.coordinator.disconnect(token, None, bench.now);
    }
    bench.after(300);
    bench.join(106, 6, 8);
    assert_eq!(bench.news(), told(&[106]));
    bench.join(107, 7, 8);
    assert_eq!(bench.news(), told(&[HOST, 107]));
}

#[test]
fn a_twin_counts_for_no_other_rank() {
    let mut bench = Bench::empty(3);
    bench.join(HOST, 0, 3);
    bench.join(101, 1, 3);
    bench.join(200, 1, 3);
    let taken = |to: Token| {
        (
            to,
            UNSOLICITED,
            Reply::Failure(Failure::RankTaken { rank: 1 }),
        )
    };
    assert_eq!(bench.news(), [taken(101), taken(200)]);
    bench.join(102, 2, 3);
    assert_eq!(bench.news(), [taken(HOST), taken(102)]);
}

#[test]
fn ranks_of_the_larger_world_are_awaited_where_two_sizes_meet() {
    let mut bench = Bench::empty(2);
    bench.join(HOST, 0, 2);
    let misfit = |to: Token| {
        let failure = Failure::WorldMismatch {
            rank: 1,
            world: 3,
            expected: 2,
        };
        (to, UNSOLICITED, Reply::Failure(failure))
    };
    bench.join(101, 1, 3);
    assert_eq!(bench.news(), [misfit(101)]);
    bench.join(102, 2, 3);
    assert_eq!(bench.news(), [misfit(HOST), misfit(102)]);
}

#[test]
fn rank_0_holds_the_store_open_for_those_who_come_late() {
    let mut bench = Bench::empty(4);
    bench.join(HOST, 0, 4);
    bench.join(101, 1, 5);
    let misfit = Reply::Failure(Failure::WorldMismatch {
        rank: 1,
        world: 5,
        expected: 4,
    });
    assert_eq!(bench.news(), [(101, UNSOLICITED, misfit.clone())]);
    let half = FAREWELL.as_millis() as u64 / 2;
    bench.after(half);
    bench.join(102, 2, 4);
    assert_eq!(bench.news(), [(102, UNSOLICITED, misfit.clone())]);
    bench.after(half);
    assert_eq!(bench.news(), [(HOST, UNSOLICITED, misfit)]);
}

#[test]
fn a_rendezvous_ends_with_the_first_rank_that_gives_up() {
    let mut bench = Bench::empty(3);
    bench.join(102, 2, 3);
    bench.after(9_000);
    bench.join(HOST, 0, 3);
    bench.after(1_000);
    let told = |to| (to, UNSOLICITED, timed_out(&[1]));
    assert_eq!(bench.news(), [told(102)]);
    // A rank that comes after that is told too, and nobody waits for another.
    bench.join(101, 1, 3);
    assert_eq!(bench.news(), [told(HOST), told(101)]);
}

#[test]
fn rank_0_returns_at_its_own_deadline_whoever_may_still_come() {
    let mut bench = Bench::empty(3);
    bench.join(HOST, 0, 3);
    bench.join(102, 2, 3);
    bench.after(10_000);
    assert_eq!(
        bench.news(),
        [HOST, 102].map(|to| (to, UNSOLICITED, timed_out(&[1])))
    );
}

#[test]
fn tcp_is_only_a_way_to_the_unix_socket() {
    let mut bench = Bench::empty(2);
    bench.join_from(200, 1, 2, 7, "boot", Some("name"));
    assert_eq!(
        bench.news(),
        [(
            200,
            1,
            Reply::Redirect {
                name: "name".into()
            }
        )]
    );
    bench.coordinator.disconnect(200, None, bench.now);
    bench.join(HOST, 0, 2);
    bench.join(101, 1, 2);
    assert_eq!(bench.news().len(), 2);
}

#[test]
fn nothing_is_answered_before_joining() {
    let mut bench = Bench::empty(2);
    let get = Request::Get {
        key: "k".into(),
        deadline: 1,
    };
    let early = bench.coordinator.handle(
        HOST,
        None,
        1,
        get.clone(),
        SentDescriptor::Nothing,
        bench.now,
    );
    assert_eq!(early, Err("a request before joining"));
    bench.join(HOST, 0, 2);
    let early = bench
        .coordinator
        .handle(HOST, None, 1, get, SentDescriptor::Nothing, bench.now);
    assert_eq!(early, Err("a request before the rendezvous was complete"));
}

#[test]
fn a_lost_connection_fails_the_rendezvous_for_all_and_nothing_afterwards() {
    let lost = || Failure::ConnectionLost {
        connection: "from a to b".into(),
        ranks: vec![2],
        reason: "was cut".into(),
    };
    let mut bench = Bench::empty(3);
    bench.join(HOST, 0, 3);
    bench.join(101, 1, 3);
    assert_eq!(bench.coordinator.ranks_at(101), [1], "it has joined");
    assert_eq!(bench.coordinator.ranks_at(7), [2], "it has not said a word");
    bench.coordinator.fail_rendezvous(lost(), bench.now);
    assert_eq!(
        bench.news(),
        [(101, UNSOLICITED, Reply::Failure(lost()))],
        "rank 0 waits for rank 2, to tell it"
    );
    bench.join(102, 2, 3);
    assert_eq!(
        bench.news(),
        [HOST, 102].map(|to| (to, UNSOLICITED, Reply::Failure(lost())))
    );
    let mut bench = Bench::joined(3);
    bench.coordinator.fail_rendezvous(lost(), bench.now);
    assert_eq!(bench.news(), []);
    bench.gather(0, 2, "a");
    bench.gather(1, 2, "a");
    bench.gather(2, 2, "a");
    assert_eq!(bench.news().len(), 3, "the job goes on");
}

#[test]
fn a_payload_that_would_make_the_answer_too_long_is_refused() {
    for world in [2, 3, 72] {
        let mut bench = Bench::joined(world);
        let mut give = |bytes| {
            let gather = Request::AllGather {
                tag: "a".into(),
                payload: vec![0; bytes],
                deadline: SECOND,
            };
            let (beside, now) = (SentDescriptor::Nothing, bench.now);
            (bench.coordinator).handle(HOST, None, 2, gather, beside, now)
        };
        let most = payload_limit(world);
        assert_eq!(give(most), Ok(()));
        let refused = give(most + 1).unwrap_err();
        assert_eq!(refused, "a payload over the limit of this world size");
    }
}
