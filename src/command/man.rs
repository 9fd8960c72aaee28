//! `gpushim man`: manual pages.

use std::path::PathBuf;

use clap::CommandFactory;

use super::Cli;
use crate::cli::outcome::Outcome;
use crate::error::{Context, Result};

/// Write manual pages, one for the command and one for each subcommand.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:
  gpushim man --out ~/.local/share/man/man1")]
pub struct Args {
    /// The folder to write to; made if it is not there.
    #[arg(short, long, value_name = "DIR")]
    out: PathBuf,
}

pub fn main(args: &Args) -> Result<Outcome> {
    let shown = args.out.display();
    std::fs::create_dir_all(&args.out).context(format!("make the folder {shown}"))?;
    clap_mangen::generate_to(Cli::command().version(gpushim_version::VERSION), &args.out)
        .context(format!("write manual pages to {shown}"))?;
    Ok(Outcome::Fine)
}
