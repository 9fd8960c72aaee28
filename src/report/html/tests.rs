//! Pages of recordings whose truth is known.

use std::collections::BTreeMap;

use serde_json::Value;

use super::pack::unpack::unpack;
use super::*;
use crate::trace::{
    Class, Cost, Event, Kind, Layer, StackNode, Trace, Writer, WriterOptions, flags,
};

const MIB: u64 = 1 << 20;

/// A trace in a folder of its own.
struct Made {
    writer: Writer,
    _folder: tempfile::TempDir,
}

impl Made {
    fn new(ring_bytes: u64) -> Made {
        let folder = tempfile::tempdir().unwrap();
        let options = WriterOptions {
            bytes: ring_bytes,
            ..WriterOptions::default()
        };
        let writer = Writer::create(&folder.path().join("a.trace"), &options).unwrap();
        Made {
            writer,
            _folder: folder,
        }
    }

    fn alloc(&self, class: Class, address: u64, size: u64, stack: u32) {
        let kind = if class == Class::Tensor {
            Kind::TensorAlloc
        } else {
            Kind::Alloc
        };
        self.writer
            .record_alloc(&event(kind, class, address, size, stack));
    }

    fn free(&self, class: Class, address: u64, size: u64) {
        let kind = if class == Class::Tensor {
            Kind::TensorFree
        } else {
            Kind::Free
        };
        self.writer
            .record_free(&event(kind, class, address, size, 0));
    }

    fn range(&self, kind: Kind, name: &str) {
        let name = self.writer.intern(name).into();
        self.writer.record(&event(kind, Class::Device, name, 0, 0));
    }

    /// The function's stack: one frame of generated code of this name.
    fn stack(&self, number: u64, name: &str) -> u32 {
        let code = 0x10_000 + number * 64;
        self.writer.jit(code, 64, self.writer.intern(name));
        self.writer.stack(0, &[code + 32])
    }

    fn trace(&self) -> Trace {
        Trace::open(self.writer.path()).unwrap()
    }

    fn page(&self) -> Page {
        page(&[&self.trace()])
    }
}

fn event(kind: Kind, class: Class, address: u64, size: u64, stack: u32) -> Event {
    Event {
        device: 0,
        thread: 7,
        flags: flags::FORWARDED,
        stack,
        address,
        size,
        extra: match class {
            Class::Tensor => [size, 2 * size],
            _ => [0, Cost::pack(10, size)],
        },
        ..Event::new(kind, class)
    }
}

/// A page, and what is in it.
struct Page {
    html: String,
    recordings: Vec<(Value, BTreeMap<String, Vec<u64>>)>,
    index: Value,
}

fn page(recordings: &[&dyn Recording]) -> Page {
    let mut html = Vec::new();
    write_page(recordings, &mut html).unwrap();
    let html = String::from_utf8(html).unwrap();
    let between = |begin: &str| -> Vec<String> {
        let parts = html.split(begin).skip(1);
        parts
            .map(|part| part.split_once("</script>").unwrap().0.to_string())
            .collect()
    };
    let recordings = between("<script type=\"text/plain\" class=\"recording\">");
    let index = between("<script type=\"text/plain\" id=\"index\">");
    Page {
        recordings: recordings.iter().map(|text| unpack(text)).collect(),
        index: unpack(&index[0]).0,
        html,
    }
}

impl Page {
    fn head(&self) -> &Value {
        &self.recordings[0].0
    }

    fn column(&self, name: &str) -> &[u64] {
        &self.recordings[0].1[name]
    }

    fn view(&self, layer: &str) -> &Value {
        let views = self.head()["views"].as_array().unwrap();
        views.iter().find(|view| view["layer"] == layer).unwrap()
    }

    /// The most and the last of a view's curve of this name.
    fn curve(&self, layer: &str, name: &str) -> (u64, u64) {
        let curves = self.view(layer)["curves"].as_array().unwrap();
        let curve = curves.iter().find(|curve| curve[0] == name).unwrap();
        let column = |what| self.column(&format!("curve{}_{what}", curve[1]));
        let most = column("min")
            .iter()
            .zip(column("more"))
            .map(|(min, more)| min + more);
        let most: Vec<u64> = most.collect();
        (*most.iter().max().unwrap(), *column("min").last().unwrap())
    }

    /// Blocks and bytes that were ever allocated and that are live at the end, exact and summed.
    fn totals(&self) -> [(u64, u64); 2] {
        let sizes = self.column("sizes");
        let (mut all, mut live) = ((0, 0), (0, 0));
        for (size, life) in self
            .column("block_size")
            .iter()
            .zip(self.column("block_life"))
        {
            let size = sizes[*size as usize];
            all = (all.0 + 1, all.1 + size);
            if *life == 0 {
                live = (live.0 + 1, live.1 + size);
            }
        }
        let sum = |name: &str| self.column(name).iter().sum::<u64>();
        all = (all.0 + sum("sum_count"), all.1 + sum("sum_bytes"));
        live.0 += sum("sum_count") - sum("sum_freed_count");
        live.1 += sum("sum_bytes") - sum("sum_freed_bytes");
        [all, live]
    }

    /// What was live at the peak, from the blocks that are exact.
    fn live_at_peak(&self, layer: &str) -> u64 {
        let at = self.view(layer)["peak_ns"].as_u64().unwrap();
        let (from, life) = (self.column("block_from"), self.column("block_life"));
        let size = self.column("block_size");
        let views = self.head()["views"].as_array().unwrap();
        let number = views
            .iter()
            .position(|view| view["layer"] == layer)
            .unwrap() as u64;
        let is_live = |index: &usize| {
            self.column("block_view")[*index] == number
                && from[*index] <= at
                && (life[*index] == 0 || at < from[*index] + life[*index] - 1)
        };
        let live = (0..from.len()).filter(is_live);
        live.map(|index| self.column("sizes")[size[index] as usize])
            .sum()
    }
}

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
    let summary = Report::of(&made.trace()).summary;
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
    let sum =
        |of: fn(&crate::analysis::Classes) -> u64| summary.classes.iter().map(of).sum::<u64>();
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
    // The five functions, what lies beyond the bound, and nothing twice.
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

/// What the page promises: nothing is fetched, nothing but its own script runs.
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

/// Without stacks, the ranges that were open tell blocks apart, whatever iteration it was.
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

/// The ring holds the last events only: what is live is known nevertheless.
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
    assert!(
        texts
            .iter()
            .any(|text| text == "allocated before the first event")
    );
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
    let names: std::collections::BTreeSet<_> = layers.map(books::layer_name).into();
    assert_eq!(names.len(), layers.len());
    let script = SCRIPTS.concat();
    for name in names {
        assert!(
            script.contains(&format!("{name}: \"")),
            "data.js has no words for {name}"
        );
    }
}
