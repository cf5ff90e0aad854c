//! A report on one screen: the environment, the main figures, and whether all results were correct.

use super::ag_gemm::{self, AgGemmResults};
use super::collectives::{CollectivePoint, CollectiveResults, OURS, Placement, Time};
use super::ratio::Ratio;
use super::schema::{Column, Direction, Report, Traffic};
use super::text::{capital, counted, decimal, size};
use serde::{Deserialize, Serialize};
use std::fmt::Write as _;

/// One-way NVLink bandwidth of one H100 or H200 in GB/s: 18 links of 25 GB/s (NVIDIA's data sheets give 900 GB/s for
/// both directions).
const NVLINK_4: f64 = 450.0;

/// The most characters of a line.
const COLUMNS: usize = 100;

/// Facts about a run that are not in its report.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RunContext {
    /// Why this backend was chosen, if the user did not name one: `no GPU was found`.
    pub chosen: Option<String>,
    /// The kernel's one-minute load average at the start of the run.
    pub load: Option<f64>,
    /// Number of processors that were busy just before the run, of those that the ranks may use.
    pub busy: Option<f64>,
    /// Lines to print at the end, for example how to get the tables and where the files are.
    pub hints: Vec<String>,
}

/// A figure with its spread and comparisons.
pub(super) struct Line {
    pub what: String,
    pub figure: f64,
    pub unit: &'static str,
    /// Lowest and highest value over the rounds, or minimum and 99th percentile of a latency.
    pub spread: Option<(f64, f64)>,
    /// The figure divided by the link's bandwidth.
    pub of_limit: Option<f64>,
    /// A baseline's name, and its time divided by symmem's; above 1, symmem is faster.
    pub ratio: Option<(String, Ratio)>,
}

/// Returns a report for one screen: at most 45 lines of 100 characters.
pub fn summary(report: &Report, run_context: &RunContext) -> String {
    let mut text = heading(report, run_context);
    let lines = lines(report);
    text.push('\n');
    draw(&mut text, &lines);
    text.push('\n');
    text.push_str(&checked(report));
    for hint in &run_context.hints {
        let _ = writeln!(text, "{hint}");
    }
    text
}

/// The figures that stand for a report, in their order.
pub(super) fn lines(report: &Report) -> Vec<Line> {
    let limit = limit(report);
    let mut lines = transfers(report, limit);
    lines.extend(latency(report));
    if let Some(collectives) = &report.collectives {
        lines.extend(collective_lines(collectives, limit));
    }
    lines.extend(report.ag_gemm.as_ref().and_then(gemm));
    lines
}

fn heading(report: &Report, run_context: &RunContext) -> String {
    let environment = &report.environment;
    let ranks = environment.devices.len();
    let mut text = String::new();
    let why = run_context.chosen.as_deref();
    let why = why.map_or(String::new(), |why| format!(" ({why})"));
    let _ = writeln!(
        text,
        "{} backend, {ranks} ranks{why}",
        capital(&environment.backend)
    );
    let driver = environment.driver.as_deref();
    let driver = driver.map_or(String::new(), |driver| format!(", driver {driver}"));
    let host = &environment.host;
    let devices = format!("{}{driver}", counted(&environment.devices));
    let _ = writeln!(text, "{}", fitted(&devices));
    if let Some(links) = &environment.links {
        let _ = writeln!(text, "{}", fitted(&format!("links: {links}")));
    }
    let _ = writeln!(
        text,
        "host: {} processors, Linux {}",
        host.cores, host.kernel
    );
    let cores = f64::from(host.cores.max(1));
    if environment.backend == "host" && ranks as f64 > cores {
        let _ = writeln!(
            text,
            "warning: {ranks} ranks share {} processors and take turns; the rates are too low",
            host.cores
        );
    }
    let disturbs = |processors: &f64| {
        // A single busy processor matters if the ranks need all others.
        let needed = processors + ranks as f64;
        *processors > 0.5 * cores || *processors >= 0.5 && needed > cores
    };
    if let Some(busy) = run_context.busy.filter(disturbs) {
        let _ = writeln!(
            text,
            "warning: other programs keep {busy:.1} of {} processors busy; they disturb the results",
            host.cores
        );
    } else if let Some(load) = run_context.load.filter(|load| *load > 0.5 * cores) {
        let _ = writeln!(
            text,
            "warning: load {load:.1} on {} processors before the run; other programs disturb the results",
            host.cores
        );
    }
    text
}

/// Cuts a line that is wider than the screen; the files have it whole.
fn fitted(line: &str) -> String {
    match line.char_indices().nth(COLUMNS) {
        None => line.to_owned(),
        Some(_) => line.chars().take(COLUMNS - 1).chain(['…']).collect(),
    }
}

/// Returns the one-way link bandwidth of each device in GB/s, if known.
fn limit(report: &Report) -> Option<f64> {
    let known = |name: &String| name == "NVIDIA H200" || name == "NVIDIA H100 80GB HBM3";
    let devices = &report.environment.devices;
    (!devices.is_empty() && devices.iter().all(known)).then_some(NVLINK_4)
}

/// Lines of the smallest and the largest put and get, by symmem's fastest column.
fn transfers(report: &Report, limit: Option<f64>) -> Vec<Line> {
    let traffic = Traffic::BothWays;
    let sizes = || report.points.iter().map(|point| point.bytes);
    let (Some(least), Some(most)) = (sizes().min(), sizes().max()) else {
        return Vec::new();
    };
    let mut lines = Vec::new();
    for bytes in [least, most] {
        for direction in Direction::ALL {
            let of = |ours: bool| {
                Column::ALL
                    .into_iter()
                    .filter(|column| column.is_baseline() != ours)
                    .filter_map(|column| report.slowest(direction, traffic, bytes, column))
                    .filter(|point| point.wrong_bytes == 0)
                    .max_by(|a, b| a.looped.gbps.total_cmp(&b.looped.gbps))
            };
            let Some(ours) = of(true) else { continue };
            let time = |timing: super::Timing| Time {
                ns: timing.ns,
                min: bytes as f64 / timing.max,
                max: bytes as f64 / timing.min,
            };
            let ratio = of(false).and_then(|theirs| {
                let ratio = Ratio::of(time(ours.looped), time(theirs.looped))?;
                Some((theirs.column.label().to_owned(), ratio))
            });
            let verb = match direction {
                Direction::Push => "put",
                Direction::Pull => "get",
            };
            lines.push(Line {
                what: format!("{verb} {}, both ways", size(bytes)),
                figure: ours.looped.gbps,
                unit: "GB/s",
                spread: Some((ours.looped.min, ours.looped.max)),
                of_limit: limit.map(|limit| ours.looped.gbps / limit),
                ratio,
            });
        }
    }
    lines
}

/// The line of the first message that was timed by calls of the host, or else of the first message.
fn latency(report: &Report) -> Option<Line> {
    let by_calls = |name: &str| name.contains("by calls of the host");
    let mut all = report.latencies.iter();
    let found = all.clone().find(|one| by_calls(&one.name)).or(all.next())?;
    let spread = found.one_way_ns;
    let ratio = found.baseline.as_ref().and_then(|baseline| {
        let value = baseline.one_way_ns.median / spread.median;
        Some((baseline.name.clone(), Ratio::of_latencies(value)?))
    });
    Some(Line {
        what: "put_signal 8 B to wait_signal".into(),
        figure: spread.median / 1e3,
        unit: "µs",
        spread: Some((spread.min / 1e3, spread.p99 / 1e3)),
        of_limit: None,
        ratio,
    })
}

/// Lines of the smallest and the largest size of the first two operations.
fn collective_lines(collectives: &CollectiveResults, limit: Option<f64>) -> Vec<Line> {
    let mut lines = Vec::new();
    for collective in collectives.measured().into_iter().take(2) {
        let ours = || {
            let points = collectives.points.iter();
            points.filter(move |point| point.by == OURS && point.collective == collective)
        };
        let least = ours().min_by_key(|point| point.bytes);
        let most = ours().max_by_key(|point| point.bytes);
        for (point, small) in [(least, true), (most, false)] {
            lines.extend(point.and_then(|point| one(collectives, point, small, limit)));
        }
    }
    lines
}

fn one(
    collectives: &CollectiveResults,
    point: &CollectivePoint,
    small: bool,
    limit: Option<f64>,
) -> Option<Line> {
    let placed = point.placed(Placement::OutOfPlace)?;
    let time = collectives.headline(placed).filter(|_| !point.is_wrong())?;
    let others = collectives.points.iter().filter(|other| {
        other.by != OURS
            && !other.is_wrong()
            && (other.collective, other.bytes) == (point.collective, point.bytes)
    });
    let ratio = others
        .filter_map(|other| {
            let theirs = other.placed(Placement::OutOfPlace)?;
            // Compares replays if both have them, otherwise loops.
            let ratio = match (placed.graph, theirs.graph) {
                (Some(ours), Some(theirs)) => Ratio::of(ours, theirs)?,
                _ => Ratio::of(placed.looped?, theirs.looped?)?,
            };
            Some((other.by.clone(), ratio))
        })
        .min_by(|a, b| a.1.value.total_cmp(&b.1.value));
    let name = point.collective.name();
    if small {
        return Some(Line {
            what: format!("{name} {}", size(point.bytes)),
            figure: time.ns / 1e3,
            unit: "µs",
            spread: Some((time.min / 1e3, time.max / 1e3)),
            of_limit: None,
            ratio,
        });
    }
    let rate = |ns: f64| point.bandwidths(collectives.world, ns).1;
    Some(Line {
        what: format!("{name} {}, busbw", size(point.bytes)),
        figure: rate(time.ns),
        unit: "GB/s",
        spread: Some((rate(time.max), rate(time.min))),
        of_limit: limit.map(|limit| rate(time.ns) / limit),
        ratio,
    })
}

/// The line of the last GEMM shape, by symmem's fastest algorithm.
fn gemm(products: &AgGemmResults) -> Option<Line> {
    let measured = products.products.last()?;
    let best = measured.best()?;
    let time = measured.entry(best)?.headline()?;
    let others = [
        ag_gemm::WINDOWS,
        ag_gemm::TORCH,
        ag_gemm::TORCH_FUSED,
        ag_gemm::TRANSFORMER_ENGINE,
    ];
    let ratio = others
        .into_iter()
        .filter_map(|by| {
            let theirs = measured.entry(by)?.headline()?;
            Some((by.to_owned(), Ratio::of(time, theirs)?))
        })
        .min_by(|a, b| a.1.value.total_cmp(&b.1.value));
    let problem = &measured.problem;
    let rate = |ns: f64| problem.teraflops(ns);
    Some(Line {
        what: format!("AG+GEMM {}x{}x{}, {best}", problem.m, problem.n, problem.k),
        figure: rate(time.ns),
        unit: "TFLOP/s",
        spread: Some((rate(time.max), rate(time.min))),
        of_limit: None,
        ratio,
    })
}

fn draw(text: &mut String, lines: &[Line]) {
    if lines.is_empty() {
        return;
    }
    let figures = |value: f64| match value {
        value if value < 0.1 => format!("{value:.4}"),
        value => decimal(value),
    };
    let _ = writeln!(
        text,
        "{:<36} {:>8} {:<7} {:>15}  compared with",
        "", "median", "", "min–max"
    );
    for line in lines {
        let spread = line.spread.map_or(String::new(), |(least, most)| {
            format!("{}–{}", figures(least), figures(most))
        });
        let of_limit = line
            .of_limit
            .map(|share| format!("{:.0} % of NVLink", 100.0 * share));
        let ratio = line.ratio.as_ref().map(|(name, ratio)| {
            // Without the version, which is in the files.
            let name = name.split(' ').next().unwrap_or(name);
            let noise = if ratio.noise { " (noise)" } else { "" };
            format!("{name} {:.2}×{noise}", ratio.value)
        });
        let compared: Vec<String> = of_limit.into_iter().chain(ratio).collect();
        let row = format!(
            "{:<36} {:>8} {:<7} {:>15}  {}",
            line.what,
            figures(line.figure),
            line.unit,
            spread,
            compared.join(", ")
        );
        let _ = writeln!(text, "{}", row.trim_end());
    }
    let compared = lines.iter().filter_map(|line| line.ratio.as_ref());
    if compared.clone().next().is_some() {
        text.push_str("×: baseline's time / symmem's; above 1, symmem is faster.");
    }
    if compared.clone().any(|(_, ratio)| ratio.noise) {
        text.push_str(" noise: the rounds of both overlap.");
    }
    text.push('\n');
}

/// The line that says how many results were checked, and whether any was wrong.
pub(super) fn checked(report: &Report) -> String {
    let transfers = report.points.len();
    // Absent contenders have an entry too, in which nothing was checked.
    let placed = |point: &&CollectivePoint| {
        let placed = [point.out_of_place, point.in_place];
        placed.iter().flatten().any(|placed| placed.checked > 0)
    };
    let collectives = report.collectives.iter().flat_map(|all| &all.points);
    let collectives = collectives.filter(placed).count();
    let products = report.ag_gemm.iter().flat_map(|all| &all.products);
    let sums = report.gemm_reduce.iter().flat_map(|all| &all.products);
    let entries = (products.flat_map(|one| &one.entries)).chain(sums.flat_map(|one| &one.entries));
    let products = entries.filter(|entry| entry.checked > 0).count();
    let mut parts = Vec::new();
    for (count, what) in [
        (transfers, "transfers"),
        (collectives, "collectives"),
        (products, "GEMMs"),
    ] {
        if count > 0 {
            parts.push(format!("{count} {what}"));
        }
    }
    let what = parts.join(", ");
    match report.is_wrong() {
        false => format!("checked: {what} (of large results, samples): all correct\n"),
        true => format!("WRONG RESULTS among {what}: --details and the files say which\n"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::fixture;
    use super::*;

    fn drawn(report: &Report) -> String {
        let run_context = RunContext {
            chosen: Some("no GPU was found".into()),
            load: Some(12.0),
            busy: None,
            hints: vec!["tables: symmem --details".into()],
        };
        summary(report, &run_context)
    }

    #[test]
    fn it_fits_a_screen_and_says_backend_ranks_figures_and_whether_it_was_right() {
        let text = drawn(&fixture::cuda());
        assert!(text.lines().count() <= 45, "{text}");
        for line in text.lines() {
            assert!(line.chars().count() <= 100, "{line}");
        }
        for word in [
            "Cuda backend, 2 ranks (no GPU was found)",
            "\nlinks: peer access between both devices\n",
            "put 64 MiB",
            "nvshmem ",
            "warning: load",
            "all correct",
            "--details",
        ] {
            assert!(text.contains(word), "{word}: {text}");
        }
    }

    #[test]
    fn a_machine_of_many_kinds_of_devices_and_links_fits_the_screen() {
        let mut report = fixture::cuda();
        report.environment.devices = (0..8).map(|one| format!("a device, model {one}")).collect();
        report.environment.links = Some("peer access: 0–1; ".repeat(20));
        let text = drawn(&report);
        assert!(
            text.lines().all(|line| line.chars().count() <= 100),
            "{text}"
        );
        assert_eq!(text.matches('…').count(), 2, "{text}");
    }

    #[test]
    fn busy_processors_and_more_ranks_than_processors_are_warned_of() {
        let mut report = fixture::cuda();
        report.environment.backend = "host".into();
        report.environment.host.cores = 4;
        let said = |report: &Report, busy: f64, load: f64| {
            let run_context = RunContext {
                busy: Some(busy),
                load: Some(load),
                ..RunContext::default()
            };
            let text = summary(report, &run_context);
            let warnings = text.lines().filter(|line| line.starts_with("warning: "));
            warnings.map(str::to_owned).collect::<Vec<_>>()
        };
        let other = "other programs keep 2.5 of 4 processors busy";
        assert!(said(&report, 2.5, 3.0)[0].contains(other));
        // Two ranks leave two processors to others.
        assert_eq!(said(&report, 1.5, 1.0).len(), 0);
        assert!(said(&report, 0.0, 3.0)[0].contains("load 3.0 on 4 processors"));
        report.environment.devices = vec!["a processor".into(); 4];
        assert_eq!(said(&report, 0.8, 0.1).len(), 1, "no processor is left");
        report.environment.devices.push("a processor".into());
        let told = said(&report, 0.0, 0.0);
        assert!(told[0].contains("5 ranks share 4 processors"), "{told:?}");
    }

    #[test]
    fn wrong_bytes_are_said_first_and_have_no_rate() {
        let mut report = fixture::cuda();
        for point in &mut report.points {
            point.wrong_bytes = 1;
        }
        let text = drawn(&report);
        assert!(text.contains("WRONG RESULTS"), "{text}");
        assert!(!text.contains("put 64 MiB"), "{text}");
    }
}
