//! pipeline (under construction).
