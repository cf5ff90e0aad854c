//! Tests that strangers are refused, at no cost to the ranks.

use std::io::{Read, Write};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};

use super::handshake::unix::hello;
use super::key::{Key, MAX_JOB, MAX_KEY};
use super::*;

/// A Unix greeting up to the key, with any length in it.
fn greeting(kind: u8, length: usize) -> Vec<u8> {
    let length = u16::try_from(length).unwrap().to_le_bytes();
    [b"symmem\0@".as_slice(), &[kind], &length].concat()
}

/// Asserts that the store closes the connection, with `answer` before the end.
#[track_caller]
fn ends_with(mut refused: UnixStream, answer: &[u8]) {
    refused.set_read_timeout(Some(LONG)).unwrap();
    let mut received = Vec::new();
    // A connection that is closed while it has unread bytes ends with an error.
    let _ = refused.read_to_end(&mut received);
    assert_eq!(received, answer);
}

/// Returns the secret under which the ranks of these tests meet, in the file of the user who runs them.
fn secret_of_user() -> Secret {
    let uid = rustix::process::geteuid().as_raw();
    let found = secret_file::of_user(uid).unwrap();
    found.expect("a home folder of the user's own").secret
}

fn raw(job: &str) -> UnixStream {
    raw_at(&Meeting::of(&place(1, 2, job), LONG, None).unwrap().address)
}

fn abstract_name(address: &Address) -> SocketAddr {
    match address {
        Address::Unix(name) => SocketAddr::from_abstract_name(name).unwrap(),
        #[cfg(feature = "tcp")]
        Address::Tcp(_) => panic!("the default is a Unix socket"),
    }
}

/// Returns a connection to rank 0, as soon as it listens, that has not sent anything.
fn raw_at(address: &Address) -> UnixStream {
    let name = abstract_name(address);
    let start = Instant::now();
    loop {
        match UnixStream::connect_addr(&name) {
            Ok(stream) => return stream,
            Err(error) => assert!(start.elapsed() < LONG, "{error}"),
        }
        std::thread::yield_now();
    }
}

#[test]
fn strangers_are_dropped_and_delay_nobody() {
    let job = job();
    std::thread::scope(|scope| {
        let rank_0 = scope.spawn(|| Bootstrap::connect(place(0, 2, &job), LONG));
        // Silent, half a greeting, garbage, and greetings with a wrong key.
        let _silent: Vec<UnixStream> = (0..40).map(|_| raw(&job)).collect();
        let mut half = raw(&job);
        half.write_all(b"symmem").unwrap();
        let mut garbage = raw(&job);
        garbage.write_all(&[0xff; 40]).unwrap();
        ends_with(garbage, b"");
        let user = |secret: &Secret, job: &str| {
            let (secret, job) = (secret.clone(), job.to_owned());
            Key::User { secret, job }
        };
        let right = secret_of_user();
        let wrong = [
            Key::Job(job.clone()),
            Key::Job(String::new()),
            Key::Secret(right.clone()),
            user(&Secret::random().unwrap(), &job),
            // Of the right length, and different in the last byte only.
            user(&right, &format!("{}-", &job[..job.len() - 1])),
        ];
        for key in wrong {
            let mut stranger = raw(&job);
            stranger.write_all(&hello(&key)).unwrap();
            // The bytes behind the key would be a valid message; the store never reads them.
            let _ = stranger.write_all(
                &Request::ForeignJoin {
                    version: 9,
                    rank: 1,
                }
                .encode(1, 0),
            );
            ends_with(stranger, b"refused\n");
        }
        let start = Instant::now();
        let rank_1 = Bootstrap::connect(place(1, 2, &job), LONG).unwrap();
        assert!(start.elapsed() < AT_ONCE, "{:?}", start.elapsed());
        let rank_0 = rank_0.join().unwrap().unwrap();
        scope.spawn(move || rank_0.store().barrier("both", LONG).unwrap());
        rank_1.store().barrier("both", LONG).unwrap();
    });
}

#[test]
fn a_rank_with_another_secret_or_job_is_refused() {
    let job = job();
    std::thread::scope(|scope| {
        let rank_0 = scope.spawn(|| Bootstrap::connect(place(0, 2, &job), SHORT));
        drop(raw(&job));
        let environment = place(1, 2, &job);
        for key in [
            Key::Secret(Secret::random().unwrap()),
            Key::Job("another".into()),
        ] {
            let mut meeting = Meeting::of(&environment, LONG, None).unwrap();
            meeting.key = key;
            let error = meeting.join(meeting.address.clone()).unwrap_err();
            assert!(
                matches!(error, BootstrapError::WrongSecret { rank: 1, .. }),
                "{error}"
            );
        }
        assert!(rank_0.join().unwrap().is_err());
    });
}

#[test]
fn half_a_greeting_is_waited_for_until_the_deadline_of_the_handshake() {
    let job = job();
    std::thread::scope(|scope| {
        let rank_0 = scope.spawn(|| Bootstrap::connect(place(0, 2, &job), LONG));
        let start = Instant::now();
        let halves = [
            b"symmem".to_vec(),
            greeting(3, 32 + job.len()),
            hello(&Key::Job(job.clone()))[..20].to_vec(),
        ];
        let streams = halves.map(|half| {
            let mut stream = raw(&job);
            stream.write_all(&half).unwrap();
            stream
        });
        for stream in streams {
            ends_with(stream, b"");
            assert!(start.elapsed() >= handshake::HANDSHAKE_DEADLINE);
        }
        assert!(start.elapsed() < handshake::HANDSHAKE_DEADLINE + 5 * AT_ONCE);
        let rank_1 = Bootstrap::connect(place(1, 2, &job), LONG).unwrap();
        drop((rank_1, rank_0.join().unwrap().unwrap()));
    });
}

#[test]
fn a_jobs_name_over_the_limit_is_refused_on_both_sides() {
    let (longest, longer) = ("j".repeat(MAX_JOB), "j".repeat(MAX_JOB + 1));
    let error = Bootstrap::connect(place(0, 1, &longer), LONG).unwrap_err();
    let named = matches!(error, BootstrapError::TooLarge { rank: 0, size, limit, .. }
        if (size, limit) == (MAX_JOB + 1, MAX_JOB));
    assert!(named, "{error}");
    std::thread::scope(|scope| {
        let rank_0 = scope.spawn(|| Bootstrap::connect(place(0, 2, &longest), LONG));
        let mut stranger = raw(&longest);
        stranger.write_all(&greeting(3, MAX_KEY + 1)).unwrap();
        ends_with(stranger, b"");
        let rank_1 = Bootstrap::connect(place(1, 2, &longest), LONG).unwrap();
        drop((rank_1, rank_0.join().unwrap().unwrap()));
    });
}

#[test]
fn a_secret_alone_is_enough_to_meet_by() {
    let secret = Secret::random().unwrap();
    let ranks = [0, 1].map(|rank| {
        let mut environment = place(rank, 2, "unused");
        environment.job = None;
        environment.secret = Some(secret.clone());
        environment
    });
    let ranks = connect_all(ranks.to_vec(), LONG);
    assert!(ranks.iter().all(Result::is_ok), "{ranks:?}");
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

#[test]
fn another_user_is_refused_on_both_sides() {
    if !rustix::process::geteuid().is_root() {
        println!("skipped: only root can act as another user");
        return;
    }
    let job = job();
    let environment = place(1, 2, &job);
    let meeting = Meeting::of(&environment, LONG, None).unwrap();
    std::thread::scope(|scope| {
        let rank_0 = scope.spawn(|| Bootstrap::connect(place(0, 2, &job), SHORT));
        drop(raw(&job));
        // The system call changes the user of this thread only.
        scope.spawn(|| {
            let (root, nobody) = (
                rustix::process::Uid::ROOT,
                rustix::process::Uid::from_raw(65534),
            );
            rustix::thread::set_thread_res_uid(root, nobody, root).unwrap();
            let error = meeting.reach(&meeting.address).unwrap_err();
            assert!(
                matches!(
                    error,
                    BootstrapError::ForeignUser {
                        rank: 1,
                        uid: 0,
                        ..
                    }
                ),
                "{error}"
            );
            // A stranger that does not check the listener's user gets no further.
            let mut stranger = raw_at(&meeting.address);
            let _ = stranger.write_all(&hello(&meeting.key));
            ends_with(stranger, b"");
        });
        assert!(matches!(
            rank_0.join().unwrap(),
            Err(BootstrapError::Timeout { .. })
        ));
    });
}

#[test]
fn ranks_with_two_secret_files_are_told_of_the_file_and_what_gets_them_together() {
    const NAME: &str =
        "strangers::ranks_with_two_secret_files_are_told_of_the_file_and_what_gets_them_together";
    if let Some(role) = role() {
        let (rank, job) = role.split_once(' ').unwrap();
        let ranks = connect_all(vec![place(rank.parse().unwrap(), 2, job)], SHORT);
        println!("\ntold: {}", ranks[0].as_ref().unwrap_err());
        return;
    }
    let job = job();
    let told = |rank: u32, runtime: &std::path::Path| {
        let mut command = command(NAME, &format!("{rank} {job}"));
        let command = command.env("XDG_RUNTIME_DIR", runtime);
        let output = command.env("HOME", "/nonexistent").output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        let told = text.lines().find_map(|line| line.strip_prefix("told: "));
        told.unwrap_or_else(|| panic!("{text}")).to_owned()
    };
    for rank in [0, 1] {
        let folder = std::env::temp_dir().join(format!("symmem-{}", super::job()));
        std::fs::create_dir(&folder).unwrap();
        let text = told(rank, &folder);
        std::fs::remove_dir_all(&folder).unwrap();
        let file = folder.join("symmem-secret").display().to_string();
        for part in [&file, "XDG_RUNTIME_DIR", "HOME", "SYMMEM_SECRET"] {
            assert!(text.contains(part), "rank {rank}: {text}");
        }
        let text = told(rank, "/nonexistent".as_ref());
        for part in ["the job's name alone", "XDG_RUNTIME_DIR", "SYMMEM_SECRET"] {
            assert!(text.contains(part), "rank {rank}: {text}");
        }
    }
}

#[test]
fn a_listener_of_another_user_is_shown_no_key() {
    if !rustix::process::geteuid().is_root() {
        println!("skipped: only root can act as another user");
        return;
    }
    let environment = place(1, 2, &job());
    let meeting = Meeting::of(&environment, LONG, None).unwrap();
    let name = abstract_name(&meeting.address);
    std::thread::scope(|scope| {
        // The system call changes the user of that thread only; the listener's user is that of the thread that
        // called listen().
        let squatter = scope.spawn(|| {
            let (root, nobody) = (
                rustix::process::Uid::ROOT,
                rustix::process::Uid::from_raw(65534),
            );
            rustix::thread::set_thread_res_uid(root, nobody, root).unwrap();
            UnixListener::bind_addr(&name).unwrap()
        });
        let squatter = squatter.join().unwrap();
        let error = meeting.reach(&meeting.address).unwrap_err();
        assert!(
            matches!(error, BootstrapError::ForeignUser { uid: 65534, .. }),
            "{error}"
        );
        ends_with(squatter.accept().unwrap().0, b"");
    });
}

#[test]
fn an_oversized_message_ends_its_sender_and_is_reported() {
    let ranks = Bootstrap::threads(3, LONG).unwrap();
    let header = [
        &(frame::MAX_BODY as u32 + 1).to_le_bytes()[..],
        &[2, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0],
    ];
    rustix::io::write(ranks[1].store(), &header.concat()).unwrap();
    for rank in [&ranks[0], &ranks[2]] {
        let error = rank.store().barrier("all", LONG).unwrap_err();
        let named = matches!(&error, BootstrapError::PeerFailed { peer: 1, reason } if reason.contains("limit"));
        assert!(named, "{error}");
    }
}

/// Takes the name of the socket that ranks of `job` without any secret would meet at, as the user `nobody`.
fn take_first(job: &str) -> UnixListener {
    let uid = rustix::process::geteuid().as_raw();
    let name = Key::Job(job.into()).socket_name(uid, job, 0);
    let name = SocketAddr::from_abstract_name(name).unwrap();
    // The system call changes the user of that thread only.
    let squatter = std::thread::spawn(move || {
        let (root, nobody) = (
            rustix::process::Uid::ROOT,
            rustix::process::Uid::from_raw(65534),
        );
        rustix::thread::set_thread_res_uid(root, nobody, root).unwrap();
        UnixListener::bind_addr(&name).unwrap()
    });
    squatter.join().unwrap()
}

/// Both ranks of a job that a launcher other than symmem's started, with `SYMMEM_JOB` if it is set to `job`.
fn slurm(job: Option<&str>) -> Vec<LaunchEnvironment> {
    let rank = |rank: u32| {
        let lookup = |name: &str| match name {
            "SLURM_JOB_ID" => Some("900".to_owned()),
            "SLURM_STEP_ID" => Some("0".to_owned()),
            "SLURM_NTASKS" => Some("2".to_owned()),
            "SLURM_PROCID" => Some(rank.to_string()),
            "SYMMEM_JOB" => job.map(str::to_owned),
            _ => None,
        };
        LaunchEnvironment::from_variables(lookup).unwrap().unwrap()
    };
    vec![rank(0), rank(1)]
}

#[test]
fn a_name_that_another_user_took_first_is_reported_and_another_job_or_the_secret_file_gets_past_it()
{
    const NAME: &str = "strangers::a_name_that_another_user_took_first_is_reported_and_another_job_or_the_secret_file_gets_past_it";
    match role().as_deref() {
        None if !rustix::process::geteuid().is_root() => {
            println!("skipped: only root can act as another user");
        }
        None => {
            let folder = std::env::temp_dir().join(format!("symmem-{}", job()));
            std::fs::create_dir(&folder).unwrap();
            let run = |role: &str, runtime: &std::path::Path| {
                let mut command = command(NAME, role);
                command
                    .env("XDG_RUNTIME_DIR", runtime)
                    .env("HOME", "/nonexistent");
                let output = command.output().unwrap();
                let text = String::from_utf8_lossy(&output.stdout);
                assert!(output.status.success(), "{role}:\n{text}");
            };
            run("no file", "/nonexistent".as_ref());
            run("file", &folder);
            let made = std::fs::read_dir(&folder).unwrap().count();
            std::fs::remove_dir_all(&folder).unwrap();
            assert_eq!(made, 1, "the secret file and nothing else");
        }
        Some(role) => {
            let _squatter = take_first("slurm-900.0");
            if role == "no file" {
                for rank in connect_all(slurm(None), LONG) {
                    let error = rank.unwrap_err();
                    assert!(
                        matches!(error, BootstrapError::ForeignUser { uid: 65534, .. }),
                        "{error}"
                    );
                    let text = error.to_string();
                    let ways = ["SYMMEM_JOB", "XDG_RUNTIME_DIR"];
                    assert!(ways.iter().all(|way| text.contains(way)), "{text}");
                }
                let ranks = connect_all(slurm(Some("another")), LONG);
                assert!(ranks.iter().all(Result::is_ok), "{ranks:?}");
            } else {
                let ranks = connect_all(slurm(None), LONG);
                assert!(ranks.iter().all(Result::is_ok), "{ranks:?}");
            }
        }
    }
}

#[test]
fn a_rank_that_has_proved_itself_is_not_closed_for_any_number_of_strangers() {
    let job = job();
    let environment = place(1, 2, &job);
    std::thread::scope(|scope| {
        let rank_0 = scope.spawn(|| Bootstrap::connect(place(0, 2, &job), LONG));
        let meeting = Meeting::of(&environment, LONG, None).unwrap();
        let proved = meeting.reach(&meeting.address).unwrap();
        let (mut held, start) = (std::collections::VecDeque::new(), Instant::now());
        // More at once than the store keeps, and for longer than a stranger may stay.
        let most = 50 + crate::bootstrap::strangers::limit(2);
        for count in 0.. {
            held.push_back(raw(&job));
            if held.len() > most {
                held.pop_front();
            }
            if count > 3 * most && start.elapsed() > handshake::HANDSHAKE_DEADLINE {
                break;
            }
        }
        let store = Store::new(1, 2, proved, None);
        let join = Request::Join {
            version: VERSION,
            world: 2,
            generation: 0,
            peer: meeting.peer.clone(),
            deadline: 60_000_000,
        };
        store.join(&join, LONG, None).unwrap();
        drop((store, rank_0.join().unwrap().unwrap()));
    });
}
