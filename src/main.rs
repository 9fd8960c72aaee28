//! The command `gpushim`.

use std::process::ExitCode;

fn main() -> ExitCode {
    gpushim_command::command::main()
}
