//! The stripes by themselves.

use std::sync::atomic::AtomicU64;

use super::*;

pub fn stripes<W>(count: usize, word: impl Fn() -> W) -> Vec<Stripe<W>> {
    let row = || Row {
        allocations: word(),
        allocated: word(),
        frees: word(),
        freed: word(),
    };
    let stripe = || Stripe {
        owner: word(),
        unused: std::array::from_fn(|_| word()),
        rows: std::array::from_fn(|_| row()),
    };
    (0..count).map(|_| stripe()).collect()
}

/// Allocations, bytes allocated, frees and bytes freed of a layer and device, over all stripes.
pub fn sums<W: Word>(stripes: &[Stripe<W>], layer: Layer, device: usize) -> [u64; 4] {
    let row = |stripe: &Stripe<W>| {
        let row = &stripe.rows[layer as usize * DEVICES + device];
        [&row.allocations, &row.allocated, &row.frees, &row.freed]
            .map(|word| word.load(Ordering::Relaxed))
    };
    let add = |sums: [u64; 4], more: [u64; 4]| std::array::from_fn(|at| sums[at] + more[at]);
    stripes.iter().map(row).fold([0; 4], add)
}

const ALLOC: Sort = Sort::Allocation;

#[test]
fn each_layer_and_device_has_sums_of_its_own() {
    let stripes = stripes(2, || AtomicU64::new(0));
    let (tally, claim) = (Tally::new(&stripes), Claim::none());
    let layers = [
        Layer::Tensor,
        Layer::Device,
        Layer::Managed,
        Layer::Host,
        Layer::Mapping,
    ];
    for (layer, base) in layers.into_iter().zip([1, 100, 10_000, 1 << 30, 1 << 50]) {
        for device in [0, 1, 7, 8, 255] {
            tally.add(&claim, ALLOC, (layer, device), base + u64::from(device));
            tally.add(&claim, Sort::Free, (layer, device), base);
        }
        for device in [0, 1, 7] {
            let sums = sums(&stripes, layer, device);
            assert_eq!(sums, [1, base + device as u64, 1, base]);
        }
        // 8 and 255: others, and unknown.
        assert_eq!(sums(&stripes, layer, 8), [2, 2 * base + 263, 2, 2 * base]);
        assert_eq!(sums(&stripes, layer, 2), [0; 4]);
    }
}

#[test]
fn a_stripe_serves_one_thread_after_the_other_and_keeps_what_it_holds() {
    let stripes = stripes(2, || AtomicU64::new(0));
    let tally = Tally::new(&stripes);
    let at = (Layer::Device, 0);
    let claims = [Claim::none(), Claim::none()];
    for claim in &claims {
        tally.add(claim, ALLOC, at, 5);
    }
    assert_eq!(claims.each_ref().map(|claim| claim.0.get()), [1, SHARED]);
    assert_eq!(sums(&stripes, Layer::Device, 0), [2, 10, 0, 0]);
    claims.iter().for_each(|claim| tally.release(claim));
    let third = Claim::none();
    tally.add(&third, Sort::Free, at, 3);
    assert_eq!(third.0.get(), 1);
    assert_eq!(sums(&stripes, Layer::Device, 0), [2, 10, 1, 3]);
    // Forgotten, not released: as in a forked child.
    third.forget();
    tally.add(&claims[0], ALLOC, at, 1);
    assert_eq!(claims[0].0.get(), SHARED);
}

#[test]
fn threads_that_come_and_go_add_up() {
    const ROUNDS: u64 = if cfg!(miri) { 4 } else { 2000 };
    // Fewer stripes than threads: some share.
    let stripes = stripes(3, || AtomicU64::new(0));
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let stripes = &stripes;
            scope.spawn(move || {
                let tally = Tally::new(stripes);
                for _ in 0..ROUNDS {
                    let claim = Claim::none();
                    for number in 0..10 {
                        tally.add(&claim, ALLOC, (Layer::Tensor, thread % 2), number);
                        tally.add(&claim, Sort::Free, (Layer::Tensor, thread % 2), 1);
                    }
                    tally.release(&claim);
                }
            });
        }
    });
    for device in [0, 1] {
        let blocks = 2 * ROUNDS * 10;
        let expected = [blocks, 2 * ROUNDS * 45, blocks, blocks];
        assert_eq!(sums(&stripes, Layer::Tensor, device), expected);
    }
    assert!(
        stripes
            .iter()
            .all(|stripe| Word::load(&stripe.owner, Ordering::Relaxed) == 0)
    );
}
