//! The suite that every resizer passes.
