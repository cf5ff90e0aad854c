//! Shapes from a command line or a file, before any rank starts.

use crate::gemm::shapes;
use crate::report::ag_gemm::MatrixElement;
use crate::report::gemm_reduce::GemmReduceProblem;

/// A file of shapes.
const EXAMPLE: &str = r#"[{"m": 2048, "n": 8192, "k": 3584, "dtype": "bfloat16"}]"#;

/// Parses the text of a file: a JSON list of at least one shape.
///
/// # Errors
/// The first fault, as text.
pub fn parse(text: &str) -> Result<Vec<GemmReduceProblem>, String> {
    shapes::parse(text, EXAMPLE, check)
}

/// Checks that the benchmark can make a shape.
///
/// # Errors
/// The reason why it cannot, as text.
pub fn check(problem: &GemmReduceProblem) -> Result<(), String> {
    if matches!(problem.dtype, MatrixElement::F32 | MatrixElement::F8E4M3) {
        let element = problem.dtype.name();
        return Err(format!(
            "{} of {element}: no GEMM before a reduction takes it; use float16 or bfloat16",
            problem.shape()
        ));
    }
    shapes::check([problem.m, problem.n, problem.k], problem.dtype)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_of_shapes_is_read_and_its_first_fault_is_told() {
        assert_eq!(parse(EXAMPLE).unwrap()[0].shape(), "2048x8192x3584");
        let none = EXAMPLE.replace("2048", "0");
        assert!(parse(&none).unwrap_err().contains("no elements"));
        assert!(parse("{}").unwrap_err().contains("write as in [{"));
        let wide = EXAMPLE.replace("bfloat16", "float32");
        assert!(
            parse(&wide)
                .unwrap_err()
                .contains("use float16 or bfloat16")
        );
    }

    #[test]
    fn the_file_of_shapes_is_read() {
        let shapes = parse(include_str!("../../dataset/gemm_reduce.json")).unwrap();
        assert_eq!(shapes[0].shape(), "16x8192x14336");
        assert!(shapes.iter().all(|one| one.m % 8 == 0), "up to 8 ranks");
    }
}
