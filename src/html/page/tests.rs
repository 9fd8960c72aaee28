//! Pages of recordings whose truth is known.

use super::*;
use crate::html::memory::layer_name;
use gpushim_trace::{Class, Event, Kind, Layer, StackNode, Trace, WriterOptions, flags};

mod made;

use made::{Made, event, page};

const MIB: u64 = 1 << 20;

/// Many small and some large blocks of two layers, in more blocks than are kept exactly.
#[test]
fn the_figures_are_the_reports() {
    let made = Made::new(64 << 20);
    let stacks: Vec<u32> = (0..5)
        .map(|number| made.stack(number, &format!("py::f{number}:/home/me/a.py")))
        .collect();
    let mut kept = Vec::new();
    for step in 0..40u64 {
        made.range(Kind::RangePush, &format!("step {step}"));
        let large: Vec<u64> = (0..step % 7 + 3).map(|n| (n + 1) << 32).collect();
        for address in &large {
            made.alloc(Class::Tensor, *address, 9 * MIB + step, stacks[0]);
            made.alloc(Class::PoolAsync, *address, 9 * MIB + step, stacks[1]);
        }
        for n in 0..6_000 {
            made.alloc(Class::Tensor, 0x1000, 512 + n % 9, stacks[(n % 5) as usize]);
            made.free(Class::Tensor, 0x1000, 512 + n % 9);
        }
        kept.push(1 << 45 | step << 20);
        made.alloc(Class::Tensor, 1 << 45 | step << 20, 1000, stacks[4]);
        for address in large {
            made.free(Class::PoolAsync, address, 9 * MIB + step);
            made.free(Class::Tensor, address, 9 * MIB + step);
        }
        made.range(Kind::RangePop, "");
    }
    let page = made.page();
    let summary = Report::of(&made.trace(), None).summary;
    let (device, tensors) = (
        &summary.devices[0],
        summary.devices[0].tensors.as_ref().unwrap(),
    );
    for (layer, gauge) in [("device", &device.requested), ("tensor", &tensors.tensors)] {
        assert_eq!(page.view(layer)["peak"], gauge.peak, "{layer}");
        assert_eq!(
            page.view(layer)["peak_ns"],
            gauge.peak_ns.unwrap(),
            "{layer}"
        );
        assert_eq!(page.view(layer)["end"], gauge.end, "{layer}");
        assert_eq!(
            page.curve(layer, "live"),
            (gauge.peak, gauge.end),
            "{layer}"
        );
        assert_eq!(page.live_at_peak(layer), gauge.peak, "{layer}");
    }
    assert_eq!(
        page.curve("device", "reserved"),
        (device.reserved.peak, device.reserved.end)
    );
    assert_eq!(
        page.curve("tensor", "framework reserved").0,
        tensors.reserved_peak
    );
    let [all, live] = page.totals();
    let sum = |of: fn(&crate::report::Classes) -> u64| summary.classes.iter().map(of).sum::<u64>();
    assert_eq!(
        all,
        (sum(|class| class.allocations), sum(|class| class.bytes))
    );
    assert_eq!(
        live,
        (sum(|class| class.live), sum(|class| class.live_bytes))
    );
    assert_eq!(page.head()["blocks_all"], all.0);
    assert_eq!(page.head()["blocks_exact"], BLOCKS.1);
    assert!(!page.column("sum_count").is_empty());
    // The five functions, the rest beyond the bound, and no function twice.
    assert_eq!(page.column("stack_node").len(), 1 + 5);
    let iteration = page.head()["iteration"].as_array().unwrap();
    let texts = page.head()["texts"].as_array().unwrap();
    assert_eq!(texts[iteration[2].as_u64().unwrap() as usize], "step #");
    assert_eq!(page.column("phase_from").len(), 40);
}

#[test]
fn hostile_names_are_no_markup() {
    let hostile = "</script><script>alert(1)</script><img src=x onerror=alert(2)>{{data}}";
    let made = Made::new(1 << 20);
    made.writer.fact("argv", hostile);
    made.writer.fact("rank", hostile);
    made.range(Kind::RangePush, hostile);
    made.range(Kind::Mark, hostile);
    let stack = made.stack(0, hostile);
    made.alloc(Class::Tensor, 0x1000, 512, stack);
    let page = made.page();
    assert!(!page.html.contains("alert("), "reached the page as it was");
    assert!(!page.html.contains("<img"));
    let texts = page.head()["texts"].as_array().unwrap();
    assert!(texts.iter().any(|text| text == hostile), "is there, packed");
    // One script of the page's own, with the page's nonce; the others are data.
    let scripts = page.html.matches("<script").count();
    assert_eq!(scripts, 3);
    assert_eq!(page.html.matches("<script nonce=").count(), 1);
    assert_eq!(page.html.matches("</script>").count(), 3);
}

/// The page fetches nothing, and only its own script runs.
#[test]
fn the_page_asks_nobody() {
    let page = Made::new(1 << 20).page();
    assert!(
        page.html
            .contains("content=\"default-src 'none'; script-src 'nonce-")
    );
    let own = [PAGE, STYLE].into_iter().chain(SCRIPTS).collect::<String>();
    for word in [
        "http:",
        "https:",
        "src=",
        "@import",
        "url(",
        "fetch(",
        "XMLHttp",
        "innerHTML",
        "outerHTML",
        "insertAdjacentHTML",
        "eval(",
        "document.write",
    ] {
        assert!(!own.contains(word), "{word}");
    }
    assert!(!page.html.contains("{{"), "a place was not filled");
}

#[test]
fn an_empty_trace_is_a_page() {
    let page = Made::new(1 << 20).page();
    assert_eq!(page.head()["views"].as_array().unwrap().len(), 0);
    assert_eq!(page.head()["blocks_all"], 0);
    assert_eq!(page.index["recordings"].as_array().unwrap().len(), 1);
}

#[test]
fn only_a_frameworks_events() {
    let made = Made::new(1 << 20);
    made.alloc(Class::Tensor, 0x1000, 5000, 0);
    made.alloc(Class::Tensor, 0x9000, 300, 0);
    made.free(Class::Tensor, 0x1000, 5000);
    let page = made.page();
    assert_eq!(page.head()["views"].as_array().unwrap().len(), 1);
    assert_eq!(page.view("tensor")["peak"], 5300);
    assert_eq!(page.totals(), [(2, 5300), (1, 300)]);
    assert_eq!(page.index["recordings"][0]["overview"]["peak"], 5300);
    // Without stacks, sizes tell them apart.
    assert_eq!(page.head()["has_stacks"], false);
    let texts = page.head()["texts"].as_array().unwrap();
    assert!(texts.iter().any(|text| text == "4.0 KiB and more"));
}

/// Without stacks, the open ranges distinguish blocks, with the same result in each iteration.
#[test]
fn ranges_stand_in_for_stacks() {
    let made = Made::new(1 << 20);
    for step in 0..4u64 {
        let name = made.writer.intern(&format!("step {step}"));
        let stack = made
            .writer
            .stack_child(0, StackNode::Range { name, domain: 0 });
        made.alloc(Class::Device, (step + 1) << 20, 5000, stack);
    }
    let page = made.page();
    assert_eq!(page.column("stack_node").len(), 1 + 1);
    assert_eq!(page.column("block_stack"), [1; 4]);
}

/// The ring holds the last events only. The live blocks are known nevertheless.
#[test]
fn a_ring_that_has_wrapped() {
    let made = Made::new(WriterOptions::MIN_BYTES);
    let stack = made.stack(0, "py::build:/home/me/a.py");
    made.alloc(Class::Device, 1 << 40, 3 * MIB, stack);
    made.alloc(Class::Device, 1 << 41, 2 * MIB, stack);
    for _ in 0..500 {
        made.alloc(Class::Device, 1 << 42, 7000, stack);
        made.free(Class::Device, 1 << 42, 7000);
    }
    // The second was seen to go, not to come.
    made.free(Class::Device, 1 << 41, 2 * MIB);
    made.alloc(Class::Device, 1 << 42, MIB, stack);
    let trace = made.trace();
    assert!(trace.has_wrapped());
    let page = made.page();
    assert_eq!(page.view("device")["peak"], 5 * MIB + 7000);
    assert_eq!(page.view("device")["end"], 4 * MIB);
    assert_eq!(page.curve("device", "live").1, 4 * MIB);
    let [_, live] = page.totals();
    let table: u64 = trace
        .live()
        .unwrap()
        .blocks
        .iter()
        .map(|block| block.event.size)
        .sum();
    assert_eq!(live, (2, table));
    let texts = page.head()["texts"].as_array().unwrap();
    assert!(texts.iter().any(|text| text == crate::ledger::MADE_BEFORE));
}

#[test]
fn a_context_takes_its_blocks_along() {
    let made = Made::new(1 << 20);
    for number in 1..4 {
        let event = Event {
            flags: flags::GROWN,
            ..event(Kind::Alloc, Class::PoolAsync, number << 20, 4096, 0)
        };
        made.writer.record(&event);
    }
    let gone = event(Kind::ContextGone, Class::Device, 0xc0, 3 * 4096, 0);
    made.writer.record(&gone);
    let page = made.page();
    assert_eq!(page.view("device")["peak"], 3 * 4096);
    assert_eq!(page.view("device")["end"], 0);
    assert_eq!(page.totals(), [(3, 3 * 4096), (0, 0)]);
    assert_eq!(page.head()["note_kind"][0], "context-gone");
}

/// A damaged file names devices that no machine has.
#[test]
fn devices_without_end() {
    let made = Made::new(1 << 20);
    for device in 0..=255u8 {
        let event = Event {
            device,
            ..event(
                Kind::Alloc,
                Class::Device,
                (u64::from(device) + 1) << 20,
                512,
                0,
            )
        };
        made.writer.record(&event);
    }
    let page = made.page();
    assert_eq!(page.head()["views"].as_array().unwrap().len(), 33);
    assert_eq!(page.totals()[0], (256, 256 * 512));
}

#[test]
fn out_of_memory_with_what_the_pools_held() {
    let made = Made::new(1 << 20);
    let oom = |size| Event {
        extra: [5 * MIB, 80 * MIB],
        ..event(Kind::OutOfMemory, Class::Device, 0, size, 0)
    };
    made.writer.record(&oom(64 * MIB));
    let pools = Event {
        size: 60 * MIB,
        extra: [70 * MIB, 3 * MIB],
        ..event(Kind::PoolState, Class::Device, 0, 0, 0)
    };
    made.writer.record(&pools);
    made.writer.record(&oom(65 * MIB));
    let page = made.page();
    assert_eq!(page.column("note_size"), [64 * MIB, 65 * MIB]);
    assert_eq!(page.column("note_allocated"), [60 * MIB + 1, 0]);
    assert_eq!(page.column("note_reserved"), [70 * MIB + 1, 0]);
    assert_eq!(page.column("note_largest"), [3 * MIB + 1, 0]);
}

/// Several recordings are one page, with the same bounds for all of them together.
#[test]
fn ranks_side_by_side() {
    let made: Vec<Made> = (0..3).map(|_| Made::new(1 << 20)).collect();
    for (rank, made) in made.iter().enumerate() {
        made.alloc(Class::Device, 1 << 20, (rank as u64 + 1) * MIB, 0);
    }
    let traces: Vec<Trace> = made.iter().map(Made::trace).collect();
    let all: Vec<&dyn Recording> = traces.iter().map(|trace| trace as &dyn Recording).collect();
    let page = page(&all);
    assert_eq!(page.recordings.len(), 3);
    for rank in 0..3 {
        let overview = &page.index["recordings"][rank]["overview"];
        assert_eq!(overview["peak"], (rank as u64 + 1) * MIB);
        assert_eq!(overview["layer"], "device");
    }
}

#[test]
fn each_layer_has_a_name() {
    let layers = [Layer::Tensor, Layer::Device, Layer::Managed, Layer::Host];
    let names: std::collections::BTreeSet<_> = layers.map(layer_name).into();
    assert_eq!(names.len(), layers.len());
    let script = SCRIPTS.concat();
    for name in names {
        assert!(
            script.contains(&format!("{name}: \"")),
            "data.js has no words for {name}"
        );
    }
}
