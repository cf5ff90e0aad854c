//! How commands end whose ranks die or that are interrupted.

use super::*;
use rstest::rstest;
use rustix::process::{Pid, Signal, kill_process};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

const MARK: &str = "SYMMEM_TEST_MARK";
const PATIENCE: Duration = Duration::from_secs(60);

/// Starts a command whose processes can be found by a mark in their environment.
fn start(mut command: Command, mark: &str) -> Child {
    command
        .env(MARK, mark)
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    command.spawn().unwrap()
}

/// Returns the command with the default action for SIGINT, as on a terminal. A shell without a terminal makes background
/// processes ignore SIGINT.
fn heeding_interrupts(directory: &Path, arguments: &[&str]) -> Command {
    let symmem = symmem(directory, arguments);
    let mut command = Command::new("env");
    command
        .args(["--default-signal=INT"])
        .arg(symmem.get_program())
        .args(symmem.get_args())
        .current_dir(directory);
    for (name, value) in symmem.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    command
}

fn is_symmem(child: &Child) -> bool {
    let running = std::fs::read_link(format!("/proc/{}/exe", child.id()));
    // A process that has ended has no executable.
    running.map_or(true, |file| file.ends_with("symmem"))
}

/// Returns the processes with the mark and `also` in their environment.
fn marked(mark: &str, also: &str) -> Vec<Pid> {
    let wanted = [format!("{MARK}={mark}"), also.to_owned()];
    let is_marked = |pid: &str| {
        let environment = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        let all: Vec<&[u8]> = environment.split(|&byte| byte == 0).collect();
        let has = |word: &String| word.is_empty() || all.contains(&word.as_bytes());
        wanted.iter().all(has)
    };
    let entries = std::fs::read_dir("/proc").unwrap().flatten();
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    let pids = names.filter(|name| name.parse::<i32>().is_ok() && is_marked(name));
    pids.filter_map(|pid| Pid::from_raw(pid.parse().unwrap()))
        .collect()
}

/// Returns whether a rank has joined a world, that is, whether its watcher runs.
fn is_up(rank: Pid) -> bool {
    let tasks = std::fs::read_dir(format!("/proc/{}/task", rank.as_raw_nonzero()));
    tasks.into_iter().flatten().flatten().any(|task| {
        let name = std::fs::read_to_string(task.path().join("comm")).unwrap_or_default();
        name.starts_with("symmem-watcher")
    })
}

/// Blocks until something is so, which a busy machine may take its time for.
#[track_caller]
pub fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < PATIENCE, "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn survivors_say_which_peer_died_before_they_are_stopped() {
    let directory = directory("survivors");
    let mark = format!("survivors-{}", std::process::id());
    // Little memory, since on a busy machine one system call that maps a gigabyte takes longer than the reaction time;
    // many rounds, so that the measurement outlasts the kill.
    let bench = [
        "bench",
        "collectives",
        "--backend",
        "host",
        "-n",
        "2",
        "--op",
        "all_reduce",
        "--baseline",
        "none",
        "--max-bytes",
        "1K",
        "--rounds",
        "1000000",
    ];
    let child = start(symmem(&directory, &bench), &mark);
    let rank = |rank: u32| {
        let found = marked(&mark, &format!("SYMMEM_RANK={rank}"));
        found.into_iter().find(|&one| is_up(one))
    };
    wait_until("ranks come up", || {
        [0, 1].into_iter().all(|number| rank(number).is_some())
    });
    kill_process(rank(1).unwrap(), Signal::KILL).unwrap();
    let output = child.wait_with_output().unwrap();
    let error = text(&output.stderr);
    // A survivor that ends before the launcher prints need not be stopped.
    let first = "symmem: rank 1 was killed (SIGKILL)";
    let stopping = format!("{first}; stopping the other ranks");
    assert!(
        error.lines().any(|line| line == first || line == stopping),
        "{error}"
    );
    assert!(tells_of_rank_1(&error), "{error}");
    assert_eq!(output.status.code(), Some(137));
    assert_eq!(marked(&mark, ""), []);
}

/// Returns whether rank 0 itself has printed that rank 1 died.
fn tells_of_rank_1(error: &str) -> bool {
    let mut lines = error.lines();
    lines.any(|line| line.starts_with("symmem: rank 0: ") && line.contains("rank 1 died"))
}

#[test]
fn a_survivor_says_which_peer_died_before_a_teardown_that_takes_longer_than_it_has() {
    let directory = directory("slow-teardown");
    let bench = [
        "bench",
        "collectives",
        "--backend",
        "cuda",
        "-n",
        "2",
        "--op",
        "all_reduce",
        "--baseline",
        "none",
        "--max-bytes",
        "1K",
    ];
    let mut command = on_fake_driver(&directory, 2, &bench);
    command
        .env("FAKE_DEVICE_KILL", "cuGraphLaunch:10")
        .env("FAKE_DEVICE_KILL_RANK", "1")
        .env("FAKE_DEVICE_STALL", "cuModuleUnload:0:3000")
        .env("FAKE_DEVICE_STALL_RANK", "0");
    let error = fail(command);
    assert!(tells_of_rank_1(&error), "{error}");
}

#[rstest]
#[case::everything(&["--backend", "host"])]
#[case::run(&["run", "-n", "3", "--", "sleep", "60"])]
#[case::run_that_catches_it(&["run", "-n", "2", "--", "sh", "-c", "trap 'exit 0' INT; while :; do sleep 0.02; done"])]
#[case::transfers(&["bench", "p2p", "--backend", "host", "--full"])]
#[case::collectives(&["bench", "collectives", "--backend", "host", "--full"])]
#[case::products(&["bench", "ag-gemm", "--backend", "host", "-m", "512", "-n", "512", "-k", "512"])]
#[case::sums(&["bench", "gemm-ar", "--backend", "host", "-m", "512", "-n", "512", "-k", "512"])]
#[case::enqueue(&["bench", "enqueue", "--backend", "host"])]
#[case::tune(&["tune", "--backend", "host", "--full"])]
#[case::selftest(&["selftest", "--backend", "host", "--full"])]
fn an_interrupted_command_ends_with_130_and_leaves_nothing(
    #[case] arguments: &[&str],
    #[values(0, 40, 200, 1500)] milliseconds: u64,
) {
    let name = format!(
        "interrupted-{}-{milliseconds}",
        arguments.join("-").replace(['/', ' '], "-")
    );
    let directory = directory(&name[..name.len().min(60)]);
    let mark = format!("{name}-{}", std::process::id());
    let mut child = start(heeding_interrupts(&directory, arguments), &mark);
    wait_until("the command starts", || is_symmem(&child));
    std::thread::sleep(Duration::from_millis(milliseconds));
    if child.try_wait().unwrap().is_some() {
        // The command ended before it could be interrupted.
        return;
    }
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    let asked = Instant::now();
    let output = child.wait_with_output().unwrap();
    let error = text(&output.stderr);
    // A shell shows this as 130.
    let code = output
        .status
        .code()
        .or(output.status.signal().map(|signal| 128 + signal));
    // This one takes 0.15 s, and may end by itself in the moment when it is interrupted.
    let ended = arguments.contains(&"enqueue") && code == Some(0);
    assert!(ended || code == Some(130), "{code:?}: {error}");
    // A rank that sees its peer end before its own signal comes says so, and logs it. (If the launcher stopped all ranks
    // first, any thread of a stopped process could take the signal, and not only one that waits for it.)
    let tells_of_a_peer = |line: &&str| line.contains(" died; ") || line.contains(" has ended");
    let (told, other): (Vec<_>, Vec<_>) = error.lines().partition(tells_of_a_peer);
    // Three lines each, and no command here has more than five ranks.
    assert!(told.len() <= 3 * 4 && other.len() <= 1, "{error}");
    assert!(asked.elapsed() < Duration::from_secs(20));
    wait_until("no rank is left", || marked(&mark, "").is_empty());
}

#[rstest]
#[case::run_behind_a_shell(&["run", "-n", "3", "--", "sh", "-c", "sleep 60; exit $?"])]
#[case::transfers(&["bench", "p2p", "--backend", "host", "--full"])]
#[case::selftest(&["selftest", "--backend", "host", "--full"])]
fn a_command_that_is_killed_leaves_no_process(
    #[case] arguments: &[&str],
    #[values(0, 100, 1500)] milliseconds: u64,
) {
    let name = format!("killed-{}-{milliseconds}", arguments[0]);
    let directory = directory(&name);
    let mark = format!("{name}-{}", std::process::id());
    let mut child = start(symmem(&directory, arguments), &mark);
    wait_until("the command starts", || is_symmem(&child));
    std::thread::sleep(Duration::from_millis(milliseconds));
    child.kill().unwrap();
    child.wait().unwrap();
    wait_until("no process is left", || marked(&mark, "").is_empty());
}

#[rstest]
fn a_selftest_whose_rank_is_killed_says_so_long_before_the_ranks_deadline(
    #[values(0, 100, 1000)] milliseconds: u64,
) {
    let name = format!("selftest-killed-{milliseconds}");
    let directory = directory(&name);
    let mark = format!("{name}-{}", std::process::id());
    let selftest = ["selftest", "--backend", "host", "-n", "3", "--soak", "4"];
    let mut command = symmem(&directory, &selftest);
    command.env(MARK, &mark).stdout(Stdio::piped());
    let child = command.stderr(Stdio::piped()).spawn().unwrap();
    let rank = || marked(&mark, "SYMMEM_RANK=1").first().copied();
    wait_until("rank 1 starts", || rank().is_some());
    std::thread::sleep(Duration::from_millis(milliseconds));
    kill_process(rank().unwrap(), Signal::KILL).unwrap();
    let killed = Instant::now();
    let output = child.wait_with_output().unwrap();
    let said = text(&output.stdout);
    assert!(
        said.contains("rank 1 died") || said.contains("rank 1: signal: 9 (SIGKILL)"),
        "{said}"
    );
    assert_eq!(output.status.code(), Some(1), "{said}");
    // A rank waits 30 s for another.
    assert!(killed.elapsed() < Duration::from_secs(25), "{said}");
    wait_until("no rank is left", || marked(&mark, "").is_empty());
}
