//! The suite that every source passes.
