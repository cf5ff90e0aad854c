//! A run in a comparison.

use super::error::CompareError;
use crate::report::collectives::Collective;
use crate::report::schema::{Column, Direction, Report, Traffic};
use crate::report::text::{counted, size};

/// A report and its file name.
#[derive(Clone, Debug, PartialEq)]
pub struct Run {
    /// File name, as given.
    pub file: String,
    /// Contents of the file.
    pub report: Report,
}

impl Run {
    /// Parses the text of a file.
    ///
    /// # Errors
    /// [`CompareError::Read`] if the text is not a report of this schema version.
    pub fn parse(file: &str, text: &str) -> Result<Self, CompareError> {
        let file = file.to_owned();
        match Report::from_json(text) {
            Ok(report) => Ok(Self { file, report }),
            Err(error) => Err(CompareError::Read { file, error }),
        }
    }

    /// Returns the machine in one line: `4 × NVIDIA H200`, or the processor for the host backend.
    pub(super) fn machine(&self) -> String {
        let environment = &self.report.environment;
        match environment.devices.is_empty() || environment.backend == "host" {
            true => {
                let host = &environment.host;
                format!("{}, {} cores", host.cpu, host.cores)
            }
            false => counted(&environment.devices),
        }
    }

    /// Returns the model of the first device.
    pub(super) fn device(&self) -> &str {
        let devices = &self.report.environment.devices;
        devices.first().map_or("", String::as_str)
    }

    /// Describes the measurements of the run.
    pub(super) fn contents(&self) -> String {
        let report = &self.report;
        let mut parts = Vec::new();
        if !report.points.is_empty() {
            let sizes = report.points.iter().map(|point| point.bytes);
            parts.push(format!(
                "transfers of {} to {}",
                size(sizes.clone().min().unwrap_or_default()),
                size(sizes.max().unwrap_or_default())
            ));
        }
        if !report.latencies.is_empty() {
            parts.push("latencies".to_owned());
        }
        if let Some(section) = &report.collectives {
            let names = section.measured().into_iter().map(Collective::name);
            parts.push(names.collect::<Vec<_>>().join(", "));
        }
        match parts.is_empty() {
            true => format!("{}: nothing to compare", self.file),
            false => format!("{}: {}", self.file, parts.join(", ")),
        }
    }

    /// Returns the best copy engine rate over all sizes, of the slowest pair, in GB/s, and its size.
    pub(super) fn engine(&self, direction: Direction, traffic: Traffic) -> Option<(f64, u64)> {
        let sizes = (self.report.points.iter())
            .filter(|point| point.column == Column::CopyEngine)
            .map(|point| point.bytes);
        let slowest = sizes.filter_map(|bytes| {
            (self.report).slowest(direction, traffic, bytes, Column::CopyEngine)
        });
        (slowest.filter(|point| point.wrong_bytes == 0))
            .map(|point| (point.looped.gbps, point.bytes))
            .max_by(|a, b| a.0.total_cmp(&b.0))
    }
}
