use matrixmultiply::dgemm;

/// Computes `out = a · bᵀ` of row-major matrices: `a` is `[m, dim]`, `b` `[n, dim]` and `out` `[m, n]`. A product has
/// the same bits in any block of rows.
pub(crate) fn multiply(a: &[f64], b: &[f64], out: &mut [f64], dim: usize) {
    let m = a.len() / dim;
    let n = b.len() / dim;
    assert_eq!(out.len(), m * n);
    let dim_stride = dim as isize;
    // SAFETY: with these sizes and strides, `a` and `b` are read, and `out` is written, within their slices.
    #[allow(unsafe_code)]
    unsafe {
        dgemm(
            m,
            dim,
            n,
            1.0,
            a.as_ptr(),
            dim_stride,
            1,
            b.as_ptr(),
            1,
            dim_stride,
            0.0,
            out.as_mut_ptr(),
            n as isize,
            1,
        );
    }
}
