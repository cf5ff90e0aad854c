//! Compares the lists with the headers of release 5.2, by compiling and running a program that includes them.

use super::constants;
use super::lists::{self, Function};
use super::structs::DeviceProperties;
use std::collections::HashMap;
use std::fmt::Write as _;
use std::mem::{offset_of, size_of};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// Constants for release 5.2; the backend has later values too and selects by version.
pub const OF_5_2: [&str; 2] = [
    "MEMORY_TYPE_DEVICE_BEFORE_6",
    "IPC_LAZY_ENABLE_PEER_ACCESS_BEFORE_6",
];

/// Constants with another value in 5.2, and that value.
const CHANGED: [(&str, u32); 2] = [
    ("MEMORY_TYPE_DEVICE", constants::MEMORY_TYPE_DEVICE_BEFORE_6),
    (
        "IPC_LAZY_ENABLE_PEER_ACCESS",
        constants::IPC_LAZY_ENABLE_PEER_ACCESS_BEFORE_6,
    ),
];

/// Constants and functions that 5.2 lacks, by their names in C, and the release that added them. This is safe because an unknown
/// attribute counts as 0, the backend rejects runtimes before 5.7, it requests uncached VMM memory only from 7.2 on, and
/// it keeps copies off the compute units only from 6.1 on.
const LATER: [(&str, &str); 7] = [
    ("hipDeviceAttributeVirtualMemoryManagementSupported", "5.3"),
    ("hipDeviceAttributeWallClockRate", "5.3"),
    ("hipDeviceMallocUncached", "5.5"),
    ("hipMemcpyDeviceToDeviceNoCU", "6.1"),
    ("hipMemAllocationTypeUncached", "7.1"),
    ("hipMemRangeHandleTypeDmaBufFd", "7.0"),
    ("hipMemGetHandleForAddressRange", "7.0"),
];

/// Structs with another order of fields in 5.2, and the fields that it lacks. The order changed in 5.3, and the backend
/// rejects runtimes before 5.7.
const ORDERED_OTHERWISE: [(&str, &[&str]); 1] = [("hipMemAllocationProp", &["allocFlags"])];

/// Structs that end before a `reserved` in 5.2, whose runtime reads no more of ours.
const SHORTER: [&str; 2] = ["hipExternalMemoryHandleDesc", "hipExternalMemoryBufferDesc"];

/// The headers' values, by query.
type Answers = HashMap<String, Vec<usize>>;

/// Returns the source of a program that prints the headers' values: one line per query, with its numbers.
fn program() -> String {
    let mut asked = String::new();
    for of in lists::structs() {
        let name = of.header;
        let lacks = ORDERED_OTHERWISE.iter().find(|(other, _)| *other == name);
        let lacks = lacks.map_or(&[][..], |(_, fields)| fields);
        writeln!(
            asked,
            "say(\"struct {name}\", {{sizeof({name}), alignof({name})}});"
        )
        .unwrap();
        for field in of.fields.iter().map(|field| field.header) {
            if !lacks.contains(&field) {
                writeln!(
                    asked,
                    "say(\"{name}::{field}\", {{offsetof({name}, {field})}});"
                )
                .unwrap();
            }
        }
    }
    let properties = "say(\"properties\", {sizeof(hipDeviceProp_t), offsetof(hipDeviceProp_t, gcnArchName), \
                      sizeof(hipDeviceProp_t::gcnArchName)});";
    writeln!(asked, "{properties}").unwrap();
    for number in lists::numbers() {
        for name in number.header.iter().filter(|name| !is_later(name)) {
            writeln!(asked, "say(\"number {name}\", {{(size_t)({name})}});").unwrap();
        }
    }
    for Function { name, .. } in functions() {
        writeln!(
            asked,
            "say(\"{name}\", Shape<decltype({name})>::numbers());"
        )
        .unwrap();
    }
    format!("{PREAMBLE}int main() {{\n{asked}}}\n")
}

/// The start of the program. It links no library, since it uses only the types of functions.
const PREAMBLE: &str = r#"
#define __HIP_PLATFORM_AMD__
#define __HIP_DISABLE_CPP_FUNCTIONS__
#include <hip/hip_runtime_api.h>
#include <hip/hiprtc.h>
#include <hsa/hsa_ext_amd.h>
#include <cstddef>
#include <cstdio>
#include <vector>

template <class> struct Shape;
template <class Result, class... Arguments> struct Shape<Result(Arguments...)> {
    static std::vector<size_t> numbers() {
        std::vector<size_t> all;
        ((all.push_back(sizeof(Arguments)), all.push_back(alignof(Arguments))), ...);
        all.push_back(sizeof(Result));
        all.push_back(alignof(Result));
        return all;
    }
};

static void say(const char *what, std::vector<size_t> numbers) {
    std::printf("%s:", what);
    for (size_t number : numbers) std::printf(" %zu", number);
    std::printf("\n");
}

"#;

fn is_later(name: &str) -> bool {
    LATER.iter().any(|(later, _)| *later == name)
}

fn functions() -> impl Iterator<Item = Function> {
    let all = [
        lists::functions(),
        lists::unbound_functions(),
        lists::functions_of_the_compiler(),
    ];
    let all = all.into_iter().flatten();
    all.filter(|function| !is_later(function.name))
}

/// Returns the headers' values; runs the program only once.
fn answers(headers: &Path) -> Answers {
    static ASKED: OnceLock<Answers> = OnceLock::new();
    ASKED.get_or_init(|| ask(headers)).clone()
}

/// Compiles and runs the program.
fn ask(headers: &Path) -> Answers {
    let directory = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
    let (source, made) = (
        directory.join("headers-5.2.cpp"),
        directory.join("headers-5.2"),
    );
    std::fs::write(&source, program()).expect("the tests' directory can be written");
    let compiler = std::env::var_os("CXX").unwrap_or_else(|| "c++".into());
    let output = Command::new(compiler)
        .args(["-std=c++17", "-w", "-isystem"])
        .arg(headers)
        .arg(&source)
        .arg("-o")
        .arg(&made)
        .output()
        .expect("a C++ compiler, or its name in CXX");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    let output = Command::new(&made).output().expect("the program runs");
    let text = String::from_utf8(output.stdout).expect("text");
    let answers = text.lines().filter_map(|line| line.rsplit_once(": "));
    answers
        .map(|(asked, text)| {
            let numbers = text.split(' ').map(|word| word.parse().expect("a number"));
            (asked.to_owned(), numbers.collect())
        })
        .collect()
}

/// Returns the differences between the lists and the headers of 5.2, except for those named above.
fn differences(of_5_2: &Answers) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut compare = |what: String, ours: &[usize]| {
        let theirs = of_5_2.get(&what).map(Vec::as_slice);
        if theirs != Some(ours) {
            wrong.push(format!("{what}: ours {ours:?}, in 5.2 {theirs:?}"));
        }
    };
    for of in lists::structs() {
        let name = of.header;
        if ORDERED_OTHERWISE.iter().any(|(other, _)| *other == name) {
            continue;
        }
        // Ours may be stricter if C has an array of bytes.
        let theirs = of_5_2[&format!("struct {name}")][1];
        assert!(of.ours.1 >= theirs, "alignment of {name}");
        match SHORTER.contains(&name) {
            true => assert!(of_5_2[&format!("struct {name}")][0] < of.ours.0, "{name}"),
            false => compare(format!("struct {name}"), &[of.ours.0, theirs]),
        }
        for field in &of.fields {
            compare(format!("{name}::{}", field.header), &[field.ours]);
        }
    }
    for number in lists::numbers() {
        let changed = CHANGED.iter().find(|(name, _)| *name == number.name);
        let ours = changed.map_or(number.ours, |(_, before)| u64::from(*before));
        match number.header[..] {
            [name] if is_later(name) => {}
            [name] => compare(format!("number {name}"), &[ours as usize]),
            // A combination of several bits.
            ref names => {
                let bits = names
                    .iter()
                    .map(|name| of_5_2[&format!("number {name}")][0]);
                let theirs = bits.fold(0, |all, bit| all | bit);
                assert_eq!(ours as usize, theirs, "{} in 5.2", number.name);
            }
        }
    }
    for function in functions() {
        let ours: Vec<usize> = function.ours.iter().flat_map(|&(a, b)| [a, b]).collect();
        compare(function.name.to_owned(), &ours);
    }
    let (size, architecture) = (
        of_5_2["properties"][0],
        offset_of!(DeviceProperties, architecture),
    );
    compare("properties".into(), &[size, architecture, 256]);
    assert!(size <= size_of::<DeviceProperties>());
    wrong
}

/// Returns the directory of the headers of 5.2. Without it, prints that the test is skipped.
fn headers() -> Option<PathBuf> {
    let found = std::env::var_os("SYMMEM_TEST_HIP_HEADERS").map(PathBuf::from);
    if found.is_none() {
        let test = std::thread::current();
        let name = test.name().unwrap_or_default();
        // Written directly, since the harness hides the output of passing tests.
        let line = format!("skipped: {name}: SYMMEM_TEST_HIP_HEADERS names no headers of 5.2\n");
        let _ = std::io::Write::write_all(&mut std::io::stderr(), line.as_bytes());
    }
    found
}

#[test]
fn release_5_2_is_as_believed_but_for_what_is_named() {
    let Some(headers) = headers() else { return };
    let answers = answers(&headers);
    assert_eq!(differences(&answers), [""; 0]);
    for (name, _) in ORDERED_OTHERWISE {
        let of = lists::structs();
        let of = of.iter().find(|of| of.header == name).expect("in the list");
        let first = &of.fields[0];
        let place = &answers[&format!("{name}::{}", first.header)];
        assert_ne!(place, &[first.ours], "{name} is ordered as ours");
    }
    for (name, before) in CHANGED {
        let now = lists::numbers().into_iter().find(|it| it.name == name);
        assert_ne!(
            now.expect("in the list").ours,
            u64::from(before),
            "{name} is as later"
        );
    }
    // A name that the header has must not be in the list.
    let text = std::fs::read_to_string(headers.join("hip/hip_runtime_api.h")).expect("the header");
    for (name, since) in LATER {
        assert!(!text.contains(name), "{name} is said to be {since}'s");
    }
}

#[test]
fn a_number_or_an_offset_that_was_another_in_5_2_is_found() {
    let Some(headers) = headers() else { return };
    let mut answers = answers(&headers);
    for (asked, fault) in [
        ("number hipErrorNotReady", 34),
        ("hipMemAccessDesc::flags", 4),
        ("hipIpcOpenMemHandle", 4),
        ("properties", 800),
    ] {
        let right = answers[asked].clone();
        answers.get_mut(asked).expect("asked").insert(0, fault);
        let wrong = differences(&answers);
        assert!(
            wrong.len() == 1 && wrong[0].starts_with(asked),
            "{asked}: {wrong:?}"
        );
        answers.insert(asked.into(), right);
    }
}
