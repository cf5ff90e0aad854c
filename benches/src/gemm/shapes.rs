//! Shapes from a command line or a file, before any rank starts.

use crate::report::ag_gemm::MatrixElement;
use serde::de::DeserializeOwned;

/// The most bytes of a matrix; no device has so much memory.
const MOST_BYTES: u128 = 1 << 40;

/// Parses the text of a file: a JSON list of at least one shape. `example` is such a list, for the error.
///
/// # Errors
/// The first fault, as text.
pub(crate) fn parse<P: DeserializeOwned>(
    text: &str,
    example: &str,
    check: impl Fn(&P) -> Result<(), String>,
) -> Result<Vec<P>, String> {
    let problems: Vec<P> = serde_json::from_str(text)
        .map_err(|error| format!("not a list of shapes: {error}; write as in {example}"))?;
    if problems.is_empty() {
        return Err("no shapes in the list; add at least one".into());
    }
    problems.iter().try_for_each(check)?;
    Ok(problems)
}

/// Checks that the benchmark can make matrices of these sizes and this element type.
///
/// # Errors
/// The reason why it cannot, as text.
pub(crate) fn check([m, n, k]: [usize; 3], element: MatrixElement) -> Result<(), String> {
    let shape = format!("{m}x{n}x{k}");
    if m == 0 || n == 0 || k == 0 {
        return Err(format!(
            "{shape} has no elements; m, n and k must be at least 1"
        ));
    }
    let each = element.element().bytes();
    let of_c = match element {
        MatrixElement::F8E4M3 => MatrixElement::Bf16.element().bytes(),
        _ => each,
    };
    let bytes = |rows: usize, columns: usize, each: u64| {
        (rows as u128 * columns as u128).saturating_mul(each.into())
    };
    for (name, bytes) in [
        ("A", bytes(m, k, each)),
        ("B", bytes(k, n, each)),
        ("C", bytes(m, n, of_c)),
    ] {
        if bytes > MOST_BYTES {
            return Err(format!(
                "{shape}: {name} would have {bytes} bytes; a matrix can have at most {MOST_BYTES}"
            ));
        }
    }
    Ok(())
}
