//! What the HIP backend believes of AMD's runtime: against the types of a maintained binding of it, and
//! against the headers of release 5.2, the oldest whose library is opened.
//!
//! The binding has the headers of several releases and takes those of the ROCm that is installed, else the
//! newest it has. It is a feature of this crate and no plain dependency, as it need not know the release of
//! a machine that has ROCm: `cargo test -p xtask --features hip-sys --test layouts`. From 7.1 on its releases
//! have every name that is asked for here, and CI takes that one too. The headers of 5.2 are a
//! package of Debian's, unpacked by `.ci/run runtimes`; `SYMMEM_TEST_HIP_HEADERS` names their directory.

#![allow(
    dead_code,
    reason = "of the backend's files, only types and numbers are looked at"
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

/// How the compiler would be opened. Nothing is opened here.
fn open_library(sonames: &[&str], advice: &str) -> CallResult<Library> {
    Library::open_first(sonames, &[], advice)
}

/// Size, alignment and offsets of the fields.
fn assert_same_layout(of: &Struct) {
    let name = of.name;
    assert_eq!(of.ours.0, of.theirs.0, "size of {name}");
    for field in &of.fields {
        assert_eq!(field.ours, field.theirs, "offset of {name}::{}", field.name);
    }
    // Ours may be stricter, where C has an array of bytes.
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
    // Ours is version 5's, which the headers no longer have; a runtime that filled in its own stays within.
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
