/// Reason that a search cannot be made, or was ended.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SearchError {
    /// The numbers are not rows of vectors.
    #[error("{len} numbers are not rows of {dim}")]
    Shape {
        /// Count of numbers.
        len: usize,
        /// Numbers of a row.
        dim: usize,
    },
    /// Rows are numbered with 32 bits.
    #[error("{0} rows are more than 4,294,967,295; split them")]
    TooMany(usize),
    /// Vectors that are compared have the same width and metric.
    #[error("queries of {queries} dimensions cannot be compared with vectors of {vectors}")]
    Dimensions {
        /// Width of a query.
        queries: usize,
        /// Width of a vector.
        vectors: usize,
    },
    /// Each row has a label, or none.
    #[error("{labels} labels are not those of {rows} rows")]
    Labels {
        /// Count of labels.
        labels: usize,
        /// Count of rows.
        rows: usize,
    },
    /// More pairs than [`Search::most_pairs`](crate::Search::most_pairs).
    #[error("more than {0} pairs reach the threshold; raise it")]
    TooManyPairs(usize),
    /// The caller said so.
    #[error("the search was interrupted")]
    Cancelled,
}
