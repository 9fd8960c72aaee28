//! `gpushim replay`: what would other allocators have done with a run?

use std::path::PathBuf;

use anyhow::Result;

use super::device::Device;
use super::plot::write_replay_svg;
use super::policy::{self, Policy};
use super::text::ReplayReport;
use crate::cli::common_args::CommonArgs;
use crate::cli::outcome::Outcome;
use crate::cli::progress::Bar;
use crate::cli::write::write_whole;
use crate::output::finding::Finding;
use crate::recording::Recording;
use crate::timeline::columns;
use gpushim_alloc::Reuse;
use gpushim_config::size;

/// Serve the requests of a recording once more with other allocators, without a GPU, and tell what each would
/// have held and asked of the driver.
///
/// The policies of gpushim are the code that runs in the shim; the others are made from what is documented of
/// them. Of a PyTorch snapshot, torch follows the options that were set then, and waits for streams as it was recorded.
/// Times are those that the driver's calls take on an H100. Exit code 1 if one of them runs out of memory.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  gpushim replay train.trace
  gpushim replay --policy vmm,torch --limit 40G snapshot.pickle
  gpushim replay --policy vmm,torch --plot train.trace
  gpushim replay --svg policies.svg train.trace")]
pub struct Args {
    #[command(flatten)]
    common: CommonArgs,
    /// Allocators, separated by commas: auto, vmm, segments, blocks, bins, plan, torch,
    /// torch-expandable, rmm-pool, rmm-arena, bfc. All if none is named.
    #[arg(long, value_name = "POLICY", value_delimiter = ',')]
    policy: Vec<Policy>,
    /// The most memory that can be held, such as 40G.
    #[arg(long, value_name = "BYTES", value_parser = bytes)]
    limit: Option<u64>,
    /// As GPUSHIM_REUSE: order, wait or strict.
    #[arg(long, value_name = "WAY", value_parser = reuse, default_value = "order")]
    reuse: Reuse,
    /// As GPUSHIM_PAGE, of vmm.
    #[arg(long, value_name = "BYTES", value_parser = bytes, default_value = "2M")]
    page: u64,
    /// As GPUSHIM_DECAY, in the time of the recording.
    #[arg(long, value_name = "TIME", value_parser = decay, default_value = "10s")]
    decay: u64,
    /// How many requests the work of the GPU is behind the program: a block that was freed fewer requests ago is still
    /// in use there, and a pool of gpushim orders what comes next after that, or takes another. Recordings do not say
    /// when work was done; 0 takes it to be done at once.
    #[arg(long, value_name = "N", default_value_t = 0)]
    lag: u64,
    /// Draw what each policy holds over time, below the table.
    #[arg(long)]
    plot: bool,
    /// Write a picture of that into this file instead: SVG, for any browser, light and dark.
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    /// Letters of a line of the plot [default: what the terminal has].
    #[arg(long, value_name = "N")]
    width: Option<u16>,
}

pub fn main(args: &Args) -> Result<Outcome> {
    let policies = if args.policy.is_empty() {
        &Policy::ALL
    } else {
        args.policy.as_slice()
    };
    let device = Device {
        limit: args.limit,
        lag: args.lag,
        reuse: args.reuse,
        page: args.page,
        decay: args.decay,
        ..Device::default()
    };
    let mut bar = Bar::new();
    let mut look = |recording: &dyn Recording, focus| {
        let mut watch = |policy: Policy, done, all| bar.show(policy.name(), done, all);
        let report = ReplayReport::of(recording, focus, policies, &device, &mut watch);
        bar.clear();
        if args.plot {
            report.with_plot(columns(args.width))
        } else {
            report
        }
    };
    let Some(path) = &args.svg else {
        return args.common.each(look);
    };
    let (reports, outcome) = args.common.find(&mut look)?;
    if !reports.is_empty() {
        let mut text = String::new();
        write_replay_svg(&reports, &mut text)?;
        write_whole(path, |out| Ok(out.write_all(text.as_bytes())?))?;
        crate::cli::terminal::say_wrote(path);
    }
    let is_found = outcome == Outcome::Fine && reports.iter().any(Finding::is_found);
    Ok(if is_found { Outcome::Found } else { outcome })
}

fn bytes(text: &str) -> Result<u64, String> {
    size(text).ok_or_else(|| "a number of bytes, such as 512M or 40G".to_string())
}

fn decay(text: &str) -> Result<u64, String> {
    policy::decay(text).ok_or_else(|| "a time, such as 500ms or 2m, or off".to_string())
}

fn reuse(text: &str) -> Result<Reuse, String> {
    Reuse::parse(text).ok_or_else(|| "order, wait or strict".to_string())
}
