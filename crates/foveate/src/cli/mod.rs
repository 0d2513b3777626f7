//! The command line. Each subcommand is one module with one `run`. This module parses, dispatches, and turns the
//! results into exit codes.

// A failed print panics there; `console` prints.
#![warn(clippy::print_stderr)]

mod args;
mod bench;
mod budget;
mod call;
mod check;
mod checkout;
mod config;
mod console;
mod diagnose;
mod doctor;
mod dry_run;
mod embed;
#[cfg(feature = "text")]
mod embed_text;
mod enqueue;
mod exit;
mod foreign;
mod inspect;
mod job;
mod lab;
mod lab_args;
mod labels;
mod list;
mod measured_run;
mod memory;
mod merge;
mod merge_args;
mod own_file;
mod pack;
mod pack_args;
mod plan;
mod plan_args;
mod profile;
mod progress;
mod queue;
mod remedy;
mod report;
#[cfg(feature = "search")]
mod search;
#[cfg(feature = "search")]
mod search_args;
mod serve;
mod service;
mod service_args;
mod side_table;
mod summary;
mod tables;
#[cfg(feature = "text")]
mod texts;
mod trace;
mod tune;
mod verify;
#[cfg(all(feature = "search", feature = "text"))]
mod words_args;
mod worker;

use std::ffi::OsString;
use std::io::Write;

use clap::{CommandFactory, Parser};
use foveate::core::catches_panics;

use args::{Cli, Command};
use exit::{Exit, Usage};

pub use call::EmbedCall;

/// Runs the command line `args`, the program's name first. Prints its errors and returns the exit code. Handles
/// signals from then on. Ends the process for `--help`, `--version` and arguments that cannot be parsed.
pub fn main(args: Vec<OsString>) -> u8 {
    silence_caught_panics();
    let done = config::expand(args).map_err(|error| Usage::from(error).into());
    let done = done.map(Cli::parse_from).and_then(|cli| run(cli.command));
    let exit = done.unwrap_or_else(|error| {
        remedy::tell(Usage::unwrap(&error));
        Exit::of(&error)
    });
    exit.code()
}

/// Silences the messages of panics that are caught. A decoder's panic on a bad image is recorded as that image's
/// failure; the default message would only break up the progress display.
pub fn silence_caught_panics() {
    let default = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        if !catches_panics() {
            default(panic);
        }
    }));
}

fn run(command: Command) -> anyhow::Result<Exit> {
    check::command(&command)?;
    match command {
        Command::Embed(args) => embed::run(&args),
        #[cfg(feature = "text")]
        Command::EmbedText(args) => embed_text::run(&args),
        Command::Pack(args) => pack::run(&args),
        Command::Verify(args) => verify::run(&args),
        Command::Inspect(args) => inspect::run(&args),
        Command::Merge(args) => merge::run(&args),
        #[cfg(feature = "search")]
        Command::Neighbors(args) => search::neighbors(&args),
        #[cfg(feature = "search")]
        Command::Duplicates(args) => search::duplicates(&args),
        #[cfg(feature = "search")]
        Command::Similar(args) => search::similar(&args),
        #[cfg(feature = "search")]
        Command::Clusters(args) => search::clusters(&args),
        #[cfg(feature = "search")]
        Command::Sample(args) => search::sample(&args),
        #[cfg(all(feature = "search", feature = "text"))]
        Command::Label(args) => search::label(&args),
        #[cfg(all(feature = "search", feature = "text"))]
        Command::Align(args) => search::align(&args),
        #[cfg(feature = "search")]
        Command::Eval(args) => search::eval(&args),
        Command::Profile(args) => profile::run(&args),
        Command::Bench { experiment } => bench::run(&experiment),
        Command::Diagnose(args) => diagnose::run(&args),
        Command::Tune(args) if args.has_drift_budget() => budget::run(&args),
        Command::Tune(args) => tune::run(&args),
        Command::Report(args) => report::run(&args),
        Command::Plan(args) => plan::run(&args),
        Command::Worker(args) => worker::run(&args),
        Command::Enqueue(args) => enqueue::run(&args),
        Command::Queue { command } => queue::run(&command),
        Command::Serve(args) => serve::run(&args),
        Command::Backends(args) => list::backends(&args),
        Command::Doctor(args) => doctor::run(&args),
        Command::Models(args) => list::models(&args),
        Command::Completions { shell } => {
            // clap_complete panics if it cannot write, so it writes to memory.
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), "foveate", &mut script);
            console::stdout().write_all(&script)?;
            Ok(Exit::Complete)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    /// clap wraps longer lines within a command or a table.
    #[test]
    fn examples_and_exit_codes_fit_a_terminal() {
        for command in Cli::command().get_subcommands().filter(|command| command.get_after_help().is_some()) {
            let help = command.get_after_help().unwrap().to_string();
            let indented: Vec<&str> = help.lines().filter(|line| line.starts_with("  ")).collect();
            assert!(!indented.is_empty(), "{}: {help}", command.get_name());
            let long: Vec<_> = indented.iter().filter(|line| line.chars().count() > 79).collect();
            assert!(long.is_empty(), "{}: {long:?}", command.get_name());
        }
    }
}
