//! Eight threads at once.

use super::probe::Probe;
use crate::device_pool::Settings;
use crate::handles::Context;
use crate::sim::DeviceSim;
use std::thread;

/// Xorshift: the same numbers in each run.
fn next(state: &mut u64) -> usize {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    (*state >> 11) as usize
}

#[test]
fn a_storm() {
    let operations = if cfg!(miri) { 20 } else { 3000 };
    let sim = DeviceSim::new(1 << 30);
    let contexts = [(Context(1), 0), (Context(2), 0), (Context(3), 1)];
    contexts
        .iter()
        .for_each(|(context, device)| sim.add_context(*context, *device));
    let pool = Probe::pool(
        sim,
        Settings {
            margin: Some(0),
            ..Settings::default()
        },
    );
    contexts
        .iter()
        .for_each(|(context, _)| pool.context_known(*context));
    pool.peer_enabled(Context(3), Context(1));
    thread::scope(|scope| {
        for seed in 1..=8u64 {
            let pool = &pool;
            scope.spawn(move || {
                let sim = &pool.device().sim;
                let (mut random, mut live) = (seed.wrapping_mul(0x9E37_79B9_7F4A_7C15), Vec::new());
                for _ in 0..operations {
                    let (context, _) = contexts[next(&mut random) % 3];
                    match next(&mut random) % 20 {
                        0..10 if live.len() < 40 => {
                            let bytes = 1 << (next(&mut random) % 14 + 9);
                            let grant = pool.allocate(context, bytes).expect("memory");
                            let number = sim.granted(grant.address, grant.size);
                            let piece = (grant.address, grant.size, number);
                            sim.launch(context, &[piece]);
                            live.push((context, piece));
                        }
                        18 => sim.finish_seen(next(&mut random)),
                        19 if next(&mut random).is_multiple_of(50) => {
                            pool.decay();
                            pool.trim(None, 8 << 20);
                        }
                        _ if !live.is_empty() => {
                            let (owner, piece) = live.swap_remove(next(&mut random) % live.len());
                            if owner == Context(1) {
                                sim.launch(Context(3), &[piece]);
                            }
                            sim.returned(piece.0);
                            pool.free(piece.0, |_| ()).expect("a live block");
                            (0..3).for_each(|_| sim.finish_seen(next(&mut random)));
                        }
                        _ => {}
                    }
                }
                for (_, piece) in live {
                    sim.returned(piece.0);
                    pool.free(piece.0, |_| ()).expect("a live block");
                }
            });
        }
    });
    pool.trim(None, 0);
    let stats = pool.stats(None);
    assert_eq!((stats.reserved, stats.allocated, stats.live), (0, 0, 0));
    assert_eq!(pool.device().sim.findings(), Vec::<String>::new());
}
