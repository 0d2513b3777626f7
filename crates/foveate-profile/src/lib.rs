//! profile (under construction).
