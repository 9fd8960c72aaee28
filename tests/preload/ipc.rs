//! Memory in pages, shared with other processes by `cuIpcGetMemHandle`: importers' results, and the
//! remaining memory.

use gpushim_trace::{Class, Kind};

use crate::support::{Outcome, Run, program};

/// Milliseconds within which an error must be returned. An importer waits ten seconds for a stopped
/// exporter.
const SOON: u64 = 5000;

fn asking(how: &str) -> Run {
    Run::new(program("ipc"))
        .arg(how)
        .env("GPUSHIM_POLICY", "vmm")
}

/// Both kinds of memory: of `cudaMalloc`, and mapped by the program itself.
fn of_both(how: &str) -> [Run; 2] {
    [asking(how), asking(how).arg("mapped")]
}

fn importers(outcome: &Outcome) -> Vec<Vec<&str>> {
    outcome.notes("importer")
}

#[test]
fn four_importers_open_and_close_a_thousand_handles() {
    for run in of_both("many") {
        let shim = run.shim();
        assert_eq!((shim.code, shim.note("handles")), (0, 1000));
        assert_eq!((shim.note("wrong"), shim.note("failed")), (0, 0));
        // Whole pages: all that the block is on, and nothing further away than a piece of memory is
        // large.
        assert_eq!(shim.signed_note("least"), 0);
        assert!(shim.note("most") <= 2 * (14 << 20), "{}", shim.note("most"));
        let left = importers(&shim);
        assert_eq!(left, vec![vec!["descriptors", "0", "done", "1000"]; 4]);
        assert_eq!(
            shim.notes("pages"),
            vec![vec!["0"]; 4],
            "addresses were left"
        );
        assert_eq!(shim.notes("exporter"), [["descriptors", "0"]]);
    }
}

#[test]
fn importers_that_are_killed_leave_nothing_and_the_others_go_on() {
    for run in of_both("killed") {
        let shim = run.shim();
        assert_eq!(shim.notes("first"), [["0", "last", "0", "wrong", "0"]]);
        assert_eq!(shim.signed_note("beyond"), 0);
        assert_eq!(shim.notes("ms")[0][1..], ["descriptors", "0"]);
        assert!(shim.note("ms") < SOON, "{} ms", shim.note("ms"));
    }
}

#[test]
fn the_handle_of_a_freed_block_is_void_also_when_another_has_its_address() {
    for run in of_both("stale") {
        let shim = run.shim();
        assert_eq!(
            shim.told(),
            "open: 0, freed: 1, reused: 1\nanother at this address: 0, wrong 0\n"
        );
        assert_eq!(
            shim.notes("same"),
            [["address", "1", "same", "handle", "0"]]
        );
    }
}

/// The exporter was killed: the importer's error comes soon, and its shim says why.
fn dead(how: &str) {
    for run in of_both(how) {
        let shim = run.may_complain().shim();
        assert_eq!(shim.told(), "open: 1\nmore than there is: 2\n");
        for what in ["ms", "refused"] {
            assert!(shim.note(what) < SOON, "{what}: {} ms", shim.note(what));
        }
        let complaints = shim.complaints();
        let said = complaints
            .iter()
            .filter(|line| line.contains("failed to open an IPC handle"));
        assert_eq!(said.count(), 1, "{complaints:?}");
    }
}

#[test]
fn a_dead_exporter_is_an_error_at_once() {
    dead("dead");
}

#[test]
fn nor_does_a_forked_child_of_it_keep_importers_waiting() {
    dead("orphan");
}

#[test]
fn nor_does_one_whose_fork_called_no_handlers() {
    dead("raw-orphan");
}

#[test]
fn what_an_exporter_says_that_cannot_be_is_refused_and_changes_nothing() {
    let open = |lie| {
        let run = Run::new(program("exporter_lies")).arg(lie);
        run.may_complain().shim().told().to_owned()
    };
    assert_eq!(open("none"), "open: 0, address 1, mappings 1\n");
    for lie in [
        "offset", "block", "nothing", "memory", "piece", "place", "again", "empty", "success",
    ] {
        let told = open(lie);
        assert_eq!(told, "open: 1, address 0, mappings 0\n", "{lie}");
    }
}

/// One line, and only as the program exports; the trace says it at once.
#[test]
fn a_process_that_may_make_no_sockets_is_told_when_it_exports() {
    let shim = asking("unheard").may_complain().shim();
    assert_eq!((&shim.told()[..], shim.code), ("handle: 1\nhandle: 1\n", 0));
    let complaints = shim.complaints();
    assert_eq!(complaints.len(), 1, "{complaints:?}");
    let why = "there is no socket for other processes: Permission denied";
    assert!(complaints[0].contains(why), "{complaints:?}");
    let trace = shim.trace();
    let facts = trace.facts("ipc");
    assert!(facts.len() == 1 && facts[0].contains(why), "{facts:?}");
}

#[test]
fn a_process_of_another_user_gets_nothing() {
    for run in of_both("user") {
        let shim = run.may_complain().shim();
        if shim.note("root") == 0 {
            eprintln!("not tested: only root can become another user");
            return;
        }
        assert!(
            shim.note("own") > 0,
            "the same request of the same user has no answer"
        );
        assert_eq!(shim.notes("stranger"), [["0", "open", "1"]]);
    }
}

#[test]
fn an_importer_in_another_network_namespace_finds_the_exporter() {
    for run in of_both("network") {
        let shim = run.shim();
        if shim.note("namespace") == 0 {
            eprintln!("not tested: only root can make a network namespace");
            return;
        }
        assert!(shim.signed_note("abstract") < 0, "it is the same namespace");
        assert_eq!((shim.note("open"), shim.note("wrong")), (0, 0));
    }
}

#[test]
fn an_importer_without_the_shim_has_the_drivers_own_error() {
    for run in of_both("plain") {
        let shim = run.shim();
        assert_eq!((&shim.told()[..], shim.code), ("open: 1\n", 0));
    }
}

#[test]
fn exports_and_imports_are_events() {
    for run in of_both("stale") {
        let shim = run.shim();
        let count = |kind| {
            let traces = shim.traces();
            traces
                .iter()
                .map(|trace| trace.class(kind, Class::Ipc).len())
                .sum::<usize>()
        };
        let counts = [Kind::Export, Kind::Alloc, Kind::Free].map(count);
        // Each import is opened twice and closed twice, and known by its address.
        assert_eq!(counts, [2, 4, 2]);
    }
}

/// Memory that the program mapped itself, in pieces of a larger range.
fn mapped(how: &str) -> Run {
    Run::new(program("ipc_mapped")).arg(how)
}

/// Under each policy that has pools, and with elastic segments alone.
const SERVING: [(&str, &str); 4] = [
    ("GPUSHIM_POLICY", "auto"),
    ("GPUSHIM_POLICY", "blocks"),
    ("GPUSHIM_ELASTIC", "auto"),
    ("GPUSHIM_ELASTIC", "on"),
];

fn serving(how: &str) -> impl Iterator<Item = Run> {
    SERVING.into_iter().map(move |(name, value)| {
        let run = mapped(how).env(name, value);
        match name {
            "GPUSHIM_ELASTIC" => run.env("GPUSHIM_POLICY", "off"),
            _ => run,
        }
    })
}

#[test]
fn a_mapping_of_the_program_opens_where_its_queries_say_and_nothing_beside_it() {
    let told = "\
over two pieces: open 0, wrong 0, MiB 4, beside it 0 0
an inner pointer: open 0, wrong 0, MiB 4, beside it 0 0
one handle: 1
in the last piece: open 0, wrong 0, MiB 2, beside it 0 0
by the range: open 0, wrong 0, MiB 12, beside it 0 0
grown: open 0, wrong 0, MiB 6, beside it 0 0
no memory at the beginning: open 0, wrong 0, MiB 14, beside it 0 0
where nothing is: 1 1
a piece was replaced, behind it: open 0, wrong -1, MiB 4, beside it 0 0
a piece was replaced, before it: open 0, wrong 0, MiB 4, beside it 0 0
freed, and other memory there: open 1, wrong 0, MiB 0, beside it 0 0
";
    for run in serving("share") {
        assert_eq!(run.shim().told(), told);
    }
}

#[test]
fn natively_and_in_a_recording_such_memory_has_no_handle() {
    let run = mapped("share").env("GPUSHIM_POLICY", "off");
    let (native, shim) = run.both();
    assert!(
        native.told().starts_with("handle: 1\n"),
        "{}",
        native.told()
    );
    assert_eq!(shim.notes("handle"), native.notes("handle"));
}

#[test]
fn the_driver_says_of_such_memory_what_it_says_natively() {
    for run in serving("questions") {
        let (native, shim) = run.both();
        assert_eq!(native.notes("handle"), [["1"], ["1"]]);
        assert_eq!(
            shim.notes("handle"),
            [["0"], ["0"]],
            "the memory has no handle"
        );
    }
}

#[test]
fn a_thousand_rounds_of_an_all_reduce_are_right() {
    for run in serving("rounds") {
        // As much as each process maps itself: what it opens does not count.
        let run = run.env("GPUSHIM_LIMIT", "8M");
        assert_eq!(run.shim().told(), "1000 rounds, wrong: 0\n".repeat(2));
    }
}
