//! Programs that pause their recording and watch their memory, by the functions of
//! `include/gpushim.h`.

use gpushim_trace::{Class, Event, Kind, Layer, Trace};

use crate::support::{Outcome, Run, program};

fn controlled(part: &str) -> Outcome {
    let (native, shim) = Run::new(program("controlled")).arg(part).both();
    assert_eq!(native.notes("there"), [["0"]]);
    shim
}

fn sizes(events: &[Event]) -> Vec<u64> {
    events.iter().map(|event| event.size).collect()
}

#[test]
fn a_pause_leaves_out_whole_blocks() {
    for policy in ["blocks", "vmm", "off"] {
        let shim = Run::new(program("controlled"))
            .arg("pause")
            .env("GPUSHIM_POLICY", policy)
            .shim();
        assert_eq!(shim.notes("recording"), [["1"], ["0"]], "{policy}");
        let trace = shim.trace();
        // A block from before the pause is freed in it. A block made in it is in neither list.
        let (made, gone) = (trace.of(Kind::Alloc), trace.of(Kind::Free));
        assert_eq!(sizes(&made), [1000, 2000, 7000, 8000], "{policy}");
        assert_eq!(sizes(&gone), [1000, 7000, 2000], "{policy}");
        for free in &gone {
            let before = made.iter().find(|made| made.size == free.size);
            assert_eq!(before.map(|made| made.address), Some(free.address));
        }
        assert_eq!(trace.of(Kind::Mark).len(), 2, "twice paused is once");
        let told = trace.facts("recording");
        assert_eq!(told.len(), 1);
        assert!(told[0].starts_with("the program paused it: "), "{told:?}");
        // The table of live blocks and the sums agree with the events.
        let file = Trace::open(trace.path()).expect("the trace again");
        let live = file.live().expect("a live table").blocks;
        let live: Vec<_> = live.iter().map(|block| block.event.size).collect();
        assert_eq!(live, [8000], "{policy}");
        let sums = file.totals().expect("sums").layer(Layer::Device);
        assert_eq!(
            (sums.allocations, sums.frees, sums.live_bytes()),
            (4, 3, 8000)
        );
    }
}

#[test]
fn figures_follow_what_is_in_use() {
    for variables in [
        &[][..],
        &[("GPUSHIM_TRACE", "off")],
        &[("GPUSHIM_POLICY", "off")],
    ] {
        let run = Run::new(program("controlled")).arg("peak");
        let run = variables
            .iter()
            .fold(run, |run, (name, value)| run.env(name, value));
        let shim = run.shim();
        let figures = |when| shim.notes(when);
        // Without a trace the memory before the first question is not known.
        let early = if variables.contains(&("GPUSHIM_TRACE", "off")) {
            0
        } else {
            100_000
        };
        let told = |now: u64, peak: u64| vec!["0".to_owned(), now.to_string(), peak.to_string()];
        assert_eq!(figures("first"), [told(early, early)], "{variables:?}");
        if early > 0 {
            assert_eq!(figures("second"), [told(50_000, 150_000)], "{variables:?}");
            assert_eq!(figures("reset"), [told(50_000, 50_000)]);
            // Memory that is not recorded counts, too.
            assert_eq!(figures("third"), [told(50_000, 51_000)]);
        }
        assert_eq!(figures("host"), [told(6000, 6000), told(0, 6000)]);
        assert_eq!(figures("figures"), [["7"]]);
        assert_eq!(figures("stats")[0][2], "9", "there was room for two");
        assert_eq!(figures("refused"), [["-1", "-1"]]);
        let version = figures("version")[0].join(" ");
        assert!(
            version.starts_with(concat!(env!("CARGO_PKG_VERSION"), ", ")),
            "{version}"
        );
        if early > 0 {
            assert_eq!(shim.trace().facts("library"), [&version]);
        }
    }
}

#[test]
fn a_context_takes_the_blocks_of_a_pause_with_it() {
    let shim = controlled("contexts");
    let mib = |n: u64| (n << 20).to_string();
    assert_eq!(shim.notes("with"), [["0", &mib(3), &mib(3)]]);
    assert_eq!(shim.notes("without"), [["0", "0", &mib(3)]]);
    let trace = shim.trace();
    let gone = trace.of(Kind::ContextGone);
    assert_eq!(sizes(&gone), [1 << 20], "what the trace has of it");
    assert_eq!(trace.count(Kind::Alloc, Class::Device), 1);
}
