//! The log of RMM's `logging_resource_adaptor`, which RMM's replay benchmark and `gpushim` itself
//! read.

use std::io::Write;

use super::complete_events::{Change, CompleteEvents};
use crate::error::Result;
use crate::recording::Recording;
use gpushim_trace::{Kind, Layer};

const SECOND: u64 = 1_000_000_000;

/// Writes the requests of the layer that memory is held in. Times are those of the day, in UTC.
pub(super) fn write(recording: &dyn Recording, out: &mut dyn Write) -> Result<()> {
    let story = CompleteEvents::of(recording);
    let mut holders = story.holders();
    writeln!(out, "Thread,Time,Action,Pointer,Size,Stream")?;
    let mut lines = String::new();
    for record in story.events() {
        let event = &record.event;
        let ns = recording.wall_ns().wrapping_add(record.ns);
        let (seconds, micros) = (ns / SECOND, ns % SECOND / 1000);
        let time = format!(
            "{:02}:{:02}:{:02}.{micros:06}",
            seconds / 3600 % 24,
            seconds / 60 % 60,
            seconds % 60
        );
        let thread = event.thread;
        let mut line = |action: &str, address: u64, size: u64, stream: u64| {
            lines.push_str(&format!(
                "{thread},{time},{action},{address:#x},{size},{stream:#x}\n"
            ));
        };
        holders.feed(&story, &record, |change| match change {
            Change::Made(block, stream) => line("allocate", block.address, block.size, stream),
            Change::Dropped(block, stream) => line("free", block.address, block.size, stream),
            Change::Taken(..) | Change::Given(_) => {}
        });
        let is_ours = match event.kind {
            Kind::OutOfMemory => story.layer == Layer::Device,
            Kind::TensorOutOfMemory => story.layer == Layer::Tensor,
            _ => false,
        };
        if is_ours {
            let stream = recording.stream(&record).unwrap_or(0);
            line("allocate failure", 0, event.size, stream);
        }
        out.write_all(lines.as_bytes())?;
        lines.clear();
    }
    Ok(())
}
