//! Shapes from a command line or a file, before any rank starts.

use crate::gemm::shapes;
use symmem::tuning::GemmProblem;

/// A file of shapes.
const EXAMPLE: &str = r#"[{"m": 64, "n": 3584, "k": 8192, "dtype": "bfloat16"}]"#;

/// Parses the text of a file: a JSON list of at least one shape.
///
/// # Errors
/// The first fault, as text.
pub fn parse(text: &str) -> Result<Vec<GemmProblem>, String> {
    shapes::parse(text, EXAMPLE, check)
}

/// Checks that the benchmark can make a shape.
///
/// # Errors
/// The reason why it cannot, as text.
pub fn check(problem: &GemmProblem) -> Result<(), String> {
    shapes::check([problem.m, problem.n, problem.k], problem.dtype)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(m: &str) -> String {
        format!(r#"[{{"m": {m}, "n": 1, "k": {m}, "dtype": "bfloat16"}}]"#)
    }

    #[test]
    fn a_list_of_shapes_is_read_and_its_first_fault_is_told() {
        assert_eq!(parse(&list("64")).unwrap()[0].shape(), "64x1x64");
        for (text, told) in [
            ("[]", "no shapes in the list"),
            ("{}", "not a list of shapes"),
            (&list("0"), "0x1x0 has no elements"),
            (&list("1048576"), "A would have 2199023255552 bytes"),
        ] {
            let reason = parse(text).unwrap_err();
            assert!(reason.contains(told), "{reason}");
        }
    }

    #[test]
    fn sizes_whose_product_no_number_can_hold_are_too_large() {
        for m in ["9223372036854775808", "18446744073709551615"] {
            let reason = parse(&list(m)).unwrap_err();
            assert!(reason.contains("at most 1099511627776"), "{reason}");
        }
    }
}
