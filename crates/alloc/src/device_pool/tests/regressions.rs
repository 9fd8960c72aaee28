//! Programs that once went wrong, as the random ones found them.

use super::machine::run;
use super::program::{Action, Setting};
use crate::policy::Reuse;
use crate::sim::Call;

const FIRST: usize = 0;
const NEIGHBOUR: usize = 1;
const PEER: usize = 2;
const OTHER: usize = 3;

/// Devices of 60 MiB, whose pool gives back early.
fn scarce() -> Setting {
    Setting {
        reuse: Reuse::Order,
        cache_max: None,
        share: 100,
        margin: 0,
        capacity: 60 << 20,
        events: true,
        fail: None,
    }
}

fn allocate(context: usize, bytes: u64) -> Action {
    Action::Allocate {
        context,
        bytes,
        ready_only: false,
    }
}

fn free(block: usize) -> Action {
    Action::Free { block }
}

fn capture(context: usize) -> Action {
    Action::Capture {
        context,
        refuses: true,
    }
}

fn end(graph: bool) -> Action {
    Action::EndCapture { capture: 0, graph }
}

fn nothing_goes_wrong(setting: &Setting, actions: &[Action]) {
    assert_eq!(run(setting, actions, None), Vec::<String>::new());
}

#[test]
fn memory_that_could_not_be_waited_for_does_not_count_as_given_back() {
    let setting = Setting {
        fail: Some((Call::Synchronize, 3)),
        ..scarce()
    };
    let actions = [
        allocate(FIRST, 512),
        allocate(NEIGHBOUR, 512),
        allocate(FIRST, 512),
        allocate(FIRST, 512),
        free(2),
        free(2),
        Action::Export { block: 20 },
        free(48),
        Action::Trim {
            device: None,
            keep: 0,
        },
    ];
    nothing_goes_wrong(&setting, &actions);
}

#[test]
fn work_of_a_peer_that_lost_its_access_is_waited_for() {
    let peer = |on| Action::Peer {
        accessor: PEER,
        owner: NEIGHBOUR,
        on,
    };
    let actions = [
        peer(true),
        allocate(FIRST, 512),
        allocate(NEIGHBOUR, 512),
        allocate(NEIGHBOUR, 2_096_641),
        Action::Launch {
            context: PEER,
            blocks: [0, 1],
        },
        peer(false),
        allocate(FIRST, 512),
        free(0),
        Action::Synchronize {
            context: FIRST,
            after: 2,
        },
        free(0),
        allocate(NEIGHBOUR, 24_159_703),
    ];
    nothing_goes_wrong(&scarce(), &actions);
}

#[test]
fn access_given_while_a_stream_captures_comes_after_earlier_work() {
    let actions = [
        allocate(NEIGHBOUR, 512),
        allocate(NEIGHBOUR, 512),
        allocate(FIRST, 512),
        free(27),
        allocate(OTHER, 512),
        allocate(FIRST, 100_000),
        allocate(OTHER, 512),
        free(39),
        allocate(OTHER, 512),
        Action::Synchronize {
            context: FIRST,
            after: 2,
        },
        allocate(FIRST, 512),
        allocate(FIRST, 1 << 20),
        Action::Allocate {
            context: FIRST,
            bytes: 1 << 20,
            ready_only: true,
        },
        allocate(FIRST, 512),
        allocate(FIRST, 512),
        capture(OTHER),
        capture(OTHER),
        Action::Peer {
            accessor: NEIGHBOUR,
            owner: OTHER,
            on: true,
        },
        Action::Launch {
            context: NEIGHBOUR,
            blocks: [0, 0],
        },
        end(true),
        Action::Derive { graph: 0 },
        Action::Replay {
            context: NEIGHBOUR,
            graph: 0,
        },
    ];
    nothing_goes_wrong(&scarce(), &actions);
}

#[test]
fn access_given_while_a_stream_captures_and_waiting_fails_is_ordered_when_it_ends() {
    let setting = Setting {
        share: 150,
        fail: Some((Call::Wait, 1)),
        ..scarce()
    };
    let actions = [
        allocate(OTHER, 2_097_153),
        free(0),
        allocate(FIRST, 512),
        Action::Allocate {
            context: FIRST,
            bytes: 512,
            ready_only: true,
        },
        allocate(FIRST, 512),
        allocate(FIRST, 512),
        free(0),
        capture(OTHER),
        free(0),
        free(0),
        allocate(FIRST, 4096),
        allocate(FIRST, 512),
        end(false),
        allocate(OTHER, 2_500_731),
        capture(OTHER),
        Action::Peer {
            accessor: PEER,
            owner: OTHER,
            on: true,
        },
        allocate(FIRST, 16_777_216),
        free(3),
        free(21),
        Action::Launch {
            context: PEER,
            blocks: [0, 0],
        },
        allocate(FIRST, 512),
        end(true),
        Action::Replay {
            context: PEER,
            graph: 0,
        },
    ];
    nothing_goes_wrong(&setting, &actions);
}

#[test]
fn exported_memory_goes_back_under_a_capture_once_a_former_peer_was_waited_for() {
    let setting = Setting {
        capacity: 22 << 20,
        ..scarce()
    };
    let peer = |on| Action::Peer {
        accessor: FIRST,
        owner: PEER,
        on,
    };
    let actions = [
        allocate(PEER, 10_485_761),
        Action::Export { block: 0 },
        Action::Capture {
            context: NEIGHBOUR,
            refuses: false,
        },
        peer(true),
        free(0),
        peer(false),
        allocate(PEER, 10_485_761),
    ];
    nothing_goes_wrong(&setting, &actions);
}
