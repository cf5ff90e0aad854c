//! Compares the HIP backend's declarations of AMD's runtime with a maintained binding, and with the headers of release
//! 5.2, the oldest whose library symmem opens.
//!
//! The binding has the headers of several releases and uses those of the installed ROCm, otherwise its newest. It is an
//! optional feature, since it may not know the release on a machine with ROCm:
//! `cargo test -p symmem-hip-layouts --features hip-sys`. From 7.1 on its releases have every name used here, and CI
//! tests 7.1 too. The headers of 5.2 are a Debian package, which `.ci/run runtimes` unpacks; `SYMMEM_TEST_HIP_HEADERS`
//! names their directory.

#![allow(
    dead_code,
    reason = "the tests use only types and constants of the backend's files"
)]

#[path = "../../../backend-hip/src/runtime/compiler.rs"]
mod compiler;
#[path = "../../../backend-hip/src/runtime/constants.rs"]
mod constants;
mod headers;
mod lists;
#[path = "../../../backend-hip/src/runtime/structs.rs"]
mod structs;
#[path = "../../../backend-hip/src/runtime/table.rs"]
mod table;

use lists::{Function, Struct, function, layout};
use symmem_core::backend::CallResult;
use symmem_gpu::library::Library;

/// Stands in for the backend's function, which compiler.rs needs. The tests never call it.
fn open_library(sonames: &[&str], advice: &str) -> CallResult<Library> {
    Library::open_first(sonames, &[], advice)
}

/// Compares size, alignment and offsets of fields.
fn assert_same_layout(of: &Struct) {
    let name = of.name;
    assert_eq!(of.ours.0, of.theirs.0, "size of {name}");
    for field in &of.fields {
        assert_eq!(field.ours, field.theirs, "offset of {name}::{}", field.name);
    }
    // Ours may be stricter if C has an array of bytes.
    assert!(of.ours.1 >= of.theirs.1, "alignment of {name}");
}

fn assert_same_shape(of: &Function) {
    assert_eq!(
        of.ours, of.theirs,
        "{}: (size, alignment) of each argument and the result",
        of.name
    );
}

#[test]
fn structs_have_the_layout_of_the_headers() {
    lists::structs().iter().for_each(assert_same_layout);
    // Ours is the struct of version 5, which the headers no longer have. It must be large enough for a runtime that
    // fills in its own.
    assert!(size_of::<structs::DeviceProperties>() >= size_of::<hip_sys::hipDeviceProp_tR0600>());
}

#[test]
#[should_panic = "offset of Moved::id"]
fn a_field_that_moved_is_found() {
    #[repr(C)]
    struct Moved {
        id: i32,
        kind: u32,
    }
    assert_same_layout(&layout!(Moved, hipMemLocation { id = id, kind = type_ }));
}

#[test]
fn numbers_are_those_of_the_headers() {
    for number in lists::numbers() {
        if let Some(theirs) = number.theirs {
            assert_eq!(number.ours, theirs, "{}", number.name);
        }
    }
}

#[test]
fn every_number_is_compared() {
    let listed = lists::numbers();
    let listed: Vec<&str> = listed
        .iter()
        .filter_map(|number| number.name.rsplit("::").next())
        .map(str::trim)
        .collect();
    let ours = include_str!("../../../backend-hip/src/runtime/constants.rs");
    let numbers = ours
        .split("pub const ")
        .skip(1)
        .filter_map(|rest| rest.split_once(':'));
    let mut count = 0;
    for (name, _) in numbers.filter(|(name, _)| !headers::OF_5_2.contains(name)) {
        assert!(
            listed.contains(&name),
            "{name} is not compared with the headers"
        );
        count += 1;
    }
    assert!(count > 40, "{count} numbers: the file has another form");
}

#[test]
fn functions_take_and_return_what_the_headers_say() {
    lists::functions().iter().for_each(assert_same_shape);
}

#[test]
fn functions_of_the_compiler_take_and_return_what_the_headers_say() {
    let functions = lists::functions_of_the_compiler();
    functions.iter().for_each(assert_same_shape);
}

#[test]
#[should_panic = "hipSetDevice"]
fn a_function_with_another_argument_is_found() {
    struct Table {
        set_device: unsafe extern "C" fn(u64) -> u32,
    }
    let theirs = hip_sys::hipSetDevice as unsafe extern "C" fn(_) -> _;
    assert_same_shape(&function(
        "hipSetDevice",
        |table: Table| table.set_device,
        theirs,
    ));
}
