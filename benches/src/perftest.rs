//! `ucx_perftest` as a baseline between nodes: UCX's own program over the same devices.
//!
//! Each measurement is a server and a client, as it cannot repeat one. The lower rank of the first pair has the server,
//! since its host's address is known to all, and the upper one the client: the bytes go against symmem's.

use super::outcome::{Outcome, agree};
use super::pairing::Pairing;
use super::{Result, exchange};
use std::io::Read;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use symmem::Communicator;

const PROGRAM: &str = "ucx_perftest";
const FIRST_PORT: u16 = 13337;
/// Time limit of one measurement.
const PATIENCE: Duration = Duration::from_secs(5);
/// Pause before the client tries again: the server does not say when it listens.
const RETRY: Duration = Duration::from_millis(20);
/// Bytes that a measurement moves, and most of its transfers.
const BYTES: u64 = 64 << 20;
const TRANSFERS: u64 = 5000;

/// The tests of the program that are baselines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Test {
    /// Puts back to back, as many at once as UCX takes, and a flush.
    Bandwidth,
    /// The same, one put after the other: over TCP, UCX 1.13 slows down with many large ones at once.
    InTurn,
    /// Half of a round trip of puts.
    Latency,
}

impl Test {
    /// Returns the program's name of the test.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Bandwidth | Self::InTurn => "ucp_put_bw",
            Self::Latency => "ucp_put_lat",
        }
    }

    /// Returns how many transfers may be under way; 0 for any number.
    fn outstanding(self) -> u32 {
        match self {
            Self::Bandwidth | Self::Latency => 0,
            Self::InTurn => 1,
        }
    }

    /// Reads the final line: iterations, then the median, average and overall time in µs, then rates. Returns
    /// nanoseconds: of a transfer at full rate, or the median of one way.
    fn parse(self, output: &str) -> Option<f64> {
        let mut lines = output.lines().filter_map(|line| {
            let words: Vec<f64> = (line.split_whitespace().map(str::parse))
                .collect::<std::result::Result<_, _>>()
                .ok()?;
            (words.len() >= 6).then_some(words)
        });
        let words = lines.next_back()?;
        let microseconds = match self {
            Self::Bandwidth | Self::InTurn => words[3],
            Self::Latency => words[1],
        };
        (microseconds > 0.0).then_some(microseconds * 1e3)
    }
}

/// A rank's part in a measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Server,
    Client,
    None,
}

/// The program, from one rank's view.
pub(super) struct Perftest {
    part: Part,
    /// The server's host.
    host: String,
    port: u16,
    pub version: String,
}

impl Perftest {
    /// Looks for the program on the nodes of the first pair. Returns the reason if it is absent. Collective.
    pub(super) fn start(communicator: &Communicator, pairing: &Pairing) -> Result<Outcome<Self>> {
        let rank = communicator.rank();
        let part = match pairing.pairs().next() {
            Some((server, _)) if server == rank => Part::Server,
            Some((_, client)) if client == rank => Part::Client,
            _ => Part::None,
        };
        let version = match part {
            Part::None => Ok(String::new()),
            _ => version(),
        };
        let address = std::env::var("SYMMEM_RENDEZVOUS").unwrap_or_default();
        let host = address.rsplit_once(':').map(|(host, _)| host.to_owned());
        let host = host.ok_or_else(|| {
            "SYMMEM_RENDEZVOUS, which names the host of rank 0, is not set".to_owned()
        });
        let own = version.and_then(|version| {
            Ok(Self {
                part,
                host: host?,
                port: FIRST_PORT,
                version,
            })
        });
        agree(communicator, own)
    }

    /// Measures once; returns nanoseconds, the same on all ranks, or `None` if the program failed. Collective.
    pub(super) fn round(
        &mut self,
        communicator: &Communicator,
        test: Test,
        bytes: u64,
    ) -> Result<Option<f64>> {
        self.port = self.port.checked_add(1).unwrap_or(FIRST_PORT);
        communicator.host_barrier()?;
        let own = match self.part {
            Part::None => None,
            Part::Server => {
                self.serve();
                None
            }
            Part::Client => self.ask(test, bytes),
        };
        let all = exchange::all_gather(communicator, &own)?;
        Ok(all.into_iter().flatten().next())
    }

    /// Serves one client. A failure shows at the client.
    fn serve(&self) {
        let mut command = Command::new(PROGRAM);
        command.args(["-p", &self.port.to_string()]);
        let _ = output(command, PATIENCE);
    }

    fn ask(&self, test: Test, bytes: u64) -> Option<f64> {
        let count = (BYTES / bytes + 8).min(TRANSFERS);
        let start = Instant::now();
        while start.elapsed() < PATIENCE {
            let mut command = Command::new(PROGRAM);
            command
                .args(["-p", &self.port.to_string(), &self.host])
                .args(["-t", test.name(), "-s", &bytes.to_string()])
                .args([
                    "-n",
                    &count.to_string(),
                    "-w",
                    &(count / 10).max(1).to_string(),
                ])
                .args(["-f", "-O", &test.outstanding().to_string()]);
            let left = PATIENCE.saturating_sub(start.elapsed());
            let time = output(command, left).and_then(|text| test.parse(&text));
            if time.is_some() {
                return time;
            }
            std::thread::sleep(RETRY);
        }
        None
    }
}

/// Returns the version of UCX that the program uses, or why there is none.
fn version() -> Outcome<String> {
    let mut help = Command::new(PROGRAM);
    help.arg("-h");
    if output(help, PATIENCE).is_none() {
        return Err(format!("{PROGRAM} is not installed (ucx-utils)"));
    }
    let mut info = Command::new("ucx_info");
    info.arg("-v");
    let text = output(info, PATIENCE).unwrap_or_default();
    // `# Version 1.12.1`, `# Library version: 1.17.0`.
    let words = text.split_whitespace();
    let mut versions = words.filter(|word| {
        word.starts_with(|first: char| first.is_ascii_digit()) && word.contains('.')
    });
    Ok(format!("UCX {}", versions.next().unwrap_or("unknown")))
}

/// Returns what a program writes to standard output, if it ends in time. Its success does not count: some end with a
/// failure after their help.
fn output(mut command: Command, limit: Duration) -> Option<String> {
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .ok()?;
    let mut pipe = child.stdout.take()?;
    // The output fits into the pipe, so the program can end before it is read.
    let ended = ends(&mut child, limit);
    if !ended {
        let _ = child.kill();
        let _ = child.wait();
        return None;
    }
    let mut text = String::new();
    pipe.read_to_string(&mut text).ok()?;
    Some(text)
}

fn ends(child: &mut Child, limit: Duration) -> bool {
    let start = Instant::now();
    loop {
        match child.try_wait() {
            Ok(None) if start.elapsed() < limit => std::thread::sleep(Duration::from_millis(2)),
            Ok(None) => return false,
            _ => return true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_final_line_has_the_time_of_a_transfer_and_the_median_of_one_way() {
        let text = "+---------+\n| Stage: final |\n[thread 0]  \n      \
                    1000      3.250     40.100     38.100     1600.10    1640.20     25600      26246\n";
        assert_eq!(Test::Bandwidth.parse(text), Some(38_100.0));
        assert_eq!(Test::Latency.parse(text), Some(3_250.0));
        assert_eq!(Test::Latency.parse("no numbers\n1 2 3\n"), None);
    }
}
