use super::*;
use std::time::Duration;
use symmem::Builder;
use symmem::backends::Selection;
use symmem::bootstrap::LaunchEnvironment;

fn candidate(algorithm: Algorithm, blocks: u32) -> Candidate {
    Candidate {
        algorithm,
        grid: Some((blocks, 512)),
        concurrent: 0,
    }
}

#[test]
fn neighboring_sizes_with_one_choice_are_one_row_and_the_last_holds_beyond() {
    let packets = candidate(Algorithm::Ll, 8);
    let two_shot = candidate(Algorithm::TwoShot, 32);
    let one_shot = candidate(Algorithm::OneShot, 8);
    let vendor = vendor();
    let choice = |bytes, candidates: &[Candidate]| Choice {
        bytes,
        candidates: candidates.into(),
    };
    let rows = rows(
        Collective::AllReduce,
        8,
        &[
            choice(1024, &[packets]),
            choice(2048, &[packets]),
            choice(4096, &[one_shot, packets]),
            choice(8192, &[vendor, two_shot]),
        ],
    );
    let short: Vec<(u64, &str, u32)> = (rows.iter())
        .map(|row| (row.bytes, row.algorithm.as_str(), row.blocks))
        .collect();
    assert_eq!(
        short,
        [
            (2048, "packets", 8),
            (4096, "one_shot", 8),
            (4096, "packets", 8),
            (u64::MAX, "vendor", 0),
            (u64::MAX, "two_shot", 32)
        ]
    );
    assert!(
        rows.iter()
            .all(|row| row.operation == "all_reduce" && row.world == 8)
    );
}

const VENDOR: Features = Features {
    vendor: true,
    multicast: false,
    lamport: false,
};

fn vendor() -> Candidate {
    Candidate {
        algorithm: Algorithm::Nccl,
        grid: None,
        concurrent: 0,
    }
}

#[test]
fn the_vendors_is_chosen_where_it_is_faster_beyond_noise_and_ours_stands_behind_it() {
    let ours = [1, 2].map(|blocks| candidate(Algorithm::TwoShot, blocks));
    let all = [ours[0], vendor(), ours[1]];
    let chosen = |times: &[f64], places: &[Candidate]| {
        let in_place = |one: &Candidate| Ok(places.contains(one));
        needed(ranked(&all, times, None), VENDOR, in_place).unwrap()
    };
    assert_eq!(chosen(&[2.0, 1.0, 1.5], &all), [vendor(), ours[1]]);
    assert_eq!(chosen(&[2.0, 1.0, 1.01], &all), [ours[1]]);
    // If symmem's fastest does not support in-place calls, NCCL or symmem's next does.
    assert_eq!(
        chosen(&[2.0, 1.0, 1.5], &[ours[0], vendor()]),
        [vendor(), ours[1], ours[0]]
    );
    assert_eq!(
        chosen(&[2.0, 1.5, 1.0], &[ours[0], vendor()]),
        [ours[1], vendor(), ours[0]]
    );
}

#[test]
fn behind_lamport_packets_stands_what_carries_other_types() {
    let lamport = candidate(Algorithm::Lamport, 8);
    let (packets, two_shot) = (
        candidate(Algorithm::Ll, 8),
        candidate(Algorithm::TwoShot, 32),
    );
    let present = Features {
        lamport: true,
        ..Features::default()
    };
    let needed = needed(vec![lamport, packets, two_shot], present, |_| Ok(true)).unwrap();
    assert_eq!(needed, [lamport, packets]);
}

#[test]
fn behind_multicast_stands_what_serves_where_it_does_not_reach() {
    let multicast = candidate(Algorithm::Multicast, 8);
    let one_shot = candidate(Algorithm::MulticastOneShot, 8);
    let two_shot = candidate(Algorithm::TwoShot, 32);
    let present = Features {
        multicast: true,
        ..VENDOR
    };
    let in_place = |one: &Candidate| Ok(*one != one_shot);
    let needed = |ranked: &[Candidate]| needed(ranked.into(), present, in_place).unwrap();
    let ranked = [one_shot, multicast, vendor(), two_shot];
    assert_eq!(needed(&ranked), ranked);
    // A multicast algorithm that is not the fastest is not needed.
    assert_eq!(needed(&[two_shot, multicast, one_shot]), [two_shot]);
    assert_eq!(present.or_less().count(), 4);
    assert_eq!(VENDOR.or_less().count(), 2);
}

#[test]
fn the_choice_before_stays_within_noise_and_goes_beyond() {
    let all = [1, 2, 4].map(|blocks| candidate(Algorithm::Push, blocks));
    let first = |times: &[f64], before| ranked(&all, times, before)[0];
    assert_eq!(first(&[3.0, 1.0, 2.0], None), all[1]);
    assert_eq!(first(&[1.01, 1.0, 2.0], Some(all[0])), all[0]);
    assert_eq!(first(&[1.03, 1.0, 2.0], Some(all[0])), all[1]);
    assert_eq!(ranked(&[], &[], None), []);
}

/// Runs `work` on two ranks, which are threads on the host backend, and returns the results.
fn ranks<V: Send>(work: impl Fn(&Communicator) -> V + Sync) -> Vec<V> {
    let job = LaunchEnvironment::alone().unwrap().job.unwrap();
    std::thread::scope(|scope| {
        let ranks = [0, 1].map(|rank| {
            let (job, work) = (job.clone(), &work);
            scope.spawn(move || {
                let communicator = Builder::new()
                    .launch(LaunchEnvironment::local(rank, 2, job).unwrap())
                    .backend(Selection::Named("host".into()))
                    .deadline(Duration::from_secs(5))
                    .setup_deadline(Duration::from_secs(5))
                    .build()
                    .unwrap();
                work(&communicator)
            })
        });
        ranks.map(|rank| rank.join().unwrap()).into()
    })
}

const BYTES: u64 = 1 << 10;

fn run(communicator: &Communicator) -> Run<'_> {
    Run {
        session: Session::new(communicator, "float", BYTES).unwrap(),
        rounds: 1,
        by_caller: true,
        present: Features::default(),
    }
}

#[test]
fn what_is_wrong_at_one_rank_is_right_at_none() {
    let two_shot = candidate(Algorithm::TwoShot, 1);
    let right = ranks(|communicator| {
        let run = run(communicator);
        // Only the root has a result.
        let shape = Shape::new(Collective::Reduce, BYTES, 4, 2).unwrap();
        let right = || Placement::ALL.map(|place| run.is_right(shape, two_shot, place).unwrap());
        let before = right();
        if communicator.rank() == 1 {
            run.session.spoil();
        }
        communicator.host_barrier().unwrap();
        let after = right();
        run.session.finish().unwrap();
        (before, after)
    });
    assert_eq!(right, [([true; 2], [false; 2]); 2]);
}

#[test]
fn what_cannot_be_done_so_is_not_right_and_what_fails_is_an_error() {
    let found = ranks(|communicator| {
        let run = run(communicator);
        let shape = Shape::new(Collective::AllReduce, BYTES, 4, 2).unwrap();
        let in_place = |algorithm| {
            let right = run.is_right(shape, candidate(algorithm, 1), Placement::InPlace);
            right.map_err(drop)
        };
        // In place, one-shot would overwrite data that a peer may still read.
        let found = [Algorithm::OneShot, Algorithm::TwoShot].map(in_place);
        communicator.host_barrier().unwrap();
        communicator.abort();
        (found, in_place(Algorithm::TwoShot))
    });
    assert_eq!(found, [([Ok(false), Ok(true)], Err(())); 2]);
}
