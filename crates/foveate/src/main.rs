//! The `foveate` command line: parses arguments, calls the library, and returns one readable error chain and an exit
//! code.

// A failed print panics there; `cli::console` prints.
#![warn(clippy::print_stderr)]

mod cli;

use std::process::ExitCode;

fn main() -> ExitCode {
    cli::main()
}
