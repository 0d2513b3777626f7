//! The `foveate` command line: arguments in, library calls, one readable error chain and an exit code out.

mod cli;

use std::process::ExitCode;

fn main() -> ExitCode {
    cli::main()
}
