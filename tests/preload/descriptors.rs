//! Programs that close all descriptors, and children of a fork without handlers: each keeps its own
//! sockets.

use crate::support::{Run, program};

fn asking(how: &str) -> Run {
    Run::new(program("descriptors")).arg(how)
}

/// It exports no more, says why once, and the trace has the reason.
#[test]
fn a_program_that_closes_all_descriptors_keeps_its_own_sockets() {
    let (native, shim) = asking("closed").may_complain().both();
    assert_eq!(native.told(), "lost: 0 of 40\ngone in the child: 0 of 8\n");
    assert!(shim.note("closed") >= native.note("closed") + 2);
    assert_eq!(native.notes("handle"), [["0"]; 2]);
    assert_eq!(shim.notes("handle"), [["1"]; 2]);
    let why = "the program closed the sockets for other processes";
    let complaints = shim.complaints();
    assert!(
        complaints.len() == 1 && complaints[0].contains(why),
        "{complaints:?}"
    );
    assert_eq!(shim.trace().facts("ipc"), [why]);
}

/// Driver allocations need no sockets of the shim for that.
#[test]
fn under_blocks_it_exports_as_before() {
    let blocks = asking("closed").env("GPUSHIM_POLICY", "blocks");
    let (native, shim) = blocks.both();
    assert_eq!(shim.notes("handle"), native.notes("handle"));
}

#[test]
fn the_end_of_a_process_shuts_no_socket_of_another_one() {
    let (native, _) = asking("pair").both();
    assert_eq!(native.told(), "writes that failed: 0 of 4\n");
}

/// Neither for importers nor in the trace: the parent was killed later.
fn the_end_of_a_child_is_not_the_parents(how: &str) {
    let (native, shim) = asking(how).both();
    assert_eq!(native.told(), "child: 7\nopen: 0, byte 5a\n");
    let traces = shim.traces();
    let ended: Vec<_> = traces.iter().map(|trace| trace.facts("ended")).collect();
    assert_eq!(ended.iter().flatten().count(), 1, "{ended:?}");
}

#[test]
fn a_child_of_the_system_call_ends_nothing_of_its_parents() {
    the_end_of_a_child_is_not_the_parents("raw");
}

#[test]
fn nor_does_a_child_of_a_fork_without_handlers() {
    the_end_of_a_child_is_not_the_parents("_Fork");
}
