//! sink-parquet (under construction).
