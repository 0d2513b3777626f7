//! The length of tests.

/// Returns `full` if the environment has `FOVEATE_TESTS=full`, as in `cargo xtask ci --full`, otherwise `short`. It is
/// for tests that gain from repetition: kills, messages under load, orders of a device's work.
pub fn by_length<T>(short: T, full: T) -> T {
    if std::env::var_os("FOVEATE_TESTS").is_some_and(|form| form == "full") { full } else { short }
}
