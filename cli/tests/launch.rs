//! Tests the launcher as a process, with `/bin/sh` as ranks.
//!
//! The launcher takes over signals and children of its process, so each test runs it in a separate process: this test
//! binary, in which only `driver` runs. The launcher starts the binary once more, in which only `supervisor` runs.

use std::ffi::OsString;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Output, Stdio};
use std::time::{Duration, Instant};

use rstest::rstest;
use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use symmem_cli::launch::{RunOptions, run, supervise};

/// Runs the launcher in the processes that [`launcher`] starts; does nothing in the test run itself.
#[test]
fn driver() {
    let Ok(ranks) = std::env::var("SYMMEM_TEST_RANKS") else {
        return;
    };
    // libtest has begun a line with this test's name.
    println!();
    let mut options = RunOptions::new(
        ranks.parse().unwrap(),
        std::env::var_os("SYMMEM_TEST_PROGRAM").unwrap(),
    );
    options.arguments = vec!["-c".into(), std::env::var_os("SYMMEM_TEST_SCRIPT").unwrap()];
    options.environment = vec![("ADDED".into(), "yes".into())];
    options.prefix = std::env::var_os("SYMMEM_TEST_PLAIN").is_none();
    let grace = std::env::var("SYMMEM_TEST_GRACE").map_or(500, |text| text.parse().unwrap());
    options.grace = Duration::from_millis(grace);
    options.asks_to_end = std::env::var_os("SYMMEM_TEST_UNASKED").is_none();
    options.supervisor = arguments("supervisor").map(OsString::from).into();
    let error = match run(options) {
        Ok(_) if std::env::var_os("SYMMEM_TEST_AFTERWARDS").is_some() => {
            println!("[launcher] pid {}", std::process::id());
            std::thread::sleep(Duration::from_secs(60));
            return;
        }
        // Only main can return an ExitCode, and libtest provides main.
        Ok(code) => exit(code),
        Err(error) => error,
    };
    eprintln!("error: {error}");
    std::process::exit(250);
}

/// Supervises the ranks of [`driver`]; does nothing in the test run itself.
#[test]
fn supervisor() {
    if std::env::var_os("SYMMEM_TEST_RANKS").is_some() {
        // As above.
        println!();
        supervise().unwrap();
        std::process::exit(0);
    }
}

/// Returns the arguments that make this binary run only this test.
fn arguments(test: &str) -> [&str; 4] {
    [test, "--exact", "--nocapture", "--test-threads=1"]
}

fn exit(code: std::process::ExitCode) -> ! {
    for number in 0..=255u8 {
        if format!("{:?}", std::process::ExitCode::from(number)) == format!("{code:?}") {
            std::process::exit(number.into());
        }
    }
    unreachable!("every exit code is one of 256")
}

fn command(ranks: u32, script: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(arguments("driver"))
        .env("SYMMEM_TEST_RANKS", ranks.to_string())
        .env("SYMMEM_TEST_PROGRAM", "/bin/sh")
        .env("SYMMEM_TEST_SCRIPT", script)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

fn launcher(ranks: u32, script: &str) -> Output {
    command(ranks, script).output().unwrap()
}

/// Returns the lines of `bytes` from ranks, sorted, since ranks run in any order.
fn lines(bytes: &[u8]) -> Vec<String> {
    let text = String::from_utf8_lossy(bytes);
    let mut lines: Vec<String> = text
        .lines()
        .filter(|line| line.starts_with('['))
        .map(str::to_owned)
        .collect();
    lines.sort();
    lines
}

/// A launcher that does not outlive its test.
struct Launcher(Child);

impl std::ops::Deref for Launcher {
    type Target = Child;

    fn deref(&self) -> &Child {
        &self.0
    }
}

impl std::ops::DerefMut for Launcher {
    fn deref_mut(&mut self) -> &mut Child {
        &mut self.0
    }
}

impl Drop for Launcher {
    fn drop(&mut self) {
        // It has usually ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Returns a launcher whose ranks have each printed a line `pid <number>`, those numbers, and the rest of its output.
fn running(ranks: u32, script: &str) -> (Launcher, Vec<Pid>, BufReader<ChildStdout>) {
    started(command(ranks, script), ranks)
}

fn started(mut command: Command, ranks: u32) -> (Launcher, Vec<Pid>, BufReader<ChildStdout>) {
    let mut child = Launcher(command.spawn().unwrap());
    let mut output = BufReader::new(child.stdout.take().unwrap());
    let pids = output
        .by_ref()
        .lines()
        .map_while(Result::ok)
        .filter_map(|line| Some(line.split_once("] pid ")?.1.trim().parse().unwrap()))
        .map(|pid: i32| Pid::from_raw(pid).unwrap())
        .take(ranks as usize)
        .collect();
    (child, pids, output)
}

fn assert_gone(pids: &[Pid]) {
    let start = Instant::now();
    // A process whose parent is gone may stay a zombie if nothing reaps orphans.
    let is_there = |pid: &Pid| {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero()));
        test_kill_process(*pid).is_ok() && !stat.is_ok_and(|stat| stat.contains(") Z "))
    };
    while pids.iter().any(is_there) {
        if start.elapsed() > Duration::from_secs(60) {
            for &pid in pids {
                let _ = kill_process(pid, Signal::KILL);
            }
            panic!("ranks are left: {pids:?}");
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn every_rank_knows_its_place_and_shares_one_secret() {
    let output = launcher(
        3,
        "echo $SYMMEM_RANK/$SYMMEM_WORLD $SYMMEM_LOCAL_RANK/$SYMMEM_LOCAL_WORLD $ADDED ${#SYMMEM_SECRET}; \
         echo $SYMMEM_SECRET $SYMMEM_JOB >&2",
    );
    assert!(output.status.success());
    assert_eq!(
        lines(&output.stdout),
        [
            "[0] 0/3 0/3 yes 64",
            "[1] 1/3 1/3 yes 64",
            "[2] 2/3 2/3 yes 64"
        ]
    );
    let secrets: Vec<String> = lines(&output.stderr)
        .iter()
        .map(|line| line[4..].to_owned())
        .collect();
    assert_eq!(secrets.len(), 3);
    assert!(secrets.iter().all(|secret| *secret == secrets[0]));
    assert_ne!(
        lines(&launcher(1, "echo $SYMMEM_SECRET $SYMMEM_JOB >&2").stderr)[0][4..],
        secrets[0]
    );
}

#[test]
fn the_secret_is_on_no_command_line() {
    let output = launcher(
        1,
        "tr '\\0' ' ' < /proc/$PPID/cmdline; tr '\\0' ' ' < /proc/$$/cmdline; echo; echo $SYMMEM_SECRET",
    );
    let lines = lines(&output.stdout);
    // The script itself names the variable; its value must not be there.
    let is_secret = |line: &&String| line.len() == 4 + 64 && !line[4..].contains(' ');
    let (secret, shown): (Vec<&String>, Vec<&String>) = lines.iter().partition(is_secret);
    assert_eq!(secret.len(), 1);
    assert!(shown.iter().all(|line| !line.contains(&secret[0][4..])));
}

#[test]
fn streams_stay_apart_and_the_last_line_may_lack_its_newline() {
    let output = launcher(2, "printf 'out\\nlast'; printf 'err' >&2");
    assert_eq!(
        lines(&output.stdout),
        ["[0] last", "[0] out", "[1] last", "[1] out"]
    );
    assert_eq!(lines(&output.stderr), ["[0] err", "[1] err"]);
}

#[test]
fn much_output_arrives_whole() {
    let output = launcher(2, "seq 20000");
    let lines = lines(&output.stdout);
    assert_eq!(lines.len(), 40000);
    assert!(lines.contains(&"[0] 20000".into()) && lines.contains(&"[1] 1".into()));
}

#[test]
fn without_prefix_ranks_write_themselves() {
    let output = command(2, "echo '[plain'")
        .env("SYMMEM_TEST_PLAIN", "1")
        .output()
        .unwrap();
    assert_eq!(lines(&output.stdout), ["[plain", "[plain"]);
}

#[test]
fn the_first_failure_ends_all_and_gives_the_code() {
    let start = Instant::now();
    let output = launcher(3, "[ $SYMMEM_RANK = 1 ] && exit 7; sleep 60 & wait");
    assert_eq!(output.status.code(), Some(7));
    assert!(start.elapsed() < Duration::from_secs(50));
    let told = String::from_utf8_lossy(&output.stderr).contains("rank 1 exited with code 7");
    assert!(told, "{output:?}");
}

#[test]
fn a_rank_killed_by_a_signal_gives_128_and_the_signal() {
    assert_eq!(
        launcher(2, "[ $SYMMEM_RANK = 0 ] && kill -9 $$; sleep 60")
            .status
            .code(),
        Some(137)
    );
}

#[test]
fn survivors_have_a_time_to_say_what_the_death_of_a_rank_means() {
    let script = "[ $SYMMEM_RANK = 1 ] && kill -9 $$; sleep 0.3; echo rank 1 died >&2; exit 5";
    let output = launcher(3, script);
    assert_eq!(output.status.code(), Some(137));
    let error = String::from_utf8_lossy(&output.stderr);
    let first = "rank 1 was killed (SIGKILL); stopping the other ranks";
    assert!(error.contains(first), "{error}");
    let told = lines(&output.stderr);
    assert_eq!(told, ["[0] rank 1 died", "[2] rank 1 died"]);
}

#[test]
fn a_second_interrupt_kills_ranks_that_ignored_the_first() {
    let (mut child, pids, _output) =
        running(2, "trap '' INT; echo pid $$; while :; do sleep 0.02; done");
    for _ in 0..2 {
        kill_process(Pid::from_child(&child), Signal::INT).unwrap();
        std::thread::sleep(Duration::from_millis(300));
    }
    assert_eq!(child.wait().unwrap().code(), Some(137));
    assert_gone(&pids);
}

#[test]
fn a_rank_that_ignores_the_request_is_killed_after_the_grace() {
    let start = Instant::now();
    let output = launcher(
        2,
        "trap '' TERM; [ $SYMMEM_RANK = 0 ] && sleep 0.3 && exit 3; while :; do sleep 1; done",
    );
    assert_eq!(output.status.code(), Some(3));
    assert!(
        start.elapsed() >= Duration::from_millis(500) && start.elapsed() < Duration::from_secs(50)
    );
}

#[test]
fn ranks_that_are_not_asked_to_end_have_the_grace_to_do_so_by_themselves() {
    let script = "[ $SYMMEM_RANK = 0 ] && exit 3; sleep 0.2; echo gave back; \
                  while [ $SYMMEM_RANK = 2 ]; do sleep 0.02; done";
    let start = Instant::now();
    let output = command(3, script)
        .env("SYMMEM_TEST_UNASKED", "1")
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(3));
    assert_eq!(lines(&output.stdout), ["[1] gave back", "[2] gave back"]);
    assert!(start.elapsed() < Duration::from_secs(50));
}

#[test]
fn what_a_rank_leaves_behind_is_ended() {
    let output = launcher(1, "sleep 60 & echo pid $!");
    assert!(output.status.success());
    let pid: i32 = lines(&output.stdout)[0]
        .split_once("pid ")
        .unwrap()
        .1
        .parse()
        .unwrap();
    assert_gone(&[Pid::from_raw(pid).unwrap()]);
}

#[test]
fn signals_reach_every_rank() {
    for (signal, name, code) in [
        (Signal::INT, "INT", 21),
        (Signal::TERM, "TERM", 22),
        (Signal::HUP, "HUP", 23),
    ] {
        // A shell cannot trap what it was started to ignore, as SIGHUP is if the tests run under nohup.
        let script = format!(
            "exec env --default-signal=HUP sh -c \"trap 'echo caught; exit {code}' {name}; echo pid \\$\\$; \
             while :; do sleep 0.02; done\""
        );
        let (mut child, pids, mut output) = running(2, &script);
        kill_process(Pid::from_child(&child), signal).unwrap();
        let mut rest = String::new();
        output.read_to_string(&mut rest).unwrap();
        assert_eq!(lines(rest.as_bytes()), ["[0] caught", "[1] caught"]);
        assert_eq!(child.wait().unwrap().code(), Some(code));
        assert_gone(&pids);
    }
}

#[test]
fn after_its_job_a_launcher_is_ended_by_signals_unless_it_was_started_to_ignore_them() {
    // Starts the program with SIGHUP ignored, like nohup.
    let launcher = command(1, "exit 0");
    let mut shell = Command::new("/bin/sh");
    shell
        .args(["-c", "trap '' HUP; exec \"$@\"", "sh"])
        .arg(launcher.get_program())
        .args(launcher.get_args())
        .env("SYMMEM_TEST_AFTERWARDS", "1")
        .envs(
            launcher
                .get_envs()
                .filter_map(|(name, value)| Some((name, value?))),
        )
        .stdout(Stdio::piped());
    let mut child = shell.spawn().unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let said = lines
        .map_while(Result::ok)
        .find(|line| line.starts_with("[launcher]"));
    assert!(said.is_some());
    kill_process(Pid::from_child(&child), Signal::HUP).unwrap();
    std::thread::sleep(Duration::from_millis(200));
    kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
    let start = Instant::now();
    while child.try_wait().unwrap().is_none() && start.elapsed() < Duration::from_secs(60) {
        std::thread::sleep(Duration::from_millis(5));
    }
    let _ = child.kill();
    assert_eq!(child.wait().unwrap().signal(), Some(Signal::TERM.as_raw()));
}

#[test]
fn no_rank_outlives_a_launcher_that_is_killed() {
    let (mut child, pids, _output) = running(3, "echo pid $$; while :; do sleep 0.02; done");
    child.kill().unwrap();
    child.wait().unwrap();
    assert_gone(&pids);
}

#[rstest]
#[case::behind_a_shell("/bin/sh -c \"$LOOP\"; exit $?")]
#[case::in_another_session("setsid /bin/sh -c \"$LOOP\"; exit $?")]
#[case::left_behind("(setsid /bin/sh -c \"$LOOP\" &); sleep 60")]
fn what_runs_behind_a_rank_dies_with_the_launcher_and_with_the_job(
    #[case] script: &str,
    #[values(false, true)] kill: bool,
) {
    let looping = "echo pid $$; while :; do sleep 0.02; done";
    let (mut child, pids, _output) = running(2, &format!("LOOP='{looping}'; {script}"));
    let signal = if kill { Signal::KILL } else { Signal::TERM };
    kill_process(Pid::from_child(&child), signal).unwrap();
    child.wait().unwrap();
    assert_gone(&pids);
}

/// Returns the launcher's own line about the first failure.
fn told(output: &Output) -> String {
    let error = String::from_utf8_lossy(&output.stderr);
    let line = error.lines().find(|line| line.starts_with("symmem: rank "));
    line.unwrap_or_else(|| panic!("no failure is told of: {error}"))
        .to_owned()
}

/// Shell functions for scripts: `put` tells the other ranks a process by a file, `ended` waits without starting a
/// process until the process that a rank has told of has ended.
const TOLD: &str = "put() { echo $2 >\"$MARK.$1.new\"; mv \"$MARK.$1.new\" \"$MARK.$1\"; }; \
    ended() { until [ -e \"$MARK.$1\" ]; do :; done; read process <\"$MARK.$1\"; state=; \
              until [ \"$state\" = Z ] || [ ! -e /proc/$process ]; do \
              read line </proc/$process/stat; line=${line##*\") \"}; state=${line%% *}; done; }; ";

/// Runs ranks whose scripts use the functions of [`TOLD`].
fn launcher_of(name: &str, ranks: u32, script: &str) -> Output {
    let mark =
        Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{}", std::process::id()));
    let mut command = command(ranks, &format!("{TOLD}{script}"));
    let output = command.env("MARK", &mark).output().unwrap();
    for rank in 0..ranks {
        let _ = std::fs::remove_file(format!("{}.{rank}", mark.display()));
    }
    output
}

#[test]
fn of_ranks_that_are_killed_the_first_is_named() {
    for first in [0, 2] {
        let script =
            format!("[ $SYMMEM_RANK = {first} ] && put {first} $$ || ended {first}; kill -9 $$");
        let output = launcher_of(&format!("first-{first}"), 3, &script);
        assert_eq!(output.status.code(), Some(137), "{output:?}");
        let expected = format!("symmem: rank {first} was killed (SIGKILL)");
        assert!(told(&output).starts_with(&expected), "{output:?}");
    }
}

#[test]
fn a_rank_killed_behind_a_shell_is_named_with_its_signal_though_a_survivor_ends_before_the_shell() {
    let script = "case $SYMMEM_RANK in \
        0) put 0 $$; ended 1; exit 1;; \
        1) sh -c 'kill -9 $$' & child=$!; put 1 $child; ended 0; wait $child; exit $?;; \
        esac";
    let output = launcher_of("behind-a-shell", 2, script);
    assert_eq!(output.status.code(), Some(137), "{output:?}");
    let expected = "symmem: rank 1 exited with code 137 (SIGKILL)";
    assert!(told(&output).starts_with(expected), "{output:?}");
}

#[test]
fn the_processes_of_a_rank_whose_shell_is_killed_end_though_the_other_ranks_go_on() {
    let script = "if [ $SYMMEM_RANK = 1 ]; then sh -c 'echo pid $$; while :; do sleep 0.02; done' & \
                  sleep 0.3; kill -9 $$; fi; \
                  trap 'echo asked' TERM; echo pid $$; while :; do sleep 0.02; done";
    let mut command = command(2, script);
    command.env("SYMMEM_TEST_GRACE", "60000");
    let (mut child, pids, _output) = started(command, 2);
    let is_behind =
        |pid: &Pid| rustix::process::getpgid(Some(*pid)).is_ok_and(|group| group != *pid);
    let behind: Vec<Pid> = pids.iter().copied().filter(is_behind).collect();
    assert_eq!(behind.len(), 1, "one process runs behind a shell");
    assert_gone(&behind);
    assert!(child.try_wait().unwrap().is_none(), "the job ended");
    child.kill().unwrap();
    child.wait().unwrap();
    assert_gone(&pids);
}

#[test]
fn a_stopped_rank_ends_when_it_is_asked_to_like_any_other() {
    let script = "[ $SYMMEM_RANK = 0 ] && { sleep 0.3; exit 3; }; trap 'echo asked; exit 5' TERM; kill -STOP $$; \
                  while :; do sleep 0.02; done";
    let output = command(2, script)
        .env("SYMMEM_TEST_GRACE", "20000")
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(3));
    assert_eq!(lines(&output.stdout), ["[1] asked"]);
}

#[rstest]
#[case::behind_a_shell("/bin/sh -c \"$LOOP\"; exit $?")]
#[case::left_behind_without_a_variable_of_the_job(
    "(env -i LOOP=\"$LOOP\" setsid /bin/sh -c \"$LOOP\" &); sleep 60"
)]
fn ranks_and_what_runs_behind_them_do_not_outlive_the_supervisor(#[case] script: &str) {
    let looping = "echo pid $$; while :; do sleep 0.02; done";
    let (mut child, pids, _output) = running(2, &format!("LOOP='{looping}'; {script}"));
    let supervisor = children_of(Pid::from_child(&child));
    assert_eq!(supervisor.len(), 1, "the launcher's only child");
    kill_process(supervisor[0], Signal::KILL).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(137));
    assert_gone(&pids);
}

#[rstest]
fn a_job_within_a_job_dies_with_the_launcher_or_the_supervisor_of_the_outer_one(
    #[values(false, true)] kills_supervisor: bool,
) {
    let inner = format!(
        "SYMMEM_TEST_RANKS=2 SYMMEM_TEST_SCRIPT='/bin/sh -c \"$LOOP\"; exit $?' exec '{}' {}",
        std::env::current_exe().unwrap().display(),
        arguments("driver").join(" ")
    );
    let mut command = command(2, &inner);
    command.env("LOOP", "echo pid $$; while :; do sleep 0.02; done");
    let (mut child, pids, _output) = started(command, 4);
    let launcher = Pid::from_child(&child);
    let target = match kills_supervisor {
        true => children_of(launcher)[0],
        false => launcher,
    };
    kill_process(target, Signal::KILL).unwrap();
    child.wait().unwrap();
    assert_gone(&pids);
}

#[test]
fn no_terminal_stops_the_supervisor_or_a_rank() {
    let (mut child, pids, _output) = running(1, "echo pid $$; while :; do sleep 0.02; done");
    let supervisor = children_of(Pid::from_child(&child))[0];
    for pid in [supervisor, pids[0]] {
        // A session without a terminal.
        assert_eq!(rustix::process::getsid(Some(pid)), Ok(supervisor));
    }
    kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
    child.wait().unwrap();
}

#[test]
fn a_reader_of_messages_that_pauses_does_not_keep_ranks_from_their_end() {
    let script =
        "trap '' TERM; [ $SYMMEM_RANK = 0 ] && { sleep 0.5; exit 3; }; seq 200000 >&2; sleep 60";
    let mut child = Launcher(command(2, script).spawn().unwrap());
    let start = Instant::now();
    // Its pipe for standard error is full, and nobody reads it.
    while child.try_wait().unwrap().is_none() {
        assert!(start.elapsed() < Duration::from_secs(50));
        std::thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(child.wait().unwrap().code(), Some(3));
}

#[test]
fn a_job_that_was_started_to_ignore_a_hangup_goes_on() {
    let script = "echo pid $$; until [ -e \"$MARK\" ]; do sleep 0.02; done; echo went on";
    let mark = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("nohup-{}", std::process::id()));
    let launcher = command(1, script);
    // As nohup does, which replaces an output that is a terminal, too.
    let mut shell = Command::new("/bin/sh");
    shell
        .args(["-c", "trap '' HUP; exec \"$@\"", "sh"])
        .arg(launcher.get_program())
        .args(launcher.get_args())
        .envs((launcher.get_envs()).filter_map(|(name, value)| Some((name, value?))))
        .env("MARK", &mark)
        .stdout(Stdio::piped());
    let (mut child, pids, mut output) = started(shell, 1);
    for pid in [Pid::from_child(&child), pids[0]] {
        kill_process(pid, Signal::HUP).unwrap();
    }
    std::thread::sleep(Duration::from_millis(200));
    std::fs::write(&mark, "").unwrap();
    let mut rest = String::new();
    output.read_to_string(&mut rest).unwrap();
    std::fs::remove_file(&mark).unwrap();
    assert_eq!(lines(rest.as_bytes()), ["[0] went on"]);
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

#[test]
fn orphans_that_have_ended_are_reaped_while_the_job_runs() {
    let script =
        "for i in 1 2 3 4 5; do (sleep 0.01 &); done; echo pid $$; while :; do sleep 0.02; done";
    let (mut child, pids, _output) = running(1, script);
    let supervisor = children_of(Pid::from_child(&child))[0];
    let start = Instant::now();
    while children_of(supervisor) != pids {
        assert!(
            start.elapsed() < Duration::from_secs(50),
            "zombies are left: {:?}",
            children_of(supervisor)
        );
        std::thread::sleep(Duration::from_millis(20));
    }
    kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
    child.wait().unwrap();
}

/// Returns the processes whose parent is `parent`.
fn children_of(parent: Pid) -> Vec<Pid> {
    let entries = std::fs::read_dir("/proc").unwrap().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    let is_child = |pid: &i32| {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let fields = stat.rsplit_once(") ").map(|(_, fields)| fields);
        let parent_field = fields.and_then(|fields| fields.split(' ').nth(1)?.parse::<i32>().ok());
        parent_field == Some(parent.as_raw_nonzero().get())
    };
    pids.filter(is_child).filter_map(Pid::from_raw).collect()
}

#[test]
fn a_program_that_is_not_there_is_named() {
    let output = command(2, "")
        .env("SYMMEM_TEST_PROGRAM", "/no/such/program")
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(250));
    assert!(
        String::from_utf8_lossy(&output.stderr).contains("rank 0 (/no/such/program)"),
        "{output:?}"
    );
    assert_eq!(launcher(0, "").status.code(), Some(250));
}
