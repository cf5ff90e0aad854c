//! Evaluates `cfg` conditions: whether an item is part of a shipped build.

use syn::punctuated::Punctuated;
use syn::{Attribute, Meta, Token};

/// Conditions that hold only in tests and checkers.
const NEVER_SHIPPED: [&str; 6] = ["test", "loom", "miri", "fuzzing", "doc", "doctest"];

/// Returns false if the attributes confine their item to tests, fuzzers, loom, Miri or rustdoc.
///
/// Any other condition, such as a feature or a platform, may hold, so its items count.
pub fn ships(attributes: &[Attribute]) -> bool {
    !attributes.iter().any(|attribute| {
        let path = attribute.path();
        let condition = || attribute.parse_args::<Meta>().ok();
        path.is_ident("test")
            || path.is_ident("cfg") && condition().and_then(|it| value(&it)) == Some(false)
    })
}

/// Returns the value of a condition in a shipped build; `None` if it depends on the build.
fn value(condition: &Meta) -> Option<bool> {
    match condition {
        Meta::Path(path) => NEVER_SHIPPED
            .iter()
            .any(|name| path.is_ident(name))
            .then_some(false),
        Meta::List(list) => {
            let parts = list
                .parse_args_with(Punctuated::<Meta, Token![,]>::parse_terminated)
                .ok()?;
            let values: Vec<_> = parts.iter().map(value).collect();
            if list.path.is_ident("not") {
                values.first().copied().flatten().map(|value| !value)
            } else if list.path.is_ident("all") {
                decide(&values, false)
            } else if list.path.is_ident("any") {
                decide(&values, true)
            } else {
                None
            }
        }
        Meta::NameValue(_) => None,
    }
}

/// Returns `decisive` if one value equals it, the opposite if all values are the opposite, otherwise `None`.
fn decide(values: &[Option<bool>], decisive: bool) -> Option<bool> {
    if values.contains(&Some(decisive)) {
        Some(decisive)
    } else if values.iter().all(|value| *value == Some(!decisive)) {
        Some(!decisive)
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_only_tests_compile_does_not_ship() {
        for (condition, expected) in [
            ("test", false),
            ("loom", false),
            ("all(test, not(loom))", false),
            ("any(test, loom)", false),
            ("any(test, fuzzing)", false),
            ("any(test, feature = \"cuda\")", true),
            ("not(test)", true),
            ("all(not(loom), unix)", true),
            ("target_os = \"linux\"", true),
        ] {
            let item: syn::ItemFn =
                syn::parse_str(&format!("#[cfg({condition})] fn f() {{}}")).unwrap();
            assert_eq!(ships(&item.attrs), expected, "{condition}");
        }
    }
}
