//! The libtorch that this process runs with.

use std::path::{Path, PathBuf};

/// The folder of the libtorch that is loaded into this process; known on Linux.
pub(crate) fn library_folder() -> Option<PathBuf> {
    let maps = std::fs::read_to_string("/proc/self/maps").ok()?;
    let path = maps.lines().filter_map(|line| line.find('/').map(|at| Path::new(&line[at..])));
    let mut core = path.filter(|path| path.file_name().is_some_and(|name| name == "libtorch_cpu.so"));
    core.next()?.parent().map(Path::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_the_library_in_use() {
        assert!(library_folder().unwrap().join("libtorch_cpu.so").is_file());
    }
}
