//! The file in memory: mapped whole, with space for the beginnings of its parts.

use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use gpushim_descriptors::Identity;
use memmap2::{MmapOptions, MmapRaw};

use super::places::{Place, Places};
use super::tables::Tables;
use super::{CURSOR_AT, Mapped, WriterOptions, create, sums};
use crate::layout::{control, cursor, facts};
use crate::ring::{Ring, Slot};
use crate::space::{Room, Space};

/// Bytes at the beginning of each part that contain its counts.
const COUNTS: u64 = 64;

/// Bytes of the totals that have space from the start: the stripe that threads share.
const FIRST_STRIPE: u64 = crate::layout::totals::STRIPE_BYTES as u64;

impl Mapped {
    /// Maps a file that was just created.
    ///
    /// # Errors
    /// The error of the file system, or too little memory.
    pub(super) fn create(file: &File, path: &Path, options: &WriterOptions) -> io::Result<Mapped> {
        let places = Places::of(options);
        create::set_length(file, places.end())?;
        let map = map(file, places.end())?;
        // Without this advice each first access to a part reads ahead, megabytes of zeros. Without
        // it the accesses are only slower.
        let _ = map.advise(memmap2::Advice::Random);
        let memory = || io::Error::from(io::ErrorKind::OutOfMemory);
        let space = Space::new(
            (map.as_ptr() as usize, map.len()),
            places.chunks.at as usize,
            path.to_path_buf(),
            Identity::of(&file.metadata()?),
        );
        let space = Arc::new(space.ok_or_else(memory)?);
        if let Err(error) = begin(&space, &places) {
            // This file system takes no space ahead of use.
            create::write_zeros(file, places.end()).map_err(|_| error)?;
            begin(&space, &places)?;
        }
        let fits = || io::Error::other("the mapping does not fit its parts");
        let room = |place: Place| Room::of(&space, place.at);
        // SAFETY: all live in the same `Mapped` as the mapping, are dropped before it and never
        // leave it.
        let (ring, tables, live, tally) = unsafe {
            (
                ring(&map, &places).ok_or_else(fits)?,
                Tables::new(&map, &places, &space)?,
                sums::live(&map, &places).ok_or_else(fits)?,
                sums::tally(&map, &places).ok_or_else(fits)?,
            )
        };
        Ok(Mapped {
            ring: ring.within(room(places.chunks), room(places.ring)),
            tables,
            live: live.within(room(places.live)),
            tally: tally.within(room(places.totals)),
            places,
            space,
            map,
            process: std::process::id(),
        })
    }
}

/// Takes space for the bytes that are written without a check: header, the first facts, and the
/// counts of each part.
fn begin(space: &Space, places: &Places) -> io::Result<()> {
    space.retry();
    let parts = [
        (0, super::FACTS_AT + facts::TEXT as u64),
        (CURSOR_AT, cursor::BYTES as u64),
        (places.control.at, control::BYTES as u64),
        (places.totals.at, FIRST_STRIPE),
        (places.live.at, COUNTS),
        (places.strings.at, COUNTS),
        (places.stacks.at, COUNTS),
        (places.modules.at, COUNTS),
        (places.jit.at, COUNTS),
        (places.sites.at, COUNTS),
        (places.timeline.at, crate::timeline::STATE_BYTES as u64),
    ];
    let has = |(at, bytes): (u64, u64)| space.ensure(at as usize, bytes as usize);
    // The guard looks at the last page.
    let last = places.end().saturating_sub(1) as usize;
    if parts.into_iter().all(has) && space.reserve(last, 1) {
        return Ok(());
    }
    Err(io::Error::from_raw_os_error(libc::ENOSPC))
}

pub(super) fn map(file: &File, bytes: u64) -> io::Result<MmapRaw> {
    let bytes = usize::try_from(bytes).map_err(|_| io::Error::from(io::ErrorKind::FileTooLarge))?;
    MmapOptions::new().len(bytes).map_raw(file)
}

/// Returns the ring within a mapping.
///
/// # Safety
/// The mapping must live longer than what this returns, and the parts be accessed atomically only.
unsafe fn ring(map: &MmapRaw, places: &Places) -> Option<Ring<'static, AtomicU64>> {
    // SAFETY: the caller promises what `words` wants.
    let part = |at, length| unsafe { Place { at, length }.words(map) };
    let [next, .., dropped] = part(CURSOR_AT, cursor::DROPPED as u64 + 8)? else {
        return None;
    };
    let chunks = part(places.chunks.at, places.chunks.length)?;
    let slots = part(places.ring.at, places.ring.length)?;
    // SAFETY: a slot is eight of these words, aligned to a cache line as the ring is to a page.
    let (before, slots, after) = unsafe { slots.align_to::<Slot<AtomicU64>>() };
    let fits = before.is_empty() && after.is_empty();
    Ring::new(next, dropped, chunks, slots).filter(|_| fits)
}
