//! Compares the table of variables with the sources: it lists exactly the variables that are read.

use super::*;
use crate::base::variables::{BACKEND, CHECK, SHARE, SYMMEM};
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// Files of this crate that query the system themselves.
const ASK_THEMSELVES: [&str; 3] = ["base/env.rs", "memory/multicast/setup.rs", "world/setup.rs"];

/// The crates of a program that uses this library, with their folders.
const CRATES: [(&str, &str); 6] = [
    ("symmem", "src"),
    ("symmem-core", "core/src"),
    ("symmem-gpu", "backend-gpu/src"),
    ("symmem-cuda", "backend-cuda/src"),
    ("symmem-hip", "backend-hip/src"),
    ("symmem-ucx", "ucx/src"),
];

/// Prefixes of names of variables that no other text in the sources begins with.
const PREFIXES: [&str; 12] = [
    "SYMMEM_",
    "NCCL_",
    "NVSHMEM_",
    "TORCH_",
    "HSA_",
    "ROC_",
    "ROCM_",
    "OMPI_",
    "PMI_",
    "PMIX_",
    "SLURM_",
    "TORCHELASTIC_",
];

/// Sources below `folder` without their tests: path and text.
fn sources(folder: &Path) -> Vec<(String, String)> {
    fn visit(root: &Path, folder: &Path, found: &mut Vec<(String, String)>) {
        let Ok(entries) = fs::read_dir(folder) else {
            // A published crate has only its own sources.
            return;
        };
        for entry in entries {
            let path = entry.unwrap().path();
            let name = path.strip_prefix(root).unwrap().display().to_string();
            if path.is_dir() && !name.ends_with("tests") {
                visit(root, &path, found);
            } else if name.ends_with(".rs") && !name.ends_with("tests.rs") {
                let text = fs::read_to_string(&path).unwrap();
                let code = text.split("#[cfg(test)]\nmod tests {").next().unwrap();
                let lines = code.lines().filter(|line| !line.trim().starts_with("//"));
                found.push((name, lines.collect::<Vec<_>>().join("\n")));
            }
        }
    }
    let mut found = Vec::new();
    visit(folder, folder, &mut found);
    found
}

fn is_name(text: &str) -> bool {
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
    !text.is_empty() && text.chars().all(is_part)
}

/// Returns the names of variables in code: literals with a known prefix, and the arguments of queries.
fn names(code: &str) -> BTreeSet<&str> {
    let literals = code.split('"').skip(1).step_by(2);
    let begins = |text: &&str| PREFIXES.iter().any(|prefix| text.starts_with(prefix));
    let asked = ["var_os(\"", "var(\"", "variable(\"", "text(\"", "number(\""];
    let asked = asked.into_iter().flat_map(|call| {
        let calls = code.split(call).skip(1);
        calls.filter_map(|rest| rest.split('"').next())
    });
    let all = literals.filter(begins).chain(asked);
    all.filter(|text| is_name(text)).collect()
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

#[test]
fn a_variable_that_the_sources_name_is_in_the_table_with_the_crate_that_reads_it() {
    for (crate_name, folder) in CRATES {
        for (file, code) in sources(&root().join(folder)) {
            if (crate_name, file.as_str()) == (SYMMEM, "base/variables.rs") {
                continue;
            }
            for name in names(&code) {
                let row = VARIABLES.iter().find(|variable| variable.name == name);
                let row = row.unwrap_or_else(|| panic!("{folder}/{file}: {name} is in no row"));
                assert!(
                    row.read_by.contains(&crate_name),
                    "{folder}/{file}: {name} is not read by {crate_name}, says its row"
                );
            }
        }
    }
}

#[test]
fn a_variable_in_the_table_is_read_by_the_crates_that_it_names() {
    for (crate_name, folder) in CRATES {
        let all: Vec<String> = sources(&root().join(folder))
            .into_iter()
            .map(|(file, code)| match (crate_name, file.as_str()) {
                // The rows with a constant are read through it.
                (SYMMEM, "base/variables.rs") => {
                    code.split("pub static VARIABLES").next().unwrap().into()
                }
                _ => code,
            })
            .collect();
        if all.is_empty() {
            continue;
        }
        for variable in VARIABLES {
            let literal = format!("\"{}\"", variable.name);
            assert_eq!(
                all.iter().any(|code| code.contains(&literal)),
                variable.read_by.contains(&crate_name),
                "{} in {crate_name}",
                variable.name
            );
        }
    }
}

#[test]
fn only_these_files_of_the_library_ask_the_system_for_a_variable() {
    let asking: BTreeSet<String> = sources(&root().join("src"))
        .into_iter()
        .filter(|(_, code)| code.contains("env::var"))
        .map(|(file, _)| file)
        .collect();
    let more: Vec<&String> = asking
        .iter()
        .filter(|file| !ASK_THEMSELVES.contains(&file.as_str()))
        .collect();
    assert!(more.is_empty(), "{more:?}: read them by base::env");
}

#[test]
fn a_row_is_one_line_and_says_all() {
    let mut names = BTreeSet::new();
    for variable in VARIABLES {
        assert!(
            names.insert(variable.name),
            "{} is there twice",
            variable.name
        );
        for text in [
            variable.owner,
            variable.accepts,
            variable.default,
            variable.about,
        ] {
            assert!(
                !text.is_empty() && !text.contains(['\n', '|']) && !text.ends_with('.'),
                "{}: {text}",
                variable.name
            );
        }
        let own = variable.name.starts_with("SYMMEM_");
        assert_eq!(variable.owner == SYMMEM, own, "{}", variable.name);
        assert!(!variable.read_by.is_empty(), "{}", variable.name);
    }
}

#[test]
fn a_value_that_is_refused_is_named_with_what_is_accepted() {
    let parse = |text: &str| CHECK.parse(OsStr::new(text), switch);
    assert_eq!((parse("1"), parse("0")), (Ok(true), Ok(false)));
    let bad = parse("yes").unwrap_err();
    assert_eq!(
        bad.at(3).to_string(),
        "rank 3: SYMMEM_CHECK=`yes` is not 1 or 0; correct it, or unset SYMMEM_CHECK"
    );
}

#[test]
fn a_value_that_is_no_text_is_refused_as_far_as_it_can_be_shown() {
    use std::os::unix::ffi::OsStrExt;
    let bad = BACKEND.parse(OsStr::from_bytes(b"cu\xffda"), |_| Ok(()));
    let bad = bad.unwrap_err().to_string();
    assert!(
        bad.starts_with("SYMMEM_BACKEND=`cu\u{fffd}da`: it is not UTF-8; "),
        "{bad}"
    );
}

#[test]
fn an_empty_element_of_a_search_path_is_not_the_working_directory() {
    let found = directories(OsStr::new(":/a::/b c:"));
    assert_eq!(found, ["/a", "/b c"].map(std::path::PathBuf::from));
    assert!(directories(OsStr::new(":")).is_empty());
}

#[test]
fn strategies_of_sharing_are_read_in_order_and_an_unknown_one_is_refused() {
    let kinds = share_kinds("legacy_ipc, VMM_FILE_DESCRIPTOR,").unwrap();
    assert_eq!(kinds, [ShareKind::LegacyIpc, ShareKind::VmmFileDescriptor]);
    assert!(share_kinds("").unwrap().is_empty());
    let error = SHARE.parse(OsStr::new("carrier_pigeon"), share_kinds);
    let error = error.unwrap_err().to_string();
    assert!(error.contains("carrier_pigeon") && error.contains("legacy_ipc"));
}

#[test]
fn the_row_of_the_strategies_of_sharing_names_them_all() {
    for kind in ShareKind::ALL {
        assert!(
            SHARE.accepts.contains(&kind.name().to_lowercase()),
            "{kind:?}"
        );
    }
}
