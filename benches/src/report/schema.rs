//! What is written to JSON: `symmem-report/1`.
//!
//! Fields are only ever added, and a reader ignores those it does not know; a change of meaning gets
//! a new number. Rates are in GB/s (10⁹ bytes a second), times in nanoseconds.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::ag_gemm::Products;
use super::collectives::Collectives;
use super::statistics::{SingleShot, Spread, Timing};

/// The schema that this version writes and reads.
pub const SCHEMA: &str = "symmem-report/1";

/// Everything one run of the benchmark found out.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// [`SCHEMA`].
    pub schema: String,
    /// Where, when and with what it ran.
    pub environment: Environment,
    /// Bandwidths between pairs.
    #[serde(default)]
    pub points: Vec<Point>,
    /// Times of single messages.
    #[serde(default)]
    pub latencies: Vec<Latency>,
    /// Bandwidth between every two ranks, if it was asked for, by each means.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub matrices: Vec<Matrix>,
    /// Collectives, if they were measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub collectives: Option<Collectives>,
    /// All-gather and GEMM, if it was measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ag_gemm: Option<Products>,
    /// What a reader of the figures must know.
    #[serde(default)]
    pub notes: Vec<String>,
}

/// Where, when and with what a benchmark ran.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Environment {
    /// Commit of the source, with `-dirty` if it had changes.
    pub commit: String,
    /// Start of the run: RFC 3339, UTC.
    pub date: String,
    /// The command line.
    pub command: String,
    /// The machine.
    pub host: Host,
    /// Name of the backend: `host`, `cuda`, …
    pub backend: String,
    /// The device of each rank, by name.
    pub devices: Vec<String>,
    /// Version of the vendor's driver.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub driver: Option<String>,
    /// Versions of the libraries used, by name.
    #[serde(default)]
    pub libraries: BTreeMap<String, String>,
    /// Clocks of the devices, as far as they are known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clocks: Option<String>,
    /// Whether multicast was used, could be used, or was forbidden and by what.
    pub multicast: String,
    /// Environment variables that were set and matter.
    #[serde(default)]
    pub variables: BTreeMap<String, String>,
}

/// The machine that the ranks shared.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Host {
    /// Model of the processor.
    pub cpu: String,
    /// Processors that the ranks could use.
    pub cores: u32,
    /// Release of the kernel.
    pub kernel: String,
}

/// Which way bytes go, as seen by the rank that moves them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Direction {
    /// Put: the rank stores to its peer.
    Push,
    /// Get: the rank loads from its peer.
    Pull,
}

impl Direction {
    /// Both, in the order they are shown.
    pub const ALL: [Self; 2] = [Self::Push, Self::Pull];
    /// `push` or `pull`.
    pub fn label(self) -> &'static str {
        match self {
            Self::Push => "push",
            Self::Pull => "pull",
        }
    }
}

/// Who moves bytes at the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Traffic {
    /// One rank of the pair.
    OneWay,
    /// Both ranks of the pair. A rate is still that of one of them.
    BothWays,
}

impl Traffic {
    /// Both, in the order they are shown: first the one that published figures use.
    pub const ALL: [Self; 2] = [Self::BothWays, Self::OneWay];
    /// How it reads in a heading.
    pub fn label(self) -> &'static str {
        match self {
            Self::OneWay => "one way",
            Self::BothWays => "both ways at once",
        }
    }
}

/// What moved the bytes: a column of the tables, a line of the plots.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Column {
    /// One block of 128 threads: what published tables measure.
    Block128,
    /// One block, its best geometry.
    BlockBest,
    /// As many blocks as are best.
    GridBest,
    /// The copy engine.
    CopyEngine,
    /// TileScale's published unrolled copy, one block of 128 threads.
    Unrolled,
    /// Baseline: NVSHMEM, with the blocks and threads of [`Column::Block128`].
    Nvshmem,
    /// Baseline of the host backend: `memcpy` between the same buffers.
    Memcpy,
}

impl Column {
    /// Every column, in the order of declaration.
    pub const ALL: [Self; 7] = [
        Self::Block128,
        Self::BlockBest,
        Self::GridBest,
        Self::CopyEngine,
        Self::Unrolled,
        Self::Nvshmem,
        Self::Memcpy,
    ];

    /// How it reads at the head of a column.
    pub fn label(self) -> &'static str {
        match self {
            Self::Block128 => "block128",
            Self::BlockBest => "block best",
            Self::GridBest => "grid best",
            Self::CopyEngine => "copy engine",
            Self::Unrolled => "unrolled",
            Self::Nvshmem => "nvshmem",
            Self::Memcpy => "memcpy",
        }
    }

    /// Whether this is what others do, measured beside ours.
    pub fn is_baseline(self) -> bool {
        matches!(self, Self::Nvshmem | Self::Memcpy)
    }
}

/// One size, moved one way, by one means, between two ranks.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Point {
    /// Put or get.
    pub direction: Direction,
    /// One rank of the pair moving, or both.
    pub traffic: Traffic,
    /// The rank that moved the bytes; of both ways at once the lower rank, and the times are those of
    /// the slower one.
    pub rank: u32,
    /// The other rank.
    pub peer: u32,
    /// Bytes of one transfer.
    pub bytes: u64,
    /// What moved them.
    pub column: Column,
    /// How, in a word: `bulk`, `vector`, `copy_engine`, …
    pub method: String,
    /// Blocks of the grid; 0 where no kernel ran.
    pub blocks: u32,
    /// Threads of a block; 0 where no kernel ran.
    pub threads: u32,
    /// Bytes that may be on their way at once, all blocks together; 0 where it is not ours to say.
    pub bytes_in_flight: u64,
    /// Transfers back to back on a stream.
    pub looped: Timing,
    /// Transfers captured in a graph and replayed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub graph: Option<Timing>,
    /// One transfer at a time, from the call to its end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub single: Option<SingleShot>,
    /// Bytes that were wrong when the result was checked; no rate of such a point is ever shown.
    pub wrong_bytes: u64,
    /// Rounds of measuring, interleaved with the other columns.
    pub rounds: u32,
    /// What a reader of this figure must know.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

/// A message from one rank to another, timed as half of a round trip.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Latency {
    /// What was sent and how it was awaited.
    pub name: String,
    /// Ours.
    pub one_way_ns: Spread,
    /// Round trips.
    pub rounds: u32,
    /// The same message by other means, in the same run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub baseline: Option<LatencyBaseline>,
    /// What a reader of this figure must know.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

/// What a [`Latency`] is compared with.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LatencyBaseline {
    /// Who: `nvshmem 3.4.5`.
    pub name: String,
    /// Its time.
    pub one_way_ns: Spread,
}

/// Bandwidth between every two ranks.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Matrix {
    /// Put or get.
    pub direction: Direction,
    /// Bytes of one transfer.
    pub bytes: u64,
    /// What moved them.
    pub column: Column,
    /// `gbps[rank][peer]`, GB/s; `None` where nothing was measured.
    pub gbps: Vec<Vec<Option<f64>>>,
}

/// Why text is not a report.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// It is not JSON, or not of a report's shape.
    #[error("not a report: {0}; expected the JSON that `--json` writes")]
    Json(#[from] serde_json::Error),
    /// It is a report of another version.
    #[error(
        "the report has schema `{found}`, this version reads `{SCHEMA}`; use the version that wrote it"
    )]
    Schema {
        /// What its `schema` field says.
        found: String,
    },
}

impl Report {
    /// A report with nothing measured yet.
    pub fn new(environment: Environment) -> Self {
        Self {
            schema: SCHEMA.to_owned(),
            environment,
            points: Vec::new(),
            latencies: Vec::new(),
            matrices: Vec::new(),
            collectives: None,
            ag_gemm: None,
            notes: Vec::new(),
        }
    }

    /// Reads what [`Report::to_json`] wrote.
    pub fn from_json(text: &str) -> Result<Self, ReadError> {
        /// Read first, so that a newer report is called that and not malformed.
        #[derive(Deserialize)]
        struct Head {
            schema: String,
        }
        let head: Head = serde_json::from_str(text)?;
        if head.schema != SCHEMA {
            return Err(ReadError::Schema { found: head.schema });
        }
        Ok(serde_json::from_str(text)?)
    }

    /// Indented JSON that ends in a newline.
    ///
    /// # Errors
    /// None arise from a report's own types; serde's signature is passed on rather than hidden.
    pub fn to_json(&self) -> Result<String, serde_json::Error> {
        let mut text = serde_json::to_string_pretty(self)?;
        text.push('\n');
        Ok(text)
    }

    /// The point that stands for all pairs: the slowest, and before all others one with wrong bytes.
    pub fn slowest(
        &self,
        direction: Direction,
        traffic: Traffic,
        bytes: u64,
        column: Column,
    ) -> Option<&Point> {
        self.points
            .iter()
            .filter(|point| {
                point.direction == direction
                    && point.traffic == traffic
                    && point.bytes == bytes
                    && point.column == column
            })
            .min_by(|a, b| {
                let right = |point: &Point| point.wrong_bytes == 0;
                (right(a).cmp(&right(b))).then(a.looped.gbps.total_cmp(&b.looped.gbps))
            })
    }

    /// The looped rate of `column` over that of `baseline`, each by its slowest pair.
    ///
    /// `None` if one was not measured or moved wrong bytes.
    pub fn ratio(
        &self,
        direction: Direction,
        traffic: Traffic,
        bytes: u64,
        column: Column,
        baseline: Column,
    ) -> Option<f64> {
        let rate = |column| {
            self.slowest(direction, traffic, bytes, column)
                .filter(|point| point.wrong_bytes == 0)
                .map(|point| point.looped.gbps)
        };
        let ratio = rate(column)? / rate(baseline)?;
        ratio.is_finite().then_some(ratio)
    }

    /// Whether any result was wrong.
    pub fn is_wrong(&self) -> bool {
        let collectives = self.collectives.iter();
        (self.wrong_points().next().is_some())
            || self.notes.iter().any(|note| note.starts_with("WRONG"))
            || collectives
                .flat_map(Collectives::wrong_points)
                .next()
                .is_some()
            || self
                .ag_gemm
                .iter()
                .flat_map(Products::wrong)
                .next()
                .is_some()
    }

    /// Points between pairs whose result was wrong.
    pub fn wrong_points(&self) -> impl Iterator<Item = &Point> {
        self.points.iter().filter(|point| point.wrong_bytes != 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::fixture;

    #[test]
    fn a_report_survives_json() {
        let report = fixture::cuda();
        let text = report.to_json().unwrap();
        assert_eq!(Report::from_json(&text).unwrap(), report);
    }

    #[test]
    fn names_in_json_are_those_of_the_schema() {
        let text = fixture::cuda().to_json().unwrap();
        for name in [
            r#""schema": "symmem-report/1""#,
            r#""direction": "push""#,
            r#""traffic": "both_ways""#,
            r#""column": "block128""#,
            r#""column": "block_best""#,
            r#""column": "copy_engine""#,
            r#""p99_ns""#,
        ] {
            assert!(text.contains(name), "{name} is missing");
        }
    }

    #[test]
    fn a_reader_ignores_fields_it_does_not_know() {
        let text = fixture::cuda()
            .to_json()
            .unwrap()
            .replacen('{', r#"{"added_later": 1,"#, 1);
        assert!(Report::from_json(&text).is_ok());
    }

    #[test]
    fn another_schema_is_named_in_the_error() {
        let text = r#"{"schema": "symmem-report/2", "points": "of another shape"}"#;
        let error = Report::from_json(text).unwrap_err();
        assert!(matches!(&error, ReadError::Schema { found } if found == "symmem-report/2"));
        assert!(matches!(
            Report::from_json("{}").unwrap_err(),
            ReadError::Json(_)
        ));
    }

    #[test]
    fn the_slowest_pair_stands_for_all() {
        let mut report = fixture::cuda();
        let fast = report.points[0].clone();
        let mut slow = fast.clone();
        slow.rank = 2;
        slow.looped.gbps = fast.looped.gbps / 2.0;
        report.points.push(slow);
        let found = report
            .slowest(fast.direction, fast.traffic, fast.bytes, fast.column)
            .unwrap();
        assert_eq!(found.rank, 2);
    }

    #[test]
    fn wrong_bytes_come_before_speed_and_leave_no_ratio() {
        let mut report = fixture::cuda();
        let (direction, traffic, bytes) = {
            let first = &report.points[0];
            (first.direction, first.traffic, first.bytes)
        };
        let ratio = |report: &Report| {
            report.ratio(direction, traffic, bytes, Column::Block128, Column::Nvshmem)
        };
        assert!(ratio(&report).is_some());
        let mut wrong = report.points[0].clone();
        wrong.looped.gbps *= 10.0;
        wrong.wrong_bytes = 1;
        report.points.push(wrong);
        assert_eq!(ratio(&report), None);
        assert_eq!(report.wrong_points().count(), 1);
    }
}
