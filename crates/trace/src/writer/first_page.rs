//! First page of the file, with the places of all parts.

use super::places::Place;
use super::{CURSOR_AT, FACTS_AT, Writer};
use crate::clock::Pair;
use crate::layout::{self, PartKind, cursor, facts, field, header, live, part, totals};
use crate::{jit, modules, sites, stacks};

impl Writer {
    /// Writes the first page without its magic: the header, the parts directory and the field
    /// table.
    pub(super) fn write_header(&self, start: Pair, wall_ns: u64) {
        let mut page = vec![0_u8; layout::HEADER_BYTES];
        let places = &self.mapped.places;
        let sized = |kind, place: Place, stride| (kind, place.at, place.length, stride);
        let parts = [
            (PartKind::Facts, FACTS_AT, facts::BYTES as u64, 1),
            (
                PartKind::Cursor,
                CURSOR_AT,
                cursor::BYTES as u64,
                cursor::BYTES,
            ),
            sized(PartKind::Control, places.control, 8),
            sized(PartKind::Chunks, places.chunks, 8),
            sized(PartKind::Totals, places.totals, totals::STRIPE_BYTES),
            sized(PartKind::Live, places.live, live::GROUP_BYTES),
            sized(PartKind::Strings, places.strings, 8),
            sized(PartKind::Stacks, places.stacks, stacks::layout::BYTES),
            sized(PartKind::Modules, places.modules, modules::layout::BYTES),
            sized(PartKind::Jit, places.jit, jit::layout::BYTES),
            sized(PartKind::Sites, places.sites, sites::layout::BYTES),
            sized(PartKind::Timeline, places.timeline, 8),
            sized(PartKind::Ring, places.ring, layout::RECORD_BYTES),
        ];
        for (at, value) in [
            (header::MAJOR, layout::MAJOR),
            (header::MINOR, layout::MINOR),
            (header::BYTES, layout::HEADER_BYTES as u32),
            (header::PARTS_OFFSET, header::PARTS_AT as u32),
            (header::PARTS_COUNT, parts.len() as u32),
            (header::PARTS_STRIDE, part::BYTES as u32),
            (header::FIELDS_OFFSET, header::FIELDS_AT as u32),
            (header::FIELDS_COUNT, layout::FIELDS.len() as u32),
            (header::FIELDS_STRIDE, field::BYTES as u32),
            (header::CLOCK, self.clock as u32),
        ] {
            layout::put(&mut page, at, &value.to_le_bytes());
        }
        for (at, value) in [
            (header::FILE_BYTES, places.end()),
            (header::WALL_NS, wall_ns),
            (header::START_TICKS, start.ticks),
            (header::START_NS, start.ns),
        ] {
            layout::put(&mut page, at, &value.to_le_bytes());
        }
        for (index, (kind, offset, length, stride)) in parts.into_iter().enumerate() {
            let at = header::PARTS_AT + index * part::BYTES;
            layout::put(&mut page, at + part::KIND, &(kind as u32).to_le_bytes());
            layout::put(&mut page, at + part::OFFSET, &offset.to_le_bytes());
            layout::put(&mut page, at + part::LENGTH, &length.to_le_bytes());
            layout::put(&mut page, at + part::STRIDE, &(stride as u64).to_le_bytes());
        }
        for (index, entry) in layout::FIELDS.iter().enumerate() {
            let at = header::FIELDS_AT + index * field::BYTES;
            layout::put(&mut page, at + field::NAME, entry.name.as_bytes());
            layout::put(&mut page, at + field::OFFSET, &entry.offset.to_le_bytes());
            layout::put(&mut page, at + field::WIDTH, &entry.width.to_le_bytes());
        }
        let sum = layout::checksum(&page);
        layout::put(&mut page, header::CHECKSUM, &sum.to_le_bytes());
        self.put(0, &page);
    }
}
