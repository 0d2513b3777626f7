//! The project's own chores, as `cargo xtask <command>`: no shell scripts to keep portable, no tool to install.

// A command-line tool talks on stdout.
#![allow(clippy::print_stdout)]

mod bench_matrix;
mod cargo;
mod ci;
mod examples;
mod gpu_bundle;
mod imports;
mod kernels;
mod lex;
mod modules;
mod report;
mod rules;
mod setup;
mod tidy;
mod tree;

use std::process::{Command, ExitCode};

use anyhow::{Context, Result, bail};

use cargo::root;

const HELP: &str = "\
cargo xtask tidy              the rules of ARCHITECTURE.md, checked
cargo xtask ci [--only STEP] [--list]
                              everything that has to pass before a change goes in
cargo xtask test [ARGS...]    the README's test command, with ARGS added to it
cargo xtask setup [--only FEATURE,...] [--check]
                              what the native backends need, on Debian and Ubuntu; --check only reports
cargo xtask examples          build and run every package of examples/, and check what each pulls in
cargo xtask kernels [--check] the CUDA kernels into the PTX beside them; --check only compares
cargo xtask bench-matrix [--quick] [--model M] [--photos P] [--images N] [--samples N] [--passes N] [--out DIR] [--name NAME]
                              the whole pipeline under every backend that this machine can run: a CSV file and a table
cargo xtask gpu-bundle [--check] [--slim] [--features LIST]
                              the CUDA check for a machine with a GPU and no Rust: an archive; --check tests its scripts
cargo xtask report [--photos P]
                              the example report, measured anew: every experiment, about a quarter of an hour
cargo xtask goldens [ARGS...] remake tests/fixtures and examples/photos from ../shared/data";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match run(&args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: &[String]) -> Result<()> {
    let (command, rest) = args.split_first().map_or(("help", args), |(first, rest)| (first.as_str(), rest));
    match command {
        "tidy" => tidy::run(&root()),
        "ci" => ci::run(&root(), rest),
        "test" => ci::test(&root(), rest),
        "setup" => setup::run(&root(), rest),
        "examples" => examples::run(&root()),
        "kernels" => kernels::run(&root(), rest),
        "gpu-bundle" => gpu_bundle::run(&root(), rest),
        "bench-matrix" => bench_matrix::run(&root(), rest),
        "report" => report::run(&root(), rest),
        "goldens" => goldens(rest),
        "help" | "--help" | "-h" => {
            println!("{HELP}");
            Ok(())
        }
        other => bail!("there is no command '{other}'\n\n{HELP}"),
    }
}

fn goldens(args: &[String]) -> Result<()> {
    let mut command = Command::new("python3");
    command.current_dir(root()).arg("tests/fixtures/make.py").args(args);
    let status = command.status().context("cannot start python3 (needs numpy and Pillow 13)")?;
    if !status.success() {
        bail!("tests/fixtures/make.py failed ({status})");
    }
    Ok(())
}
