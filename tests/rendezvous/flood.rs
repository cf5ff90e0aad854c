//! Three processes that are not ranks connect as fast as they can, while the ranks of a job meet. No rank is lost, rank
//! 0's process can open files all the time, and it says what happened in a few lines.

use std::collections::VecDeque;
use std::fmt::Debug;
use std::fs::File;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rustix::process::{Resource, getrlimit, setrlimit};
use symmem::bootstrap::{Bootstrap, Secret};

use crate::amount::{Amount, amount};
use crate::{free_address, place};

const FLOODERS: usize = 3;
const WORLD: u32 = 4;
/// Far more than any rank needs to get in.
const LONG: Duration = Duration::from_secs(300);
/// The descriptors that rank 0's process may open: so few that strangers could take all of them.
const DESCRIPTORS: u64 = 256;
/// Lines in which rank 0 may say what it refused: one at once, one a minute, one at the end of each store.
const MOST_LINES: u64 = 3;

const FLOODER: &str = "SYMMEM_TEST_FLOODER";
const JOB: &str = "SYMMEM_TEST_JOB";

/// Starts this test binary again, to run only the test `name`, which finds `arguments` in `variable`.
fn child(name: &str, variable: &str, arguments: &[&dyn ToString]) -> Child {
    let arguments: Vec<String> = arguments.iter().map(|one| one.to_string()).collect();
    Command::new(std::env::current_exe().unwrap())
        .args([name, "--exact", "--nocapture", "--test-threads=1"])
        .env(variable, arguments.join(" "))
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

/// Returns the arguments in `variable`, of a process that [`child`] started.
fn arguments<const N: usize>(variable: &str) -> Option<[String; N]> {
    let text = std::env::var(variable).ok()?;
    let arguments: Vec<String> = text.split(' ').map(str::to_owned).collect();
    Some(arguments.try_into().unwrap())
}

fn seconds(text: &str) -> Duration {
    Duration::from_secs(text.parse().unwrap())
}

/// Returns what `child` printed behind each of `words`, once it has ended well.
fn printed<const N: usize>(child: Child, words: [&str; N]) -> [u64; N] {
    let output = child.wait_with_output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}");
    words.map(|word| {
        // The test harness begins the first line.
        let number = text
            .lines()
            .find_map(|line| Some(line.split_once(&format!("{word}: "))?.1));
        number
            .unwrap_or_else(|| panic!("no {word} in {text}"))
            .parse()
            .unwrap()
    })
}

/// The main function of a flooder.
#[test]
fn flooder() {
    let Some([address, duration, recording]) = arguments::<3>(FLOODER) else {
        return;
    };
    let address: SocketAddr = address.parse().unwrap();
    let end = Instant::now() + seconds(&duration);
    let connected = AtomicU64::new(0);
    let recording: Vec<u8> = recording
        .split(',')
        .map(|byte| byte.parse().unwrap())
        .collect();
    // Connections that stay silent, garbage, half a greeting, one that no secret was mixed into, one that a rank of the
    // job has sent, and none of these.
    let unkeyed = [b"symmem\0N".as_slice(), &[9; 48]].concat();
    let greetings: [&[u8]; 6] = [
        b"",
        &[0xa5; 200],
        b"symmem\0N12345",
        &unkeyed,
        &recording,
        b"",
    ];
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let mut held = VecDeque::new();
                for greeting in greetings.iter().cycle() {
                    if Instant::now() >= end {
                        break;
                    }
                    let stream = TcpStream::connect_timeout(&address, Duration::from_millis(200));
                    let Ok(mut stream) = stream else { continue };
                    connected.fetch_add(1, Ordering::Relaxed);
                    let _ = stream.write_all(greeting);
                    held.push_back(stream);
                    if held.len() > 150 {
                        held.pop_front();
                    }
                }
            });
        }
    });
    println!("connected: {}", connected.into_inner());
}

/// Returns the first bytes of a rank that knows `secret`.
fn recording(secret: &Secret) -> Vec<u8> {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let rank = place(1, 2, &address, secret);
    let mut recording = vec![0; 56];
    std::thread::scope(|scope| {
        scope.spawn(|| Bootstrap::connect(rank, LONG).unwrap_err());
        let (mut stream, _) = listener.accept().unwrap();
        stream.read_exact(&mut recording).unwrap();
        stream.write_all(b"refused\n").unwrap();
    });
    recording
}

/// Counts the warnings of the process.
struct Warnings;

static WARNINGS: AtomicU64 = AtomicU64::new(0);

impl tracing::Subscriber for Warnings {
    fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
        *metadata.level() <= tracing::Level::WARN
    }

    fn event(&self, event: &tracing::Event<'_>) {
        WARNINGS.fetch_add(1, Ordering::Relaxed);
        event.record(&mut |_: &tracing::field::Field, value: &dyn Debug| println!("{value:?}"));
    }

    fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        tracing::span::Id::from_u64(1)
    }

    fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}
    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}
    fn enter(&self, _: &tracing::span::Id) {}
    fn exit(&self, _: &tracing::span::Id) {}
}

/// Opens and closes files until `is_over`, as rank 0's program may want to at any time.
fn open_files(is_over: &AtomicBool) {
    while !is_over.load(Ordering::Relaxed) {
        let files: Vec<File> = (0..64)
            .map(|_| File::open("/dev/null").expect("strangers leave descriptors to the process"))
            .collect();
        std::thread::sleep(Duration::from_millis(5));
        drop(files);
    }
}

/// The main function of a job: its ranks are threads.
#[test]
fn job() {
    let Some([address, duration, way, secret]) = arguments::<4>(JOB) else {
        return;
    };
    tracing::subscriber::set_global_default(Warnings).unwrap();
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = Some(DESCRIPTORS);
    setrlimit(Resource::Nofile, limit).unwrap();
    let (secret, duration) = (Secret::from_hex(&secret).unwrap(), seconds(&duration));
    let end = Instant::now() + duration;
    let (is_over, meetings) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        let files = scope.spawn(|| open_files(&is_over));
        let rank = |number: u32| {
            let (address, secret, meetings) = (&address, &secret, &meetings);
            let is_once = way == "once";
            move || {
                if is_once {
                    // The last comes when most of the time is over.
                    std::thread::sleep(duration * number / WORLD);
                }
                loop {
                    let place = place(number, WORLD, address, secret);
                    let rank = Bootstrap::connect(place, LONG).unwrap();
                    let own = [number as u8; 100];
                    let all = rank.store().all_gather("values", &own, LONG).unwrap();
                    let right = (0..WORLD).map(|rank| vec![rank as u8; 100]);
                    assert!(all.into_iter().eq(right));
                    meetings.fetch_add(1, Ordering::Relaxed);
                    // All go on, or none does.
                    let is_last = is_once || Instant::now() >= end;
                    let decisions = rank.store().all_gather("last", &[is_last.into()], LONG);
                    let is_last = decisions.unwrap().concat().contains(&1);
                    if is_last {
                        return;
                    }
                }
            }
        };
        let ranks: Vec<_> = (0..WORLD).map(|number| scope.spawn(rank(number))).collect();
        let lost = ranks.into_iter().filter_map(|rank| rank.join().err());
        println!("lost: {}", lost.count());
        is_over.store(true, Ordering::Relaxed);
        files.join().unwrap();
    });
    println!("meetings: {}", meetings.into_inner() / u64::from(WORLD));
    println!("warnings: {}", WARNINGS.load(Ordering::Relaxed));
}

#[test]
fn no_rank_is_lost_while_three_processes_flood_the_rendezvous() {
    let (repeats, duration) = match amount() {
        Amount::Sample | Amount::Long => (2, 2),
        Amount::All => (20, 20),
    };
    let mut all = 0;
    for repeat in 0..repeats {
        let (address, secret) = (free_address(), Secret::random().unwrap());
        let bytes = recording(&secret);
        let bytes: Vec<String> = bytes.iter().map(u8::to_string).collect();
        let recording = bytes.join(",");
        let flooder = |_| {
            child(
                "flood::flooder",
                FLOODER,
                &[&address, &duration, &recording],
            )
        };
        let flooders: Vec<Child> = (0..FLOODERS).map(flooder).collect();
        // The ranks come one after another, or meet at once and then again and again.
        let way = ["once", "again"][repeat % 2];
        let job = child(
            "flood::job",
            JOB,
            &[&address, &duration, &way, &secret.to_hex()],
        );
        let [lost, meetings, warnings] = printed(job, ["lost", "meetings", "warnings"]);
        let connected = flooders
            .into_iter()
            .map(|one| printed(one, ["connected"])[0]);
        let connected: u64 = connected.sum();
        println!(
            "{way}, {duration} s: {connected} connections of strangers, {meetings} meetings, {lost} of {WORLD} ranks \
             lost, {warnings} warnings"
        );
        assert_eq!(lost, 0);
        assert!(warnings <= MOST_LINES * meetings, "{warnings}");
        all += connected;
    }
    assert!(all > 1000, "{all} connections are no flood");
}
