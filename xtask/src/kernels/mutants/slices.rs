//! Slices of the modules of `kernels-hip`: few kernels of each, so that a mutant compiles in a second.

use std::collections::{BTreeMap, BTreeSet};

use super::source::Source;
use crate::error::{Result, at};
use crate::tools;

/// Some kernels of a module.
pub struct Slice {
    /// The module's name, and what of it, if not all.
    pub name: &'static str,
    /// The module: `device/entries/<module>.h`.
    pub module: &'static str,
    /// The headers that it includes; empty for all of the module's.
    headers: &'static [&'static str],
    /// What a line has that instantiates a kernel of the slice; empty for all kernels.
    keep: &'static [&'static str],
    /// Further kernels.
    more: &'static str,
}

/// Macros that instantiate kernels begin such a line.
const INSTANTIATES: &str = "SYMMEM_";
const ALL_ELEMENTS: &str = "SYMMEM_EACH_ELEMENT(SYMMEM_ENTRY)";

const fn whole(module: &'static str) -> Slice {
    Slice {
        name: module,
        module,
        headers: &[],
        keep: &[],
        more: "",
    }
}

const fn part(
    name: &'static str,
    module: &'static str,
    headers: &'static [&'static str],
    keep: &'static [&'static str],
) -> Slice {
    Slice {
        name,
        module,
        headers,
        keep,
        more: "",
    }
}

/// Slices of all modules, one element type each.
pub const SLICES: [Slice; 16] = [
    whole("base"),
    whole("latency"),
    whole("signals"),
    part(
        "collective/move",
        "collective",
        &["move"],
        &["symmem_move("],
    ),
    part(
        "collective/swap",
        "collective",
        &["swap"],
        &["symmem_swap("],
    ),
    part(
        "collective/pieces",
        "collective",
        &["move_pieces"],
        &["symmem_move_pieces("],
    ),
    part(
        "collective/packets",
        "collective",
        &["packets", "packets_few"],
        &["symmem_move_packets(", "(few, false", "(pair1, true"],
    ),
    part(
        "collective/lamport",
        "collective",
        &["move_lamport"],
        &["symmem_move_lamport", "(few, lamport", "(pair1, 1"],
    ),
    part(
        "collective/exchange",
        "collective",
        &["exchange"],
        &["symmem_exchange("],
    ),
    part("reduce", "reduce", &[], &["(u32)"]),
    part("reduce_push", "reduce_push", &[], &["(f32)"]),
    part("reduce_packets", "reduce_packets", &[], &["(u32)"]),
    Slice {
        more: "SYMMEM_ENTRY(pair1_f32, sum_few_vectors<ElementOf<ElementType::f32>::Type, 1, 1, 2, false>)\n\
               SYMMEM_ENTRY(two_shot_few_f32, sum_few_shares<ElementOf<ElementType::f32>::Type, 0>)\n",
        ..part("reduce_lamport", "reduce_lamport", &[], &["ANY(f32)"])
    },
    part(
        "reduce_norm",
        "reduce_norm",
        &[],
        &["(f32, ", "(shares_f32, "],
    ),
    part("gathered_gemm", "gathered_gemm", &[], &["(f16, rows)"]),
    part("reduced_gemm", "reduced_gemm", &[], &["(f16, rows)"]),
];

impl Slice {
    /// Returns the path of the module's source below `device`.
    pub fn entry(&self) -> String {
        format!("entries/{}.h", self.module)
    }

    /// Returns the slice of a module's source.
    pub fn source(&self, entry: &str) -> String {
        let entry = entry.replace(ALL_ELEMENTS, "SYMMEM_ENTRY(u32)");
        let mut source = String::new();
        let mut more = self.more;
        let mut other = false;
        for line in entry.lines() {
            if line.starts_with("#undef") {
                source.push_str(std::mem::take(&mut more));
            }
            // Macros of one name are defined in turn: what is left of one of them does not matter.
            let instantiates =
                line.starts_with(INSTANTIATES) && line.ends_with([')', '}']) && !other;
            let kept = self.keep.is_empty() || self.keep.iter().any(|keep| line.contains(keep));
            let header = line
                .strip_prefix("#include \"symmem/")
                .and_then(|rest| rest.strip_suffix(".h\""));
            let included = |name: &str| self.headers.is_empty() || self.headers.contains(&name);
            other = line.ends_with('\\');
            if instantiates && !kept || header.is_some_and(|name| !included(name)) {
                continue;
            }
            source.push_str(line);
            source.push('\n');
        }
        source
    }

    /// Returns what the slice is compiled from.
    pub fn parts(&self) -> Result<Parts> {
        let entry = self.entry();
        let source = Source::new(self.source(&read(&entry)?));
        let mut files = BTreeSet::new();
        let mut work = includes(source.code());
        let mut functions: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        while let Some(header) = work.pop() {
            // Those of other targets, and one without code.
            let foreign = ["arch_ptx", "arch_host", "abi.h"]
                .iter()
                .any(|name| header.contains(name));
            if foreign || !files.insert(header.clone()) {
                continue;
            }
            let header = Source::new(read(&header)?);
            work.extend(includes(header.code()));
            for (function, names) in header.uses() {
                let all = functions.entry(function.to_owned()).or_default();
                all.extend(names.into_iter().map(str::to_owned));
            }
        }
        files.insert(entry);
        let mut work: Vec<String> = source
            .uses()
            .into_iter()
            .flat_map(|(_, names)| names)
            .map(str::to_owned)
            .collect();
        work.push("operator".to_owned());
        let mut used = BTreeSet::new();
        while let Some(name) = work.pop() {
            if used.insert(name.clone()) {
                work.extend(functions.get(&name).into_iter().flatten().cloned());
            }
        }
        Ok(Parts { files, used })
    }
}

/// What a slice is compiled from.
pub struct Parts {
    /// The sources, as paths below `device`.
    files: BTreeSet<String>,
    /// Names that are reached from the kernels. A function of another name is not compiled.
    used: BTreeSet<String>,
}

impl Parts {
    /// Whether a function of a source may be compiled.
    pub fn has(&self, file: &str, function: &str) -> bool {
        self.files.contains(file) && self.used.contains(function)
    }

    pub fn files(&self) -> impl Iterator<Item = &String> {
        self.files.iter()
    }
}

/// Returns the headers that a source includes, as paths below `device`.
fn includes(source: &str) -> Vec<String> {
    let lines = source.lines().map(str::trim);
    lines
        .filter_map(|line| line.strip_prefix("#include \"symmem/")?.strip_suffix('"'))
        .map(|name| format!("include/symmem/{name}"))
        .collect()
}

/// Reads a source, by its path below `device`.
pub fn read(file: &str) -> Result<String> {
    let path = tools::root().join("device").join(file);
    at(&path, std::fs::read_to_string(&path))
}
