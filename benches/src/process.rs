//! A baseline's process, controlled line by line: one command in, one answer out.
//!
//! The process works only between a command and its answer, while this rank is idle.

use super::{BenchError, Result};
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// Time limit of an answer. The programs' own watchdogs give up a little earlier.
const ANSWER: Duration = Duration::from_secs(70);
/// Time limit of the exit of a process that has closed its output, and of the last answers of one that has ended.
const END: Duration = Duration::from_secs(1);
/// Interval at which a process that has not answered is looked at.
const LOOK_INTERVAL: Duration = Duration::from_millis(100);
/// Time limit of the exit after `quit`; then the process is killed.
const LEAVE: Duration = Duration::from_secs(3);

/// A process that reads commands and writes answers; dropping it ends the process.
pub(super) struct Process {
    rank: usize,
    program: String,
    child: Child,
    commands: ChildStdin,
    answers: Receiver<String>,
}

impl Process {
    /// Starts a process. `program` is its name in errors, `advice` says what to do if it cannot be started.
    pub(super) fn spawn(
        mut command: Command,
        program: String,
        advice: &str,
        rank: usize,
    ) -> Result<Self> {
        let failed = |message: String| BenchError::Baseline {
            rank,
            program: program.clone(),
            message,
        };
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| failed(format!("cannot be started: {error}; {advice}")))?;
        let (sender, answers) = channel();
        let (Some(commands), Some(output)) = (child.stdin.take(), child.stdout.take()) else {
            let _ = child.kill();
            let _ = child.wait();
            return Err(failed("it has no pipes for input and output".into()));
        };
        let process = Self {
            rank,
            program: program.clone(),
            child,
            commands,
            answers,
        };
        // The thread ends with the process, whose output it reads.
        std::thread::Builder::new()
            .name("symmem-baseline".into())
            .spawn(move || {
                for line in BufReader::new(output).lines().map_while(|line| line.ok()) {
                    if sender.send(line).is_err() {
                        break;
                    }
                }
            })
            .map_err(|error| failed(format!("cannot start a thread to read it: {error}")))?;
        Ok(process)
    }

    pub(super) fn failed(&self, message: impl Into<String>) -> BenchError {
        BenchError::Baseline {
            rank: self.rank,
            program: self.program.clone(),
            message: message.into(),
        }
    }

    /// Writes a command.
    pub(super) fn tell(&mut self, line: &str) -> Result<()> {
        writeln!(self.commands, "{line}")
            .and_then(|()| self.commands.flush())
            .map_err(|error| self.failed(format!("cannot send `{line}`: {error}")))
    }

    /// Returns the first word and the rest of the next answer. Blocks, at most [`ANSWER`].
    pub(super) fn answer(&mut self) -> Result<(String, String)> {
        let line = self.next_line()?;
        let (word, rest) = line.split_once(' ').unwrap_or((&line, ""));
        Ok((word.to_owned(), rest.trim().to_owned()))
    }

    /// Returns the next line. Looks at the process while it waits: one that has ended may have left another that holds
    /// its output open.
    fn next_line(&mut self) -> Result<String> {
        let start = Instant::now();
        let mut ended: Option<Instant> = None;
        loop {
            match self.answers.recv_timeout(LOOK_INTERVAL) {
                Ok(line) => return Ok(line),
                Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) => {}
            }
            if ended.is_none() && self.end(Duration::ZERO).is_some() {
                ended = Some(Instant::now());
            }
            if ended.is_some_and(|ended| ended.elapsed() > END) {
                break;
            }
            if start.elapsed() > ANSWER {
                return Err(self.failed(format!("no answer within {ANSWER:?}")));
            }
        }
        let how = match self.end(END) {
            Some(status) => format!("ended ({status}) without an answer"),
            None => "closed its output without an answer".into(),
        };
        Err(self.failed(format!("{how}; see its standard error")))
    }

    /// Returns how the process ended. Blocks until it has, at most for `limit`; `None` if it still runs.
    fn end(&mut self, limit: Duration) -> Option<ExitStatus> {
        let start = Instant::now();
        loop {
            match self.child.try_wait() {
                Ok(None) if start.elapsed() < limit => {
                    std::thread::sleep(Duration::from_millis(10))
                }
                ended => return ended.ok().flatten(),
            }
        }
    }

    /// Returns the rest of the next answer, which must begin with `word`. Blocks, at most [`ANSWER`].
    pub(super) fn expect(&mut self, word: &str) -> Result<String> {
        match self.answer()? {
            (first, rest) if first == word => Ok(rest),
            (first, rest) => Err(self.unexpected(&first, &rest, word)),
        }
    }

    /// Returns the error for an answer that begins with another word.
    pub(super) fn unexpected(&self, first: &str, rest: &str, word: &str) -> BenchError {
        self.failed(format!("it answered `{first} {rest}`; expected `{word} …`"))
    }

    /// Parses the `N` numbers of an answer.
    pub(super) fn numbers<const N: usize>(&self, rest: &str) -> Result<[f64; N]> {
        let numbers: Vec<f64> = rest
            .split_whitespace()
            .filter_map(|word| word.parse().ok())
            .collect();
        <[f64; N]>::try_from(numbers)
            .map_err(|_| self.failed(format!("it answered `{rest}`; expected {N} numbers")))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // The process exits by itself if its peers do too; otherwise it is killed.
        let _ = self.tell("quit");
        if self.end(LEAVE).is_none() {
            // An error means that it has ended.
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}
