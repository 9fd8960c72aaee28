//! Every interleaving and every order in which memory may become visible.

use loom::sync::Arc;
use loom::thread;

use super::tests::{stripes, sums};
use super::*;
use crate::explore::{crowd, explore};

/// Two threads and one stripe that is not shared: either has it after the other, or one finds it
/// taken.
#[test]
fn no_block_is_forgotten_when_a_stripe_changes_hands() {
    explore(3, || {
        let stripes = Arc::new(stripes(2, crowd()));
        let run = |bytes: u64| {
            let stripes = Arc::clone(&stripes);
            move || {
                let (tally, claim) = (Tally::new(&stripes), Claim::none());
                for _ in 0..2 {
                    tally.add(&claim, Sort::Free, (Layer::Device, 0), bytes);
                    tally.release(&claim);
                }
            }
        };
        let other = thread::spawn(run(10));
        run(100)();
        other.join().unwrap();
        assert_eq!(sums(&stripes, Layer::Device, 0), [0, 0, 4, 220]);
    });
}
