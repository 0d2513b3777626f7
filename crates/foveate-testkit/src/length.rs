//! How long tests may take.

/// `full` where the environment says `FOVEATE_TESTS=full`, as `cargo xtask ci --full` does, else `short`. For what
/// repetition makes surer: kills, messages under load, orders of a device's work.
pub fn by_length<T>(short: T, full: T) -> T {
    if std::env::var_os("FOVEATE_TESTS").is_some_and(|form| form == "full") { full } else { short }
}
