//! `gpushim completions`: the script with which a shell completes this command.

use std::io;

use clap::CommandFactory;
use clap_complete::Shell;

use super::Cli;
use crate::cli::outcome::Outcome;
use crate::error::Result;

/// Print a script that completes subcommands and options in a shell.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  gpushim completions bash > ~/.local/share/bash-completion/completions/gpushim
  gpushim completions zsh > ~/.zfunc/_gpushim
  gpushim completions fish > ~/.config/fish/completions/gpushim.fish")]
pub struct Args {
    /// The shell.
    #[arg(value_enum)]
    shell: Shell,
}

pub fn main(args: &Args) -> Result<Outcome> {
    // Into memory first: a closed pipe must not be a panic.
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "gpushim", &mut script);
    io::Write::write_all(&mut io::stdout().lock(), &script)?;
    Ok(Outcome::Fine)
}
