//! A context ends while another thread is given its addresses.

use crate::pool::sim::Sim;
use crate::pool::{Context, FreeError, Policy, Pool, Settings};

const MIB: u64 = 1 << 20;
const OTHER: Context = Context(1);
const DOOMED: Context = Context(2);

fn each(test: impl Fn(&Pool<Sim>)) {
    for policy in [Policy::Blocks, Policy::Segments, Policy::Bins] {
        let sim = Sim::new(1 << 30);
        sim.add_context(OTHER, 0);
        sim.add_context(DOOMED, 0);
        let settings = Settings {
            policy,
            margin: Some(0),
            ..Settings::default()
        };
        test(&Pool::new(sim, settings));
    }
}

#[test]
fn addresses_of_a_context_that_ends_are_another_s_at_once() {
    each(|pool| {
        let live = pool.allocate(DOOMED, 3 * MIB).unwrap().address;
        let cached = pool.allocate(DOOMED, 5 * MIB).unwrap().address;
        pool.free(cached, |_| ()).unwrap();
        pool.context_leaves(DOOMED);
        for address in [live, cached] {
            assert_eq!(pool.free(address, |_| ()), Err(FreeError::Unknown));
            assert!(pool.find(address).is_none());
        }
        // The driver has ended the context: the lowest address is the first that it hands out again.
        pool.device().destroy_context(DOOMED);
        let again = pool.allocate(OTHER, 40 * MIB).unwrap().address;
        assert_eq!(again, live, "the same address, for the test's sake");
        let gone = pool.context_gone(DOOMED);
        assert_eq!(gone.live, [live]);
        assert_eq!(pool.find(again), Some((again, 40 * MIB)));
        assert_eq!(pool.stats(None).live, 1);
        pool.free(again, |_| ()).unwrap();
    });
}

#[test]
fn a_context_that_stays_has_its_blocks_back() {
    each(|pool| {
        let first = pool.allocate(DOOMED, 3 * MIB).unwrap().address;
        let second = pool.allocate(DOOMED, 3 * MIB).unwrap().address;
        pool.free(second, |_| ()).unwrap();
        let before = pool.stats(None);
        pool.context_leaves(DOOMED);
        pool.context_stays(DOOMED);
        assert_eq!(pool.find(first), Some((first, 3 * MIB)));
        assert_eq!(pool.stats(None), before);
        pool.free(first, |_| ()).unwrap();
        assert!(pool.trim(None, 0) >= 6 * MIB);
        assert_eq!(pool.device().findings(), Vec::<String>::new());
    });
}
