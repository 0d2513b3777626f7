//! The `foveate` command line, which is [`foveate::cli`].

use std::process::ExitCode;

fn main() -> ExitCode {
    foveate::cli::main(std::env::args_os().collect()).into()
}
