//! Runs the README's commands as they are written.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::cargo::{python_runs, shell, succeed};

/// The beginning of the quick start's command, which builds the program.
const BUILD_AND_RUN: &str = "cargo run --release --";

/// Runs the quick start's command and verifies its output. With `program`, which was built before, nothing is built.
pub(crate) fn quickstart(root: &Path, program: Option<&Path>) -> Result<()> {
    let mut command = command(root, "quickstart")?;
    if let Some(program) = program {
        command = command.replacen(BUILD_AND_RUN, &program.display().to_string(), 1);
    }
    let output = output_of(&command)?;
    println!("{command}");
    // A second run would only say that the output is complete.
    let _ = fs::remove_file(root.join(output));
    succeed(as_newcomer(&mut shell(root, &command)))?;
    let photos = fs::read_dir(root.join("examples/photos"))?.count();
    verify_parquet(root, output, photos)
}

/// Removes what a check sets for its own commands: a target folder with other features, resources that tests require.
pub(crate) fn as_newcomer(command: &mut Command) -> &mut Command {
    command.env_remove("CARGO_TARGET_DIR").env_remove("FOVEATE_REQUIRE")
}

/// The file after `-o` in a command line.
fn output_of(command: &str) -> Result<&str> {
    let mut words = command.split_whitespace();
    words.find(|word| *word == "-o").and_then(|_| words.next()).context("the README's first command has no -o FILE")
}

/// Reads the file with pyarrow if it is installed; otherwise checks that the Parquet file is complete.
fn verify_parquet(root: &Path, path: &str, rows: usize) -> Result<()> {
    let data = fs::read(root.join(path)).with_context(|| format!("the command left no {path}"))?;
    ensure!(data.starts_with(b"PAR1") && data.ends_with(b"PAR1"), "{path} is not a complete Parquet file");
    if !python_runs("import pyarrow") {
        println!("{path}: a complete Parquet file (no pyarrow here to read it with)");
        return Ok(());
    }
    const READ: &str = "import sys, math, pyarrow.parquet as pq
table = pq.read_table(sys.argv[1])
rows, vectors = table.num_rows, table.column('embedding').to_pylist()
assert rows == int(sys.argv[2]), f'{rows} rows, expected {sys.argv[2]}'
assert all(len(v) == 384 and all(map(math.isfinite, v)) for v in vectors), 'vectors are not 384 finite numbers'
assert len(set(map(tuple, vectors))) == rows, 'two photos have the same vector'
print(f'{sys.argv[1]}: {rows} rows of 384 finite, distinct vectors, read by pyarrow')";
    succeed(Command::new("python3").current_dir(root).args(["-c", READ, path, &rows.to_string()]))
}

/// A command of the README.
pub(crate) fn command(root: &Path, name: &str) -> Result<String> {
    block(&fs::read_to_string(root.join("README.md"))?, name, "sh")
}

/// A program of the README in Python.
pub(crate) fn program(root: &Path, name: &str) -> Result<String> {
    block(&fs::read_to_string(root.join("README.md"))?, name, "python")
}

/// The block in `language` that follows `<!-- ci:NAME -->`.
fn block(readme: &str, name: &str, language: &str) -> Result<String> {
    let marker = format!("<!-- ci:{name} -->");
    let after = readme.split_once(&marker).with_context(|| format!("README.md has no {marker}"))?.1;
    let block = after.trim_start().strip_prefix(&format!("```{language}\n")).and_then(|rest| rest.split_once("\n```"));
    let (command, _) = block.with_context(|| format!("no {language} block follows {marker} in README.md"))?;
    Ok(command.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_come_from_the_readme() {
        let readme =
            "x\n<!-- ci:quickstart -->\n```sh\ncargo run -- embed a \\\n  -o b.parquet\n```\n<!-- ci:test -->\nprose\n";
        let command = block(readme, "quickstart", "sh").unwrap();
        assert_eq!(command, "cargo run -- embed a \\\n  -o b.parquet");
        assert_eq!(output_of(&command).unwrap(), "b.parquet");
        assert!(block(readme, "test", "sh").unwrap_err().to_string().contains("no sh block"));
        assert!(block(readme, "other", "sh").is_err());
    }

    #[test]
    fn this_readme_has_what_is_run() {
        let of = |name| command(&crate::cargo::root(), name).unwrap();
        assert!(of("quickstart").starts_with(BUILD_AND_RUN));
        assert_eq!(of("test"), "cargo xtask test");
        assert!(program(&crate::cargo::root(), "python").unwrap().starts_with("import foveate"));
    }

    #[test]
    fn a_parquet_file_cut_short_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("cut.parquet"), b"PAR1 and then nothing").unwrap();
        let error = verify_parquet(dir.path(), "cut.parquet", 1).unwrap_err();
        assert!(error.to_string().contains("not a complete Parquet file"), "{error}");
    }
}
