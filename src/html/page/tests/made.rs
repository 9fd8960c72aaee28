//! Traces made for a test, and the contents of their pages.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::html::pack::unpack::unpack;
use crate::html::page::write_page;
use crate::recording::Recording;
use gpushim_trace::{Class, Cost, Event, Kind, Trace, Writer, WriterOptions, flags};

/// A trace in a folder of its own.
pub struct Made {
    pub writer: Writer,
    _folder: tempfile::TempDir,
}

impl Made {
    pub fn new(ring_bytes: u64) -> Made {
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

    pub fn alloc(&self, class: Class, address: u64, size: u64, stack: u32) {
        let kind = if class == Class::Tensor {
            Kind::TensorAlloc
        } else {
            Kind::Alloc
        };
        self.writer
            .record_alloc(&event(kind, class, address, size, stack));
    }

    pub fn free(&self, class: Class, address: u64, size: u64) {
        let kind = if class == Class::Tensor {
            Kind::TensorFree
        } else {
            Kind::Free
        };
        self.writer
            .record_free(&event(kind, class, address, size, 0));
    }

    pub fn range(&self, kind: Kind, name: &str) {
        let name = self.writer.intern(name).into();
        self.writer.record(&event(kind, Class::Device, name, 0, 0));
    }

    /// The function's stack: one frame of generated code of this name.
    pub fn stack(&self, number: u64, name: &str) -> u32 {
        let code = 0x10_000 + number * 64;
        self.writer.jit(code, 64, self.writer.intern(name));
        self.writer.stack(0, &[code + 32])
    }

    pub fn trace(&self) -> Trace {
        Trace::open(self.writer.path()).unwrap()
    }

    pub fn page(&self) -> Page {
        page(&[&self.trace()])
    }
}

pub fn event(kind: Kind, class: Class, address: u64, size: u64, stack: u32) -> Event {
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

/// A page and its decoded contents.
pub struct Page {
    pub html: String,
    pub recordings: Vec<(Value, BTreeMap<String, Vec<u64>>)>,
    pub index: Value,
}

pub fn page(recordings: &[&dyn Recording]) -> Page {
    let mut html = Vec::new();
    let recordings: Vec<_> = recordings.iter().map(|one| (*one, None)).collect();
    write_page(&recordings, &mut html).unwrap();
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
    pub fn head(&self) -> &Value {
        &self.recordings[0].0
    }

    pub fn column(&self, name: &str) -> &[u64] {
        &self.recordings[0].1[name]
    }

    pub fn view(&self, layer: &str) -> &Value {
        let views = self.head()["views"].as_array().unwrap();
        views.iter().find(|view| view["layer"] == layer).unwrap()
    }

    /// The most and the last of a view's curve of this name.
    pub fn curve(&self, layer: &str, name: &str) -> (u64, u64) {
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

    /// Numbers and bytes of blocks: ever allocated, and live at the end. Exact blocks and sums
    /// together.
    pub fn totals(&self) -> [(u64, u64); 2] {
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

    /// Live bytes at the peak, computed from the exact blocks.
    pub fn live_at_peak(&self, layer: &str) -> u64 {
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
