//! The project's chores, as `cargo xtask <command>`. They need no portable shell scripts and no installed tools.

// A command-line tool prints on standard output.
#![allow(clippy::print_stdout)]

mod attacks;
mod bench_matrix;
mod cargo;
mod ci;
mod clock;
mod examples;
mod faults;
mod figures;
mod gpu_bundle;
mod kernels;
mod new_backend;
mod package;
mod pixels;
mod readme;
mod release;
mod report;
mod rules;
mod selection;
mod setup;
mod test;
mod tidy;
mod tree;
mod wheel;

use std::path::Path;
use std::process::{Command, ExitCode};

use anyhow::Result;
use clap::{Parser, Subcommand};

use cargo::{root, succeed};

/// The project's own chores
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask", after_help = EXIT_CODES, subcommand_required = true)]
struct XtaskCli {
    #[command(subcommand)]
    chore: Chore,
}

const EXIT_CODES: &str = "Exit codes: 0 done, 1 a check or a command failed, 2 wrong arguments";

/// The end of a chore's help.
fn examples(chores: &[&str]) -> String {
    let lines: String = chores.iter().map(|chore| format!("\n  cargo xtask {chore}")).collect();
    format!("Examples:{lines}\n\n{EXIT_CODES}")
}

#[derive(Subcommand)]
enum Chore {
    /// Check the rules of ARCHITECTURE.md
    #[command(after_help = examples(&["tidy", "tidy --lower"]))]
    Tidy(tidy::TidyArgs),
    /// Run everything that has to pass before a change goes in
    #[command(after_help = examples(&["ci --only fmt --only tidy", "ci --full"]))]
    Ci(ci::CiArgs),
    /// Run all tests: every feature where `cargo xtask setup` ran, else the default members
    #[command(after_help = examples(&["test resume", "test -- --skip sigkill"]))]
    Test(test::TestArgs),
    /// Attack the outputs' durability: a fault at every file system call, power losses, two writers
    #[command(after_help = examples(&["faults", "faults --full --seed 7", "faults --only parquet/call/17/kill"]))]
    Faults(faults::FaultArgs),
    /// Measure what hostile jobs cost the honest jobs of a worker: a CSV file
    #[command(after_help = examples(&["attacks", "attacks --only drip --rounds 3", "attacks --soak --minutes 30"]))]
    Attacks(attacks::AttackArgs),
    /// Install what the native backends need, on Debian and Ubuntu
    #[command(after_help = examples(&["setup", "setup --only turbojpeg,ort --check"]))]
    Setup(setup::SetupArgs),
    /// Build and run every package of examples/, and check what each pulls in
    #[command(after_help = EXIT_CODES)]
    Examples,
    /// Compile the CUDA kernels into the PTX beside them
    #[command(after_help = examples(&["kernels --check"]))]
    Kernels(kernels::KernelArgs),
    /// Measure the whole pipeline under every backend of this machine: a CSV file
    #[command(after_help = examples(&["bench-matrix --quick", "bench-matrix --photos photos/ --images 256"]))]
    BenchMatrix(bench_matrix::MatrixArgs),
    /// Pack the CUDA check for a machine with a GPU and no Rust
    #[command(after_help = examples(&["gpu-bundle --slim"]))]
    GpuBundle(gpu_bundle::BundleArgs),
    /// Measure the example reports anew, and the documentation's figures from them: three quarters of an hour
    #[command(after_help = examples(&["report --photos photos/"]))]
    Report(report::MeasureArgs),
    /// Write the documentation's figures anew from the recorded files
    #[command(after_help = examples(&["figures", "figures --stale"]))]
    Figures(figures::FigureArgs),
    /// Build the Python wheel into target/wheels/
    #[command(after_help = examples(&["wheel --test", "wheel --portable"]))]
    Wheel(wheel::WheelArgs),
    /// Prepare a release, and print the commands that publish it
    #[command(after_help = examples(&["release 0.2.0"]))]
    Release(release::ReleaseArgs),
    /// Compare decoded pixels with Pillow's, on generated files of every class that decoders get wrong
    #[command(after_help = examples(&["pixels", "pixels --full --update", "pixels --seed 7"]))]
    Pixels(pixels::PixelArgs),
    /// Make tests/fixtures and examples/photos anew from ../shared/data (needs numpy and Pillow 13)
    #[command(after_help = EXIT_CODES)]
    Goldens {
        /// Arguments of tests/fixtures/make.py
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        args: Vec<String>,
    },
}

fn main() -> ExitCode {
    match run(&XtaskCli::parse().chore, &root()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(chore: &Chore, root: &Path) -> Result<()> {
    match chore {
        Chore::Tidy(args) => tidy::run_with(root, args),
        Chore::Ci(args) => ci::run(root, args),
        Chore::Test(args) => test::run(root, args),
        Chore::Faults(args) => faults::run(root, args),
        Chore::Attacks(args) => attacks::run(root, args),
        Chore::Setup(args) => setup::run(root, args),
        Chore::Examples => examples::run(root),
        Chore::Kernels(args) => kernels::run(root, args),
        Chore::BenchMatrix(args) => bench_matrix::run(root, args),
        Chore::GpuBundle(args) => gpu_bundle::run(root, args),
        Chore::Report(args) => report::run(root, args),
        Chore::Figures(args) => figures::run(root, args),
        Chore::Wheel(args) => wheel::run(root, args),
        Chore::Release(args) => release::run(root, args),
        Chore::Pixels(args) => pixels::run(root, args),
        Chore::Goldens { args } => {
            succeed(Command::new("python3").current_dir(root).arg("tests/fixtures/make.py").args(args))
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_consistent_and_every_chore_has_help() {
        let mut cli = XtaskCli::command();
        cli.build();
        cli.clone().debug_assert();
        for chore in cli.get_subcommands_mut().filter(|chore| chore.get_name() != "help") {
            let help = chore.render_help().to_string();
            assert!(help.contains("Exit codes:") && chore.get_about().is_some(), "{help}");
        }
    }
}
