//! `gpushim replay`: what would other allocators have done with a run?

use anyhow::Result;
use gpushim_core::config::size;
use gpushim_core::pool::Reuse;
use gpushim_core::replay::{Device, Policy};
use gpushim_core::report::replay::ReplayReport;

use super::Outcome;
use super::asked::Asked;

/// Serve the requests of a recording once more with other allocators, without a GPU, and tell what each would
/// have held and asked of the driver.
///
/// The policies of gpushim are the code that runs in the shim; the others are made from what is documented of
/// them. Times are those that the driver's calls take on an H100. Exit code 1 if one of them runs out of memory.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  gpushim replay train.trace
  gpushim replay --policy vmm,torch --limit 40G snapshot.pickle")]
pub struct Args {
    #[command(flatten)]
    asked: Asked,
    /// Allocators, separated by commas: vmm, segments, blocks, bins, torch, torch-expandable, rmm-pool, rmm-arena,
    /// bfc. All if none is named.
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
    /// How many requests the work of the GPU is behind the program.
    #[arg(long, value_name = "N", default_value_t = 0)]
    lag: u64,
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
        ..Device::default()
    };
    args.asked
        .each(|recording, focus| ReplayReport::of(recording, focus, policies, &device))
}

fn bytes(text: &str) -> Result<u64, String> {
    size(text).ok_or_else(|| "a number of bytes, such as 512M or 40G".to_string())
}

fn reuse(text: &str) -> Result<Reuse, String> {
    match text {
        "order" => Ok(Reuse::Order),
        "wait" => Ok(Reuse::Wait),
        "strict" => Ok(Reuse::Strict),
        _ => Err("order, wait or strict".to_string()),
    }
}
