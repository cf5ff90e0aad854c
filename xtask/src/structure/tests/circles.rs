//! Tests which edges count, and which circles they form.

use super::{edges, expect, read};

const LIB: (&str, &str) = ("src/lib.rs", "mod a; mod b;");

#[test]
fn an_import_in_one_direction_is_no_circle() {
    expect(
        &[
            LIB,
            ("src/a.rs", "use crate::b::B; pub fn f(_: B) {}"),
            ("src/b.rs", "pub struct B;"),
        ],
        &["a -> b: B"],
        &[],
    );
}

#[test]
fn two_files_that_import_each_other_are_a_circle() {
    let files = [
        LIB,
        ("src/a.rs", "use crate::b::B; pub struct A(B);"),
        (
            "src/b.rs",
            "use crate::a::A; pub struct B; pub fn f(_: A) {}",
        ),
    ];
    expect(&files, &["a -> b: B", "b -> a: A"], &["a b"]);
    assert_eq!(
        read(&files).circles(),
        [
            "probe: circle of 2 files\n  src/a.rs\n  src/b.rs\n    src/a.rs -> src/b.rs: B\n    src/b.rs -> src/a.rs: A"
        ]
    );
}

#[test]
fn a_path_without_an_import_counts() {
    expect(
        &[
            LIB,
            ("src/a.rs", "pub fn f() { super::b::g() }"),
            ("src/b.rs", "pub fn g() { if false { crate::a::f() } }"),
        ],
        &["a -> b: g", "b -> a: f"],
        &["a b"],
    );
}

#[test]
fn a_reexport_ties_to_the_defining_file() {
    let lib = ("src/lib.rs", "mod folder; mod other;");
    let folder = (
        "src/folder/mod.rs",
        "mod inner; pub use inner::Thing; pub struct Own;",
    );
    expect(
        &[
            lib,
            folder,
            (
                "src/folder/inner.rs",
                "use super::Own; pub struct Thing(Own);",
            ),
            (
                "src/other.rs",
                "use crate::folder::Thing; pub struct X(Thing);",
            ),
        ],
        &[
            "folder/inner -> folder/mod: Own",
            "other -> folder/inner: Thing",
        ],
        &[],
    );
    expect(
        &[
            lib,
            folder,
            (
                "src/folder/inner.rs",
                "pub struct Thing; pub fn f(_: crate::other::X) {}",
            ),
            (
                "src/other.rs",
                "use crate::folder::Thing; pub struct X(Thing);",
            ),
        ],
        &["folder/inner -> other: X", "other -> folder/inner: Thing"],
        &["folder/inner other"],
    );
}

#[test]
fn a_reexported_name_counts_where_its_file_uses_it() {
    expect(
        &[
            ("src/lib.rs", "mod folder;"),
            (
                "src/folder/mod.rs",
                "mod inner; pub use inner::Thing; pub struct Own(Thing);",
            ),
            (
                "src/folder/inner.rs",
                "pub struct Thing; pub fn f(_: super::Own) {}",
            ),
        ],
        &[
            "folder/inner -> folder/mod: Own",
            "folder/mod -> folder/inner: Thing",
        ],
        &["folder/inner folder/mod"],
    );
}

#[test]
fn a_glob_ties_to_the_files_of_the_names_used() {
    expect(
        &[
            ("src/lib.rs", "mod folder; mod other;"),
            (
                "src/folder/mod.rs",
                "mod one; mod two; pub use one::*; pub use two::*;",
            ),
            (
                "src/folder/one.rs",
                "pub struct One; pub fn f() { crate::other::g() }",
            ),
            ("src/folder/two.rs", "pub struct Two;"),
            (
                "src/other.rs",
                "use crate::folder::*; pub fn g() { let _ = One; }",
            ),
        ],
        &["folder/one -> other: g", "other -> folder/one: One"],
        &["folder/one other"],
    );
}

#[test]
fn a_variable_is_not_the_function_of_a_glob() {
    expect(
        &[
            LIB,
            (
                "src/a.rs",
                "use crate::b::*; pub fn f(plan: u8) -> u8 { plan }",
            ),
            ("src/b.rs", "pub fn plan() {}"),
        ],
        &[],
        &[],
    );
}

#[test]
fn code_of_tests_and_of_loom_does_not_count() {
    for condition in ["test", "all(test, not(loom))", "loom", "any(test, loom)"] {
        let b = format!(
            "#[cfg({condition})] use crate::a::A; pub struct B;
             #[cfg({condition})] mod tests {{ use crate::a::A; }}
             #[cfg({condition})] mod absent;
             pub fn f() {{ #[cfg({condition})] let _ = crate::a::A(B); }}"
        );
        let a = ("src/a.rs", "use crate::b::B; pub struct A(pub B);");
        expect(&[LIB, a, ("src/b.rs", &b)], &["a -> b: B"], &[]);
    }
    let b = "#[cfg(not(test))] use crate::a::A; pub struct B;";
    let a = ("src/a.rs", "use crate::b::B; pub struct A(pub B);");
    expect(
        &[LIB, a, ("src/b.rs", b)],
        &["a -> b: B", "b -> a: A"],
        &["a b"],
    );
}

#[test]
fn tests_examples_and_benchmarks_do_not_count() {
    let lib = ("src/lib.rs", "pub struct A;");
    let other = "fn main() { let _ = probe::A; }";
    expect(
        &[
            lib,
            ("examples/e.rs", other),
            ("tests/t.rs", other),
            ("benches/b.rs", other),
        ],
        &[],
        &[],
    );
}

#[test]
fn links_in_documentation_do_not_count() {
    expect(
        &[
            LIB,
            (
                "src/a.rs",
                "//! [`crate::b::B`]\n/// [`crate::b::B`]\npub struct A;",
            ),
            ("src/b.rs", "pub struct B(crate::a::A);"),
        ],
        &["b -> a: A"],
        &[],
    );
}

#[test]
fn paths_in_macro_calls_count() {
    expect(
        &[
            LIB,
            ("src/a.rs", "pub fn f() -> u8 { 1 } pub struct A;"),
            (
                "src/b.rs",
                "pub fn g() { assert_eq!(1, crate::a::f()); drop(vec![[super::a::A]]) }",
            ),
        ],
        &["b -> a: A, f"],
        &[],
    );
}

#[test]
fn an_exported_macro_ties_to_the_file_of_its_definition() {
    expect(
        &[
            LIB,
            (
                "src/a.rs",
                "#[macro_export] macro_rules! make { () => { $crate::b::B } } pub struct A;",
            ),
            ("src/b.rs", "pub struct B; pub fn f() { crate::make!(); }"),
        ],
        &["a -> b: B", "b -> a: make"],
        &["a b"],
    );
}

#[test]
fn a_macro_in_scope_by_its_place_ties_to_its_file() {
    expect(
        &[
            ("src/lib.rs", "#[macro_use] mod a; mod b; mod c;"),
            ("src/a.rs", "macro_rules! one { () => {} }"),
            ("src/b.rs", "one!();"),
            (
                "src/c/mod.rs",
                "macro_rules! two { () => {} } pub(crate) use two; mod d;",
            ),
            ("src/c/d.rs", "two!(); one!(); crate::c::two!();"),
        ],
        &["b -> a: one", "c/d -> a: one", "c/d -> c/mod: two"],
        &[],
    );
}

#[test]
fn an_item_made_by_a_macro_call_is_defined_by_the_file_of_the_call() {
    expect(
        &[
            ("src/lib.rs", "mod kinds; mod b; mod c;"),
            (
                "src/kinds/mod.rs",
                "macro_rules! kind { ($name:ident, $of:ty) => { pub struct $name($of); pub const FIXED: u8 = 0; } }
                 mod inner; pub use inner::*; kind!(Outer, u32);",
            ),
            ("src/kinds/inner.rs", "kind!(Inner, u8);"),
            ("src/b.rs", "use crate::kinds::*; pub fn f(_: Inner) -> u32 { 0 }"),
            ("src/c.rs", "pub fn f(_: crate::kinds::Outer) -> u8 { crate::kinds::FIXED }"),
        ],
        &["b -> kinds/inner: Inner", "c -> kinds/mod: FIXED, Outer", "kinds/inner -> kinds/mod: kind"],
        &[],
    );
}

#[test]
fn an_associated_function_ties_to_the_file_of_its_impl() {
    expect(
        &[
            ("src/lib.rs", "mod a; mod b; mod c;"),
            ("src/a.rs", "pub struct A; pub type Alias = A;"),
            (
                "src/b.rs",
                "use crate::a::A; impl A { pub const N: u8 = 1; pub fn new() -> Self { Self } }",
            ),
            (
                "src/c.rs",
                "use crate::a::{A, Alias}; impl A { fn f() { Self::new(); } } pub fn g() { Alias::new(); A::f(); }",
            ),
        ],
        &[
            "b -> a: A",
            "c -> a: A, Alias",
            "c -> b: A::new, Alias::new",
        ],
        &[],
    );
}

#[test]
fn a_variant_ties_to_the_file_of_their_enum() {
    let a = ("src/a.rs", "pub enum Kind { One, Two } pub struct Other;");
    for b in [
        "pub fn f() { use crate::a::Kind::*; let _ = One; }",
        "use crate::a::Kind::One; pub fn f() { let _ = One; }",
        "use crate::a::{self}; pub fn f(_: a::Kind) {}",
        "use crate::a as x; pub fn f() { match 1 { _ => x::Kind::Two }; }",
        "#[derive(crate::a::Kind)] pub struct S;",
        "#[x(with = \"crate::a::Kind::of\")] pub struct S;",
        "pub fn f() { <crate::a::Kind as Default>::default(); }",
    ] {
        let source = read(&[LIB, a, ("src/b.rs", b)]);
        assert_eq!(edges(&source), ["b -> a: Kind"], "{b}");
    }
}

#[test]
fn modules_are_found_where_the_language_looks_for_them() {
    expect(
        &[
            (
                "src/lib.rs",
                "pub mod a; #[path = \"odd.rs\"] mod b; mod c { pub mod d; }",
            ),
            ("src/a.rs", "pub mod inner;"),
            (
                "src/a/inner.rs",
                "pub fn f() { super::super::b::g(); crate::c::d::h() }",
            ),
            ("src/odd.rs", "pub fn g() {}"),
            ("src/c/d.rs", "pub fn h() {}"),
            ("src/main.rs", "mod own; fn main() { own::run() }"),
            ("src/own.rs", "pub fn run() { probe::a::inner::f() }"),
        ],
        &[
            "a/inner -> c/d: h",
            "a/inner -> odd: g",
            "main -> own: run",
            "own -> a/inner: f",
        ],
        &[],
    );
}

#[test]
fn a_path_that_cannot_be_followed_is_reported() {
    let source = read(&[LIB, ("src/a.rs", "use crate::b::Absent;"), ("src/b.rs", "")]);
    assert_eq!(
        source.unresolved(),
        ["src/a.rs: cannot find the definition of crate::b::Absent"]
    );
}
