//! The command line. Each subcommand is one module with one `run`; this one parses, dispatches, and turns what comes
//! back into an exit code.

mod args;
mod bench;
mod check;
mod config;
mod diagnose;
mod doctor;
mod embed;
mod enqueue;
mod job;
mod lab;
mod lab_args;
mod list;
mod measured_run;
mod plan;
mod plan_args;
mod profile;
mod progress;
mod remedy;
mod report;
mod serve;
mod service;
mod service_args;
mod summary;
mod trace;
mod tune;
mod verify;
mod worker;

use std::process::ExitCode;

use clap::{CommandFactory, Parser};
use foveate::lab::LabError;

use args::{Cli, Command};
use check::Usage;

/// How the program ends, as documented in `--help`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    /// The job is complete; failures of single inputs, if any, are recorded.
    Complete,
    /// Something stopped the job, or kept it from starting.
    Fault,
    /// The command line cannot work; nothing was done.
    Usage,
    /// More inputs failed than was allowed, or all of them.
    Failures,
    /// Interrupted by a signal; what was finished is committed.
    Interrupted,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(match exit {
            Exit::Complete => 0,
            Exit::Fault => 1,
            // As clap does when it cannot understand the arguments.
            Exit::Usage => 2,
            Exit::Failures => 3,
            Exit::Interrupted => 130,
        })
    }
}

pub(crate) fn main() -> ExitCode {
    let done = config::expand(std::env::args_os().collect()).map_err(|error| Usage::from(error).into());
    let done = done.map(Cli::parse_from).and_then(|cli| run(cli.command));
    done.unwrap_or_else(|error| {
        tell(Usage::unwrap(&error));
        exit_of(&error)
    })
    .into()
}

/// What failed, why, and what to do: one line on standard error.
pub(crate) fn tell(error: &anyhow::Error) {
    match remedy::of(error) {
        Some(remedy) => eprintln!("error: {}; {remedy}", chain(error)),
        None => eprintln!("error: {}", chain(error)),
    }
}

fn exit_of(error: &anyhow::Error) -> Exit {
    if error.is::<Usage>() {
        return Exit::Usage;
    }
    match error.downcast_ref::<LabError>() {
        Some(LabError::Interrupted) => Exit::Interrupted,
        _ => Exit::Fault,
    }
}

fn run(command: Command) -> anyhow::Result<Exit> {
    check::command(&command)?;
    match command {
        Command::Embed(args) => embed::run(&args),
        Command::Verify(args) => verify::run(&args),
        Command::Profile(args) => profile::run(&args),
        Command::Bench { experiment } => bench::run(&experiment),
        Command::Diagnose(args) => diagnose::run(&args),
        Command::Tune(args) => tune::run(&args),
        Command::Report(args) => report::run(&args),
        Command::Plan(args) => plan::run(&args),
        Command::Worker(args) => worker::run(&args),
        Command::Enqueue(args) => enqueue::run(&args),
        Command::Serve(args) => serve::run(&args),
        Command::Backends => list::backends(),
        Command::Doctor(args) => doctor::run(&args),
        Command::Models => list::models(),
        Command::Completions { shell } => {
            clap_complete::generate(shell, &mut Cli::command(), "foveate", &mut std::io::stdout());
            Ok(Exit::Complete)
        }
    }
}

/// An error and its causes in one line, without repeating a cause that a message already contains.
pub(crate) fn chain(error: &anyhow::Error) -> String {
    let mut line = String::new();
    for cause in error.chain().map(ToString::to_string) {
        if line.is_empty() {
            line = cause;
        } else if !line.contains(&cause) {
            line = format!("{line}: {cause}");
        }
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn causes_are_told_once() {
        let error = anyhow::anyhow!("disk full").context("cannot write x: disk full").context("run failed");
        assert_eq!(chain(&error), "run failed: cannot write x: disk full");
    }
}
