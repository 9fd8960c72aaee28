//! `gpushim replay`: serves a run's requests with other allocators.

use super::text::ReplayReport;
use crate::cli::common_args::{CommonArgs, size};
use crate::cli::outcome::Outcome;
use crate::cli::progress::Steps;
use crate::error::{Result, failed};
use gpushim_alloc::Reuse;
use gpushim_simulate::replay::{self, Policy, ReplayDevice};

/// Serve the requests of a recording again with other allocators, without a GPU, and show the memory
/// and the driver calls of each.
///
/// The policies of gpushim are the code of the shim; the others are models made from their
/// documentation. For a PyTorch snapshot, torch uses the recorded options, and waits for streams as
/// recorded. Times are those of driver calls on an H100. Exit code 1 if an allocator runs out of
/// memory.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  gpushim replay train.trace
  gpushim replay --policy vmm,torch --limit 40G snapshot.pickle
  gpushim replay --least-limit --policy vmm,torch snapshot.pickle")]
pub struct Args {
    #[command(flatten)]
    common: CommonArgs,
    /// Allocators, separated by commas: vmm (or auto, which means the same), blocks, torch, torch-expandable,
    /// torch-elastic, rmm-pool, rmm-arena, bfc. All if none is named.
    #[arg(long, value_name = "POLICY", value_delimiter = ',')]
    policy: Vec<Policy>,
    /// The memory of the device, such as 40G.
    #[arg(long, value_name = "BYTES", value_parser = size)]
    limit: Option<u64>,
    /// Also find the least limit at which each allocator still serves all requests, by up to 20
    /// more replays of each.
    #[arg(long)]
    least_limit: bool,
    /// Value of GPUSHIM_REUSE: order, wait or strict.
    #[arg(long, value_name = "WAY", value_parser = reuse, default_value = "order")]
    reuse: Reuse,
    /// Value of GPUSHIM_PAGE, for vmm.
    #[arg(long, value_name = "BYTES", value_parser = size, default_value = "2M")]
    page: u64,
    /// Value of GPUSHIM_DECAY, by the recording's clock.
    #[arg(long, value_name = "TIME", value_parser = decay, default_value = "10s")]
    decay: u64,
    /// By how many requests the GPU is behind the program: a block that was freed fewer requests
    /// ago is still in use on the GPU, and gpushim's pools order its next use after that, or take
    /// another block. Recordings have no times of GPU work; 0 assumes that it is done at once.
    #[arg(long, value_name = "N", default_value_t = 0)]
    lag: u64,
}

pub fn main(args: &Args) -> Result<Outcome> {
    let policies = if args.policy.is_empty() {
        &Policy::ALL
    } else {
        args.policy.as_slice()
    };
    let device = ReplayDevice {
        limit: args.limit,
        lag: args.lag,
        reuse: args.reuse,
        page: args.page,
        decay: args.decay,
        ..ReplayDevice::default()
    };
    args.common.each(|recording, focus| {
        let bar = Steps::new();
        let mut watch = |policy: Policy, done, all| bar.show(policy.name(), done, all);
        let how = (policies, &device, args.least_limit);
        let report = ReplayReport::of(recording, focus, how, &mut watch);
        bar.clear();
        report
    })
}

fn decay(text: &str) -> Result<u64> {
    replay::decay(text).ok_or_else(|| failed!("expected a time like 500ms or 2m, or off"))
}

fn reuse(text: &str) -> Result<Reuse> {
    Reuse::parse(text).ok_or_else(|| failed!("expected order, wait or strict"))
}
