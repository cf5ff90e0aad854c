//! Worlds of ranks for the conformance suite. Ranks are processes of the test binary itself, on the host backend or on
//! CUDA or HIP over the fake runtimes.

use super::amount::{self, Amount, amount};
use super::hip::{Release, fake_hip};
use std::collections::HashMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, LazyLock, Mutex, OnceLock, PoisonError};
use symmem::ShareKind;
use symmem::backends::Selection;
use symmem_conformance::{Outcome, RanksPerNode, Totals, World, WorldOptions};

/// Set for the processes that are ranks of a world.
pub const RANK: &str = "SYMMEM_CONFORMANCE_RANK";

/// A backend, how it is loaded, and how it shares memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Backend {
    /// The reference.
    Host,
    /// CUDA, linked, over the fake driver.
    Linked,
    /// CUDA, loaded from a plugin file, over the fake driver.
    Plugin,
    /// CUDA with memory shared by file descriptors of the VMM.
    Vmm,
    /// CUDA with memory shared by legacy IPC handles.
    LegacyIpc,
    /// HIP, linked, over the fake runtime, with memory shared by IPC handles.
    HipLinked,
    /// HIP, loaded from a plugin file, over the fake runtime.
    HipPlugin,
    /// HIP with memory shared by file descriptors of the VMM.
    HipVmm,
    /// HIP over the fake runtime as an older release.
    HipSix,
}

impl Backend {
    /// Returns the release of the fake HIP runtime, if the backend is HIP.
    fn hip(self) -> Option<Release> {
        match self {
            Self::HipLinked | Self::HipPlugin | Self::HipVmm => Some(Release::Seven),
            Self::HipSix => Some(Release::Six),
            _ => None,
        }
    }

    /// Whether it is HIP.
    pub fn is_hip(self) -> bool {
        self.hip().is_some()
    }

    /// Returns the CUDA backend whose cases a HIP backend runs: loaded in the same way, or sharing memory in the same
    /// way.
    pub fn counterpart(self) -> Option<Self> {
        match self {
            Self::HipLinked | Self::HipSix => Some(Self::Linked),
            Self::HipPlugin => Some(Self::Plugin),
            Self::HipVmm => Some(Self::Vmm),
            _ => None,
        }
    }

    /// Returns the directory of the vendor's libraries, if the backend has a vendor.
    fn libraries(self) -> Option<&'static Path> {
        match self.hip() {
            Some(release) => Some(fake_hip(release)),
            None if self == Self::Host => None,
            None => Some(super::fake_driver_and_libraries()),
        }
    }
}

/// Whether all cases are requested, and not only the sample.
pub fn is_full() -> bool {
    amount() == Amount::All
}

/// Whether a test is skipped because only `SYMMEM_TESTS=all` asks for it. Reports a skipped test to stderr.
pub fn left_out(name: &str) -> bool {
    amount::left_out_below(Amount::All, name)
}

/// A world and a part of its cases.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Part {
    pub backend: Backend,
    pub ranks: u32,
    pub threads: bool,
    pub part: usize,
}

/// The reasons why HIP may skip a case: features that AMD's devices or RCCL lack, and kernels for NVIDIA's alone.
const LACKS: [&str; 3] = [
    "the device has no bulk copies",
    "has no symmetric windows",
    // GEMM + reduce-scatter and + all-reduce in one kernel for few rows.
    "Packets is not available: no such kernel",
];

/// Returns the outcomes of a part's cases. The first test that asks runs them, once.
pub fn once(part: Part, run: impl FnOnce() -> Vec<Outcome>) -> Vec<Outcome> {
    type Runs = Mutex<HashMap<Part, Arc<OnceLock<Vec<Outcome>>>>>;
    static RUNS: LazyLock<Runs> = LazyLock::new(Mutex::default);
    let mut runs = RUNS.lock().unwrap_or_else(PoisonError::into_inner);
    let here = runs.entry(part).or_default().clone();
    drop(runs);
    // If `run` panics, the next test that asks runs it again.
    here.get_or_init(run).clone()
}

/// Compares a part of a HIP world with the same part on CUDA. Adds differences to `wrong` and returns the number of
/// cases compared. `outcomes` returns the outcomes of either world, and runs its cases if needed.
pub fn held_against_cuda(
    hip: Part,
    outcomes: impl Fn(Part) -> Vec<Outcome>,
    wrong: &mut Vec<String>,
) -> usize {
    let backend = hip.backend.counterpart();
    let backend = backend.expect("every HIP backend has one");
    let (on_cuda, on_hip) = (outcomes(Part { backend, ..hip }), outcomes(hip));
    let found = differences(&on_cuda, &on_hip).into_iter();
    wrong.extend(found.map(|found| format!("{hip:?}: {found}")));
    on_hip.len()
}

/// Returns where HIP does less than CUDA, case by case, for a reason that [`LACKS`] does not name.
pub fn differences(cuda: &[Outcome], hip: &[Outcome]) -> Vec<String> {
    let mut wrong = Vec::new();
    if cuda.len() != hip.len() {
        wrong.push(format!(
            "{} cases on CUDA, {} on HIP",
            cuda.len(),
            hip.len()
        ));
    }
    for (number, (on_cuda, on_hip)) in cuda.iter().zip(hip).enumerate() {
        if let (Outcome::Passed, Outcome::Skipped(reason)) = (on_cuda, on_hip)
            && !LACKS.iter().any(|lack| reason.contains(lack))
        {
            wrong.push(format!(
                "case {number} passes on CUDA, and HIP skips it: {reason}"
            ));
        }
    }
    wrong
}

/// Precedes the number of processes that must write a report.
const EXPECTED: &str = "expected reports: ";

/// The fake driver's variable that names the file of its reports.
const REPORT: &str = "FAKE_DEVICE_REPORT";

/// Returns options of a world whose ranks run the test `rank_process` of the same file.
pub fn options(
    backend: Backend,
    ranks: impl Into<RanksPerNode>,
    threads: bool,
    name: &str,
) -> WorldOptions {
    let ranks = ranks.into();
    let processes = if threads { 1 } else { ranks.world() };
    let test = std::env::current_exe().expect("a test knows its own file");
    let mut options = WorldOptions {
        threads,
        ..WorldOptions::new(ranks, test)
    };
    options.arguments = ["--exact", "rank_process", "--nocapture"]
        .iter()
        .map(Into::into)
        .collect();
    options.environment.push((RANK.into(), "1".into()));
    options.backend = match backend {
        Backend::Host => Selection::Named("host".into()),
        Backend::Plugin => Selection::Plugin(super::cuda_plugin().into()),
        Backend::HipPlugin => Selection::Plugin(super::hip::hip_plugin().into()),
        _ if backend.hip().is_some() => Selection::Named("hip".into()),
        _ => Selection::Named("cuda".into()),
    };
    options.share_kinds = match backend {
        Backend::Vmm | Backend::HipVmm => vec![ShareKind::VmmFileDescriptor],
        Backend::LegacyIpc => vec![ShareKind::LegacyIpc],
        _ => Vec::new(),
    };
    if let Some(libraries) = backend.libraries() {
        // Two tests may run worlds of one name at a time.
        static WORLDS: AtomicU32 = AtomicU32::new(0);
        let (process, number) = (std::process::id(), WORLDS.fetch_add(1, Ordering::Relaxed));
        let report = format!("{name}-{process}-{number}.report");
        let report = Path::new(env!("CARGO_TARGET_TMPDIR")).join(report);
        // The number of processes that must report, so that a missing report does not pass as one without violations.
        std::fs::write(&report, format!("{EXPECTED}{processes}\n")).expect("the report's file");
        options.environment.extend([
            ("SYMMEM_LIBRARY_PATH".into(), libraries.into()),
            ("NCCL_NVLS_ENABLE".into(), "0".into()),
            ("FAKE_DEVICE_COUNT".into(), "4".into()),
            (REPORT.into(), report.into()),
        ]);
    }
    options
}

/// Ends a world and asserts that it ended in good order, left nothing behind, and violated no rule of the driver.
pub fn end(world: World, name: &str) {
    let mut variables = world.options().environment.iter();
    let report = variables.find_map(|(name, value)| (name == REPORT).then(|| PathBuf::from(value)));
    if let Err(error) = world.finish() {
        panic!("{name}: {error}");
    }
    // The host backend has no driver.
    let Some(file) = report else { return };
    let report = std::fs::read_to_string(&file).expect("the report's file");
    let (told, wrong): (Vec<&str>, Vec<&str>) = report
        .lines()
        .filter(|line| !line.starts_with(EXPECTED))
        .partition(|line| line.starts_with("process "));
    let expected = report.lines().find_map(|line| line.strip_prefix(EXPECTED));
    let expected: usize = (expected.and_then(|count| count.parse().ok())).expect("a number");
    assert_eq!(told.len(), expected, "{name}: reports in\n{report}");
    assert!(
        wrong.is_empty(),
        "{name}: the driver's report:\n{}",
        wrong.join("\n")
    );
    // What a failed test found stays for whoever looks.
    std::fs::remove_file(&file).expect("the report's file");
}

/// Asserts that no case of a world failed; `failed` has a line for each that did.
pub fn refuse_failures(name: &str, failed: &[String]) {
    let first = failed.len().min(10);
    assert!(
        failed.is_empty(),
        "{name}: {} failed, first these:\n{}",
        failed.len(),
        failed[..first].join("\n")
    );
}

/// Passes a world's totals, of `all` existing cases, to `cargo xtask conformance`, and prints them to stderr.
pub fn account(name: &str, totals: &Totals, all: usize) {
    let line = format!("conformance: {name}: {totals}, of {all} cases in all");
    let _ = writeln!(std::io::stderr(), "{line}");
    if let Some(file) = std::env::var_os("SYMMEM_CONFORMANCE_TOTALS") {
        let line = serde_json::json!({ "world": name, "all": all, "totals": totals });
        let file = std::fs::File::options()
            .append(true)
            .create(true)
            .open(file);
        let mut file = file.expect("the totals' file can be written");
        writeln!(file, "{line}").expect("the totals' file can be written");
    }
}
