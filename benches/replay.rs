//! Replays: requests served per second, by policy and by how many blocks are live.

use divan::counter::ItemsCount;
use divan::{Bencher, black_box};
use gpushim_alloc as alloc;
use gpushim_command::replay::{Policy, ReplayDevice, run};
use gpushim_command::requests::Requests;
use gpushim_command::requests::made::{Shape, churn, generate};

fn main() {
    divan::main();
}

const VMM: Policy = Policy::Gpushim(alloc::Policy::Vmm);

fn replay(bencher: Bencher, policy: Policy, requests: &Requests) {
    let device = ReplayDevice::default();
    bencher
        .counter(ItemsCount::new(requests.len()))
        .with_inputs(|| policy.build(&device, requests))
        .bench_local_values(|mut allocator| black_box(run(requests, &mut *allocator)));
}

/// Replays a thousand blocks of repeated frees and allocations, beside blocks that stay. `live` is
/// the sum of both.
#[divan::bench(args = [1_000, 10_000, 100_000], sample_count = 5)]
fn vmm_by_live_blocks(bencher: Bencher, live: u32) {
    replay(bencher, VMM, &churn(1, live, 1000, 1_000_000));
}

/// Replays blocks that are freed in random order: each operation needs memory that no cache has.
#[divan::bench(args = [1_000, 10_000, 100_000], sample_count = 5)]
fn vmm_by_live_blocks_at_random(bencher: Bencher, live: u32) {
    replay(bencher, VMM, &churn(1, live, live, 1_000_000));
}

/// A training of which each iteration is alike, by policy.
#[divan::bench(args = ["vmm", "blocks", "torch", "torch-expandable", "rmm-pool",
    "rmm-arena", "bfc"], sample_count = 5)]
fn training(bencher: Bencher, policy: &str) {
    let policy = policy.parse().expect("a policy");
    replay(bencher, policy, &shape(false));
}

/// Iterations of different lengths.
#[divan::bench(sample_count = 5)]
fn vmm_of_different_lengths(bencher: Bencher) {
    replay(bencher, VMM, &shape(true));
}

fn shape(varies: bool) -> Requests {
    generate(&Shape {
        layers: 48,
        steps: 2000,
        varies,
        ..Shape::default()
    })
}
