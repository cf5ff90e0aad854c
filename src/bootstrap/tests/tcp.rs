//! Meeting at `host:port`.

use std::os::fd::AsFd;

use super::*;

/// A port that was free a moment ago.
fn tcp_address() -> String {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().to_string()
}

fn tcp_place(rank: u32, world: u32, address: &str, secret: &Secret) -> LaunchEnvironment {
    let mut environment = place(rank, world, "unused");
    environment.job = None;
    environment.address = Some(address.to_owned());
    environment.secret = Some(secret.clone());
    environment
}

#[test]
fn ranks_meet_at_a_tcp_address_and_still_exchange_descriptors() {
    let (address, secret) = (tcp_address(), Secret::random().unwrap());
    let ranks = (0..4)
        .map(|rank| tcp_place(rank, 4, &address, &secret))
        .collect();
    let ranks: Vec<Bootstrap> = connect_all(ranks, LONG)
        .into_iter()
        .map(Result::unwrap)
        .collect();
    std::thread::scope(|scope| {
        for rank in &ranks {
            scope.spawn(|| {
                let null = std::fs::File::open("/dev/null").unwrap();
                let all = rank.store().all_gather_with_descriptors(
                    "share",
                    b"x",
                    Some(null.as_fd()),
                    LONG,
                );
                assert!(all.unwrap().iter().all(|part| part.descriptor.is_some()));
            });
        }
    });
}

#[test]
fn a_tcp_address_needs_a_secret_and_the_right_one() {
    let mut open = place(0, 1, "job");
    open.address = Some(tcp_address());
    let error = Bootstrap::connect(open, SHORT).unwrap_err();
    assert!(
        matches!(error, BootstrapError::SecretMissing { .. }),
        "{error}"
    );
    let (address, secret) = (tcp_address(), Secret::random().unwrap());
    let ranks = vec![
        tcp_place(0, 2, &address, &secret),
        tcp_place(1, 2, &address, &Secret::random().unwrap()),
    ];
    let mut results = connect_all(ranks, Duration::from_secs(1)).into_iter();
    assert!(
        matches!(results.next(), Some(Err(BootstrapError::Timeout { missing, .. })) if missing == [1])
    );
    assert!(matches!(
        results.next(),
        Some(Err(BootstrapError::WrongSecret { rank: 1, .. }))
    ));
}

#[test]
fn ranks_of_two_generations_at_one_tcp_address_are_told() {
    let (address, secret) = (tcp_address(), Secret::random().unwrap());
    let mut late = tcp_place(1, 2, &address, &secret);
    late.generation = 1;
    for result in connect_all(vec![tcp_place(0, 2, &address, &secret), late], LONG) {
        let error = result.unwrap_err();
        assert!(
            matches!(error, BootstrapError::GenerationMismatch { peer: 1, .. }),
            "{error}"
        );
    }
}

#[test]
fn a_launcher_without_a_job_is_asked_for_one() {
    let mut environment = place(0, 1, "job");
    environment.job = None;
    let error = Bootstrap::connect(environment, SHORT).unwrap_err();
    assert!(
        matches!(error, BootstrapError::JobUnknown { .. }),
        "{error}"
    );
}
