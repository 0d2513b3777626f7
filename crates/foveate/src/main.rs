//! The `foveate` command line: parses arguments, calls the library, and returns one readable error chain and an exit
//! code.

mod cli;

use std::process::ExitCode;

fn main() -> ExitCode {
    cli::main()
}
