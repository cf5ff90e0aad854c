//! Products of matrices in f64, by a library: tests multiply more than code does quickly that is not optimized.

/// Returns the product of `[m, k]` and `[k, n]` elements times a scale, row-major without gaps. `steps` has the elements from a row to
/// the next one, and from a column, of each matrix.
pub fn multiply(
    [m, k, n]: [usize; 3],
    scale: f64,
    [a, b]: [&[f64]; 2],
    steps: [[usize; 2]; 2],
) -> Vec<f64> {
    let mut c = vec![0.0; m * n];
    for (matrix, [rows, columns], [row, column]) in [(a, [m, k], steps[0]), (b, [k, n], steps[1])] {
        let last = |lines: usize, step: usize| lines.saturating_sub(1) * step;
        assert!(rows * columns == 0 || last(rows, row) + last(columns, column) < matrix.len());
    }
    let [[a_row, a_column], [b_row, b_column]] = steps.map(|each| each.map(|step| step as isize));
    // SAFETY: the last element of each matrix is inside its slice.
    unsafe {
        matrixmultiply::dgemm(
            m,
            k,
            n,
            scale,
            a.as_ptr(),
            a_row,
            a_column,
            b.as_ptr(),
            b_row,
            b_column,
            0.0,
            c.as_mut_ptr(),
            n as isize,
            1,
        );
    }
    c
}
