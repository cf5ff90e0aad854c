//! The JSON schema of a report: `symmem-report/1`.
//!
//! Fields are only ever added, and a reader ignores unknown fields; a change of meaning needs a new
//! schema number. Rates are in GB/s (10⁹ bytes per second), times in nanoseconds.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::ag_gemm::AgGemmResults;
use super::collectives::CollectiveResults;
use super::gemm_reduce::GemmReduceResults;
use super::norms::NormResults;
use super::statistics::{SingleShot, Spread, Timing};

/// The schema that this version writes and reads.
pub const SCHEMA: &str = "symmem-report/1";

/// All measurements of one run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// [`SCHEMA`].
    pub schema: String,
    /// Machine, time, command and versions of the run.
    pub environment: Environment,
    /// Bandwidths between pairs.
    #[serde(default)]
    pub points: Vec<Point>,
    /// Times of single messages.
    #[serde(default)]
    pub latencies: Vec<Latency>,
    /// Bandwidths between every two ranks, if requested, one matrix per direction and column.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub matrices: Vec<Matrix>,
    /// Collectives, if they were measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub collectives: Option<CollectiveResults>,
    /// All-gather + GEMM, if it was measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ag_gemm: Option<AgGemmResults>,
    /// GEMM + reduce-scatter or GEMM + all-reduce, if it was measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gemm_reduce: Option<GemmReduceResults>,
    /// All-reduces with RMSNorm, if they were measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub norms: Option<NormResults>,
    /// Remarks on the measurements; a note that starts with `WRONG` reports wrong results.
    #[serde(default)]
    pub notes: Vec<String>,
}

/// Machine, time, command and versions of a run.
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
    /// Device name of each rank.
    pub devices: Vec<String>,
    /// The links between the machine's devices, if it has several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub links: Option<String>,
    /// How bytes went between nodes: number of nodes, library, transports with devices, and whether bytes were staged;
    /// `None` if all ranks shared a node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network: Option<String>,
    /// Driver version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub driver: Option<String>,
    /// Versions of the libraries used, by name.
    #[serde(default)]
    pub libraries: BTreeMap<String, String>,
    /// Device clocks, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clocks: Option<String>,
    /// State of multicast: used, available, or forbidden and by which variable.
    pub multicast: String,
    /// Relevant environment variables that were set.
    #[serde(default)]
    pub variables: BTreeMap<String, String>,
}

/// The machine that the ranks shared.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Host {
    /// Processor model.
    pub cpu: String,
    /// Number of processors that the ranks could use.
    pub cores: u32,
    /// Kernel release.
    pub kernel: String,
}

/// Direction of a transfer, as seen by the rank that moves the bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Direction {
    /// Put: the rank stores to its peer.
    Push,
    /// Get: the rank loads from its peer.
    Pull,
}

impl Direction {
    /// Both directions, in the order in which they are shown.
    pub const ALL: [Self; 2] = [Self::Push, Self::Pull];
    /// Returns `push` or `pull`.
    pub fn label(self) -> &'static str {
        match self {
            Self::Push => "push",
            Self::Pull => "pull",
        }
    }
}

/// The ranks of a pair that move bytes at the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Traffic {
    /// One rank of the pair.
    OneWay,
    /// Both ranks of the pair. A rate is still that of one of them.
    BothWays,
}

impl Traffic {
    /// Both kinds, in the order in which they are shown: first the one that published figures use.
    pub const ALL: [Self; 2] = [Self::BothWays, Self::OneWay];
    /// Returns the text for headings.
    pub fn label(self) -> &'static str {
        match self {
            Self::OneWay => "one way",
            Self::BothWays => "both ways at once",
        }
    }
}

/// How the bytes were moved: a column of the tables, a curve of the plots.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Column {
    /// One block of 128 threads, as in published tables.
    Block128,
    /// One block with the fastest geometry.
    BlockBest,
    /// The fastest geometry with any number of blocks.
    GridBest,
    /// The copy engine.
    CopyEngine,
    /// TileScale's published unrolled copy, one block of 128 threads.
    Unrolled,
    /// Baseline: NVSHMEM, with the blocks and threads of [`Column::Block128`].
    Nvshmem,
    /// Baseline of the host backend: `memcpy` between the same buffers.
    Memcpy,
    /// Baseline between nodes: `ucx_perftest`.
    UcxPerftest,
}

impl Column {
    /// All columns, in the order of declaration.
    pub const ALL: [Self; 8] = [
        Self::Block128,
        Self::BlockBest,
        Self::GridBest,
        Self::CopyEngine,
        Self::Unrolled,
        Self::Nvshmem,
        Self::Memcpy,
        Self::UcxPerftest,
    ];

    /// Returns the text for headings.
    pub fn label(self) -> &'static str {
        match self {
            Self::Block128 => "block128",
            Self::BlockBest => "block best",
            Self::GridBest => "grid best",
            Self::CopyEngine => "copy engine",
            Self::Unrolled => "unrolled",
            Self::Nvshmem => "nvshmem",
            Self::Memcpy => "memcpy",
            Self::UcxPerftest => "ucx_perftest",
        }
    }

    /// Whether the column is a baseline, not symmem.
    pub fn is_baseline(self) -> bool {
        matches!(self, Self::Nvshmem | Self::Memcpy | Self::UcxPerftest)
    }
}

/// Transfers of one size, direction, traffic and column between two ranks.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Point {
    /// Put or get.
    pub direction: Direction,
    /// Whether one rank of the pair moved bytes, or both.
    pub traffic: Traffic,
    /// The rank that moved the bytes. If both did: the lower rank, and the times are those of the slower
    /// one.
    pub rank: u32,
    /// The other rank.
    pub peer: u32,
    /// Bytes of one transfer.
    pub bytes: u64,
    /// The column.
    pub column: Column,
    /// The method: `bulk`, `vector`, `copy_engine`, …
    pub method: String,
    /// Blocks of the grid; 0 if no kernel ran.
    pub blocks: u32,
    /// Threads per block; 0 if no kernel ran.
    pub threads: u32,
    /// Maximum number of bytes in flight, over all blocks; 0 if unknown.
    pub bytes_in_flight: u64,
    /// Transfers back to back on a stream.
    pub looped: Timing,
    /// Transfers captured in a graph and replayed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub graph: Option<Timing>,
    /// Single transfers, timed from the call to its completion.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub single: Option<SingleShot>,
    /// Wrong bytes found by the check; if not 0, no rate of the point is shown.
    pub wrong_bytes: u64,
    /// Number of rounds, interleaved with the other columns.
    pub rounds: u32,
    /// A remark on the measurement.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

/// A message from one rank to another, timed as half of a round trip.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Latency {
    /// The message, and how the receiver waits.
    pub name: String,
    /// One-way time of symmem, in nanoseconds.
    pub one_way_ns: Spread,
    /// Number of round trips.
    pub rounds: u32,
    /// The same message with another library, in the same run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub baseline: Option<LatencyBaseline>,
    /// A remark on the measurement.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

/// The baseline of a [`Latency`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LatencyBaseline {
    /// Library and version: `nvshmem 3.4.5`.
    pub name: String,
    /// Its one-way time, in nanoseconds.
    pub one_way_ns: Spread,
}

/// Bandwidth between every two ranks.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Matrix {
    /// Put or get.
    pub direction: Direction,
    /// Bytes of one transfer.
    pub bytes: u64,
    /// The column.
    pub column: Column,
    /// `gbps[rank][peer]` in GB/s; `None` if not measured.
    pub gbps: Vec<Vec<Option<f64>>>,
}

/// Why text is not a report.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The text is not JSON, or does not have the fields of a report.
    #[error("not a report: {0}; expected the JSON that `--json` writes")]
    Json(#[from] serde_json::Error),
    /// The report has another schema version.
    #[error(
        "the report has schema `{found}`, this version reads `{SCHEMA}`; use the version that wrote it"
    )]
    Schema {
        /// Value of its `schema` field.
        found: String,
    },
}

impl Report {
    /// Creates a report without measurements.
    pub fn new(environment: Environment) -> Self {
        Self {
            schema: SCHEMA.to_owned(),
            environment,
            points: Vec::new(),
            latencies: Vec::new(),
            matrices: Vec::new(),
            collectives: None,
            ag_gemm: None,
            gemm_reduce: None,
            norms: None,
            notes: Vec::new(),
        }
    }

    /// Parses JSON written by [`Report::to_json`].
    ///
    /// # Errors
    /// [`ReadError`] if the text is not a report, or has another schema.
    pub fn from_json(text: &str) -> Result<Self, ReadError> {
        /// Parsed first, so that the error of a newer report names its schema.
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

    /// Returns indented JSON that ends in a newline.
    ///
    /// # Errors
    /// Errors of `serde_json`; the types of a report cause none.
    pub fn to_json(&self) -> Result<String, serde_json::Error> {
        let mut text = serde_json::to_string_pretty(self)?;
        text.push('\n');
        Ok(text)
    }

    /// Returns the point that represents all pairs: one with wrong bytes if there is any, otherwise the
    /// slowest.
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

    /// Returns the looped rate of `column` divided by that of `baseline`, each for its slowest pair; `None`
    /// if one was not measured or had wrong bytes.
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
                .flat_map(CollectiveResults::wrong_points)
                .next()
                .is_some()
            || self
                .ag_gemm
                .iter()
                .flat_map(AgGemmResults::wrong)
                .next()
                .is_some()
            || (self.norms.iter())
                .flat_map(NormResults::wrong)
                .next()
                .is_some()
            || (self.gemm_reduce.iter())
                .flat_map(GemmReduceResults::wrong)
                .next()
                .is_some()
    }

    /// Returns the points between pairs with wrong bytes.
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
