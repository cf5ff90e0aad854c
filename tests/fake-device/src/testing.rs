//! Helpers for the tests of a vendor's fake. Each test runs in its own process because the state exists once per
//! process.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, ChildStdout, Command, Stdio};

use crate::driver::Kind;
use crate::report::{self, fake_device_clear_violations, fake_device_live};

/// Set in the process that runs one test.
pub const CHILD: &str = "FAKE_DEVICE_TEST_CHILD";
const PEER: &str = "FAKE_DEVICE_TEST_PEER";

/// Runs `body` in its own process with these variables.
///
/// # Panics
/// If that process fails.
pub fn alone(environment: &[(&str, &str)], body: impl FnOnce()) {
    if std::env::var_os(CHILD).is_some() {
        return body();
    }
    let output = child(environment).output().expect("the test binary starts");
    let said = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(
        output.status.success(),
        "the process of this test failed ({})\n{}{}",
        output.status,
        said(&output.stdout),
        said(&output.stderr)
    );
}

/// Returns a command that runs the calling test in another process.
///
/// # Panics
/// Outside a test.
pub fn child(environment: &[(&str, &str)]) -> Command {
    let thread = std::thread::current();
    let name = thread.name().expect("tests run on named threads");
    let mut command = Command::new(std::env::current_exe().expect("the test binary's path"));
    command
        .args(["--exact", name, "--nocapture", "--test-threads=1"])
        .env(CHILD, "1");
    command.envs(environment.iter().copied());
    command
}

/// Asserts that a call succeeded.
///
/// # Panics
/// If it failed.
#[track_caller]
pub fn ok(code: i32) {
    assert_eq!(code, 0, "report so far:\n{}", report::text());
}

/// Returns how many objects of a kind this process holds.
pub fn live(kind: Kind) -> u64 {
    fake_device_live(kind as u32)
}

/// Asserts that the report has exactly one violation and that it contains `what`, and discards it.
///
/// # Panics
/// If it does not.
#[track_caller]
pub fn violated(what: &str) {
    let text = report::text();
    let violations: Vec<_> = text
        .lines()
        .filter(|line| line.starts_with("violation: "))
        .collect();
    assert_eq!(violations.len(), 1, "{text}");
    assert!(violations[0].contains(what), "{text}");
    fake_device_clear_violations();
}

/// Asserts that no rule was broken.
///
/// # Panics
/// If one was.
#[track_caller]
pub fn clean() {
    let text = report::text();
    assert!(!text.contains("violation: "), "{text}");
}

/// Another process that runs the same test as a peer, and its output.
pub struct Peer {
    process: Child,
    output: BufReader<ChildStdout>,
}

impl Peer {
    /// Starts the peer.
    ///
    /// # Panics
    /// If it cannot be started.
    pub fn start(environment: &[(&str, &str)]) -> Self {
        let mut command = child(environment);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = command.env(PEER, "1").spawn().expect("the peer starts");
        let output = BufReader::new(process.stdout.take().expect("a pipe"));
        Self { process, output }
    }

    /// Returns the peer's process number.
    pub fn id(&self) -> u32 {
        self.process.id()
    }

    /// Returns the next line that the peer printed.
    ///
    /// # Panics
    /// If the peer prints no more.
    pub fn hear(&mut self) -> String {
        let mut line = String::new();
        loop {
            line.clear();
            let bytes = self.output.read_line(&mut line).expect("a line");
            assert!(bytes > 0, "the peer is gone");
            if let Some((_, text)) = line.split_once("PEER ") {
                return text.trim().to_owned();
            }
        }
    }

    /// Sends a line to the peer.
    ///
    /// # Panics
    /// If it is gone.
    pub fn tell(&mut self, text: &str) {
        let input = self.process.stdin.as_mut().expect("a pipe");
        writeln!(input, "{text}").expect("the peer listens");
    }

    /// Releases the peer and waits until it succeeds.
    ///
    /// # Panics
    /// If it does not.
    pub fn release(mut self) {
        let mut input = self.process.stdin.take().expect("a pipe");
        input.write_all(b"go").expect("the peer listens");
        let mut rest = String::new();
        let last = self.output.read_to_string(&mut rest);
        last.expect("the peer's last words");
        let status = self.process.wait().expect("the peer's end");
        assert!(status.success(), "{rest}");
    }

    /// Releases the peer, which a signal then kills, and returns the signal's number.
    ///
    /// # Panics
    /// If it ends otherwise.
    pub fn release_to_its_death(mut self) -> i32 {
        let mut input = self.process.stdin.take().expect("a pipe");
        input.write_all(b"go").expect("the peer listens");
        let status = self.process.wait().expect("the peer's end");
        status.signal().expect("a signal")
    }

    /// Kills the peer and reaps it.
    ///
    /// # Panics
    /// If it cannot be killed.
    pub fn kill(mut self) {
        self.process.kill().expect("the peer can be killed");
        self.process.wait().expect("the peer's end");
    }
}

/// Whether this process is the peer.
pub fn is_peer() -> bool {
    std::env::var_os(PEER).is_some()
}

/// Prints a line; called by the peer.
pub fn say(text: &str) {
    println!("PEER {text}");
}

/// Returns the next line that the peer is sent; called by the peer.
///
/// # Panics
/// If there is none.
pub fn listen() -> String {
    let mut line = Vec::new();
    let mut byte = [0];
    // Read no byte past the line, because other readers continue there.
    loop {
        std::io::stdin().read_exact(&mut byte).expect("a line");
        if byte == *b"\n" {
            return String::from_utf8(line).expect("text");
        }
        line.extend(byte);
    }
}

/// Prints a line, then waits to be released; called by the peer.
///
/// # Panics
/// If nobody releases it.
pub fn say_and_wait(text: &str) {
    say(text);
    let mut go = [0; 2];
    std::io::stdin()
        .read_exact(&mut go)
        .expect("to be released");
}

/// Returns bytes as hexadecimal text.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Undoes [`hex`].
///
/// # Panics
/// If the text is not hexadecimal.
pub fn unhex(text: &str) -> Vec<u8> {
    let byte = |at: usize| u8::from_str_radix(&text[at..at + 2], 16).expect("hexadecimal");
    (0..text.len()).step_by(2).map(byte).collect()
}
