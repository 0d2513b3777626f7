//! The commit that this program was built from.

use std::path::Path;
use std::process::Command;
use std::time::SystemTime;

/// Names the commit in place of the checkout, for a program that was copied away from it (the CUDA check's archive).
const VARIABLE: &str = "FOVEATE_COMMIT";
/// Files that a build depends on.
const SOURCES: [&str; 4] = ["crates", "models", "Cargo.toml", "Cargo.lock"];

/// Returns the first 12 digits of the commit that this program was built from, with `+` if the sources differed from
/// it: if git sees a change now, or if a source is younger than the program. Empty for a program that does not lie in
/// its own checkout's build folder, such as an installed one.
///
/// It is asked for when something is measured and not compiled in, since a build script would have to compile the
/// program again after each commit, and would not notice a change that is not committed.
pub(crate) fn commit() -> String {
    if let Ok(commit) = std::env::var(VARIABLE) {
        return commit;
    }
    let Ok(program) = std::env::current_exe() else { return String::new() };
    let Some(root) = program.ancestors().find(|folder| folder.join("crates/foveate/Cargo.toml").is_file()) else {
        return String::new();
    };
    let Some(head) = git(root, &["rev-parse", "--short=12", "HEAD"]) else { return String::new() };
    let changed = git(root, &[&["status", "--porcelain", "--"], &SOURCES[..]].concat());
    let differs = changed.is_none_or(|changed| !changed.is_empty()) || is_older(&program, root);
    format!("{}{}", head.trim(), if differs { "+" } else { "" })
}

fn git(root: &Path, args: &[&str]) -> Option<String> {
    let output =
        Command::new("git").arg("-C").arg(root).args(args).output().ok().filter(|output| output.status.success());
    output.and_then(|output| String::from_utf8(output.stdout).ok())
}

/// Returns true if a source was written after the program.
fn is_older(program: &Path, root: &Path) -> bool {
    let sources = git(root, &[&["ls-files", "-z", "--"], &SOURCES[..]].concat()).unwrap_or_default();
    let built = modified(program);
    sources.split_terminator('\0').any(|path| modified(&root.join(path)) > built)
}

fn modified(path: &Path) -> Option<SystemTime> {
    path.metadata().and_then(|metadata| metadata.modified()).ok()
}
