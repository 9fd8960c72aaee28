//! Programs that random tests found to fail, kept as tests.

use super::machine::run;
use super::program::{Action, Action::*, Ending, Setting};
use crate::policy::Policy::{Blocks, Vmm};
use crate::sim::Mistake;

fn nothing_goes_wrong(setting: &Setting, actions: &[Action]) {
    assert_eq!(
        Mistake::None.finding(|lie| run(setting, actions, lie)),
        None
    );
}

#[test]
fn memory_of_a_device_freed_on_a_stream_elsewhere_moves_after_its_earlier_work() {
    let setting = Setting {
        threads: 0,
        policy: Vmm,
        page: 2097152,
        spare: 20,
        piece: 2097152,
        orders: true,
        waits: false,
        contexts: 2,
        max_size: 0,
        capacity: 50331648,
        limit: 18446744073709551615,
        fail: None,
        ending: Ending::Synchronized,
    };
    let actions = [
        Allocate {
            pool: 0,
            stream: 0,
            bytes: 1,
            writes: false,
        },
        Allocate {
            pool: 0,
            stream: 0,
            bytes: 1,
            writes: false,
        },
        Allocate {
            pool: 0,
            stream: 0,
            bytes: 1,
            writes: false,
        },
        Allocate {
            pool: 0,
            stream: 0,
            bytes: 1,
            writes: false,
        },
        Allocate {
            pool: 0,
            stream: 0,
            bytes: 1,
            writes: false,
        },
        Free { block: 0, on: None },
        Free { block: 0, on: None },
        Allocate {
            pool: 0,
            stream: 0,
            bytes: 1,
            writes: false,
        },
        Free { block: 0, on: None },
        Free { block: 0, on: None },
        Free { block: 0, on: None },
        Allocate {
            pool: 1,
            stream: 0,
            bytes: 4202496,
            writes: false,
        },
        Allocate {
            pool: 1,
            stream: 0,
            bytes: 5242880,
            writes: false,
        },
        Allocate {
            pool: 2,
            stream: 0,
            bytes: 23101440,
            writes: false,
        },
        Allocate {
            pool: 0,
            stream: 0,
            bytes: 1,
            writes: false,
        },
        Allocate {
            pool: 0,
            stream: 0,
            bytes: 1,
            writes: false,
        },
        Free {
            block: 2,
            on: Some(0),
        },
        FreeAnywhere {
            block: 3,
            context: 0,
        },
        Synchronize {
            stream: 0,
            whole: false,
            meanwhile: 2,
            fails: false,
        },
        Free { block: 0, on: None },
        Free { block: 0, on: None },
        Allocate {
            pool: 2,
            stream: 4,
            bytes: 307200,
            writes: true,
        },
        Free { block: 0, on: None },
        Allocate {
            pool: 2,
            stream: 12,
            bytes: 16777216,
            writes: false,
        },
        Free {
            block: 0,
            on: Some(4),
        },
        Allocate {
            pool: 0,
            stream: 1,
            bytes: 4202496,
            writes: false,
        },
        Allocate {
            pool: 2,
            stream: 4,
            bytes: 307200,
            writes: false,
        },
        Allocate {
            pool: 0,
            stream: 1,
            bytes: 8388608,
            writes: false,
        },
    ];
    nothing_goes_wrong(&setting, &actions);
}

#[test]
fn memory_of_a_device_freed_on_a_stream_elsewhere_goes_back_after_its_earlier_work() {
    let setting = Setting {
        threads: 0,
        policy: Blocks,
        page: 2097152,
        spare: 20,
        piece: 2097152,
        orders: true,
        waits: false,
        contexts: 1,
        max_size: 0,
        capacity: 134217728,
        limit: 18446744073709551615,
        fail: None,
        ending: Ending::Synchronized,
    };
    let actions = [
        Launch {
            stream: 3,
            blocks: [0, 0],
        },
        Allocate {
            pool: 0,
            stream: 0,
            bytes: 1,
            writes: false,
        },
        Free { block: 0, on: None },
        Allocate {
            pool: 0,
            stream: 0,
            bytes: 1,
            writes: false,
        },
        Free { block: 0, on: None },
        Allocate {
            pool: 2,
            stream: 0,
            bytes: 8388608,
            writes: true,
        },
        FreeAnywhere {
            block: 0,
            context: 0,
        },
        Allocate {
            pool: 0,
            stream: 0,
            bytes: 1,
            writes: false,
        },
        Free { block: 0, on: None },
        Allocate {
            pool: 0,
            stream: 0,
            bytes: 1,
            writes: false,
        },
        Free { block: 0, on: None },
        Allocate {
            pool: 0,
            stream: 0,
            bytes: 1,
            writes: false,
        },
        Allocate {
            pool: 2,
            stream: 0,
            bytes: 7462912,
            writes: false,
        },
        Allocate {
            pool: 0,
            stream: 0,
            bytes: 1,
            writes: false,
        },
        Allocate {
            pool: 0,
            stream: 0,
            bytes: 1,
            writes: false,
        },
        Allocate {
            pool: 0,
            stream: 0,
            bytes: 1,
            writes: false,
        },
        Allocate {
            pool: 0,
            stream: 0,
            bytes: 1,
            writes: false,
        },
        Allocate {
            pool: 0,
            stream: 0,
            bytes: 1,
            writes: false,
        },
        Free { block: 2, on: None },
        Free {
            block: 37,
            on: Some(2),
        },
        Allocate {
            pool: 0,
            stream: 0,
            bytes: 1,
            writes: false,
        },
        Allocate {
            pool: 2,
            stream: 0,
            bytes: 1,
            writes: false,
        },
        Allocate {
            pool: 2,
            stream: 0,
            bytes: 8404992,
            writes: false,
        },
    ];
    nothing_goes_wrong(&setting, &actions);
}
