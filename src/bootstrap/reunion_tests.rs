//! Tests of reunions.

use super::*;
use crate::bootstrap::secret::Secret;

/// Returns the reunions of a job, as if all ranks had met.
fn job(world: u32) -> Vec<Reunion> {
    let secret = Secret::random().unwrap();
    let listeners: Vec<Listener> = (0..world)
        .map(|_| Listener::bind(&Address::Tcp("127.0.0.1:0".into())).unwrap())
        .collect();
    let addresses: Vec<String> = (listeners.iter())
        .map(|listener| format!("127.0.0.1:{}", listener.port().unwrap()))
        .collect();
    (listeners.into_iter().zip(0..))
        .map(|(listener, rank)| Reunion {
            rank,
            key: Key::Secret(secret.clone()),
            addresses: addresses.clone(),
            listener: Mutex::new(listener),
        })
        .collect()
}

/// Lets the survivors agree, each of which knows the ranks beside it to be gone.
fn agree(
    survivors: &[(&Reunion, &[usize])],
    nodes: &[u32],
    patience: Duration,
) -> Vec<Result<Vec<usize>, BootstrapError>> {
    let placement = Placement::of(nodes);
    let until = Instant::now() + patience;
    std::thread::scope(|scope| {
        let threads: Vec<_> = (survivors.iter())
            .map(|(reunion, gone)| {
                let placement = &placement;
                scope.spawn(move || {
                    let survey = Survey {
                        placement,
                        is_lost: &|_| false,
                        silence: Duration::from_secs(1),
                        until,
                    };
                    let gone = gone
                        .iter()
                        .fold(RankSet::default(), |set, &rank| set.with(rank));
                    let agreed = reunion.agree(gone, &survey)?;
                    Ok(agreed.gone.members(nodes.len()).collect())
                })
            })
            .collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .collect()
    })
}

const LONG: Duration = Duration::from_secs(30);

#[test]
fn survivors_agree_though_rank_0_is_gone_and_only_one_of_them_knew() {
    let mut job = job(4);
    drop(job.remove(0));
    let [one, two, three] = &job[..] else {
        unreachable!()
    };
    let agreed = agree(
        &[(one, &[0]), (two, &[]), (three, &[])],
        &[0, 0, 1, 1],
        LONG,
    );
    for agreed in agreed {
        assert_eq!(agreed.unwrap(), [0]);
    }
}

#[test]
fn a_rank_whose_end_nobody_knew_of_is_found_by_its_closed_port() {
    let mut job = job(4);
    job.truncate(3);
    let ranks: Vec<(&Reunion, &[usize])> = job.iter().map(|rank| (rank, &[][..])).collect();
    for agreed in agree(&ranks, &[0, 0, 1, 1], LONG) {
        assert_eq!(agreed.unwrap(), [3]);
    }
}

#[test]
fn a_rank_that_lives_and_does_not_come_is_named() {
    let job = job(3);
    let patience = Duration::from_millis(700);
    let agreed = agree(&[(&job[0], &[]), (&job[1], &[])], &[0, 0, 1], patience);
    let Err(BootstrapError::Timeout { missing, .. }) = &agreed[0] else {
        panic!("{agreed:?}");
    };
    assert_eq!(missing, &[2]);
    assert!(agreed[1].is_err());
}

#[test]
fn a_rank_that_another_takes_for_gone_is_told() {
    let job = job(3);
    let agreed = agree(
        &[(&job[0], &[]), (&job[1], &[2]), (&job[2], &[])],
        &[0, 0, 1],
        // If it comes too late, nobody is there to tell it.
        Duration::from_secs(5),
    );
    assert_eq!(agreed[0].as_deref().unwrap(), [2]);
    assert_eq!(agreed[1].as_deref().unwrap(), [2]);
    assert!(agreed[2].is_err(), "{agreed:?}");
}

#[test]
fn a_job_can_reunite_again_at_the_same_addresses() {
    let mut job = job(4);
    job.truncate(3);
    for _ in 0..2 {
        let ranks: Vec<(&Reunion, &[usize])> = job.iter().map(|rank| (rank, &[3][..])).collect();
        for agreed in agree(&ranks, &[0, 1, 2, 3], LONG) {
            assert_eq!(agreed.unwrap(), [3]);
        }
    }
}
