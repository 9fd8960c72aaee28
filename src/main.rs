//! The `gpushim` command's entry point.

use std::process::ExitCode;

fn main() -> ExitCode {
    gpushim_command::command::main()
}
