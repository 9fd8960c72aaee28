//! All segments of a device. Each announcement looks up addresses several times, so any address in
//! a segment finds it without a search.

use rustc_hash::FxHashMap;

use super::pages::PAGE;
use super::segment::Segment;

#[derive(Default)]
pub(super) struct Segments {
    /// `None` at the indices in `unused`.
    places: Vec<Option<Segment>>,
    unused: Vec<usize>,
    /// Index in `places` for each page of a segment; the key is the address divided by [`PAGE`].
    by_page: FxHashMap<u64, usize>,
}

impl Segments {
    /// Adds a segment, which begins on a page and shares no page with another.
    pub fn insert(&mut self, segment: Segment) {
        debug_assert!(segment.base.is_multiple_of(PAGE));
        let place = self.unused.pop().unwrap_or_else(|| {
            self.places.push(None);
            self.places.len() - 1
        });
        for page in pages(&segment) {
            self.by_page.insert(page, place);
        }
        self.places[place] = Some(segment);
    }

    /// Extends the segment that begins at an address to this many bytes, if it has fewer. The new
    /// pages are not mapped.
    pub fn grow(&mut self, base: u64, bytes: u64) {
        let Some(segment) = self.get_mut(base).filter(|segment| segment.bytes < bytes) else {
            return;
        };
        let first = segment.end() / PAGE;
        segment.grow(bytes);
        let end = segment.end() / PAGE;
        if let Some(&place) = self.by_page.get(&(base / PAGE)) {
            self.by_page.extend((first..end).map(|page| (page, place)));
        }
    }

    /// Removes the segment that begins at an address.
    pub fn remove(&mut self, base: u64) -> Option<Segment> {
        self.get(base)?;
        let place = *self.by_page.get(&(base / PAGE))?;
        let segment = self.places[place].take()?;
        self.unused.push(place);
        for page in pages(&segment) {
            self.by_page.remove(&page);
        }
        Some(segment)
    }

    /// Finds the segment around an address.
    #[inline]
    pub fn around(&self, address: u64) -> Option<&Segment> {
        let place = *self.by_page.get(&(address / PAGE))?;
        self.places.get(place)?.as_ref()
    }

    /// Finds the segment around an address.
    #[inline]
    pub fn around_mut(&mut self, address: u64) -> Option<&mut Segment> {
        let place = *self.by_page.get(&(address / PAGE))?;
        self.places.get_mut(place)?.as_mut()
    }

    /// Finds the segment that begins at an address.
    #[inline]
    pub fn get(&self, base: u64) -> Option<&Segment> {
        self.around(base).filter(|segment| segment.base == base)
    }

    /// Finds the segment that begins at an address.
    #[inline]
    pub fn get_mut(&mut self, base: u64) -> Option<&mut Segment> {
        self.around_mut(base).filter(|segment| segment.base == base)
    }

    /// True if any of these bytes are in a segment.
    pub fn reach(&self, address: u64, bytes: u64) -> bool {
        let end = address.saturating_add(bytes);
        let mut all = self.values();
        all.any(|segment| segment.base < end && address < segment.end())
    }

    pub fn values(&self) -> impl Iterator<Item = &Segment> {
        self.places.iter().flatten()
    }

    pub fn values_mut(&mut self) -> impl Iterator<Item = &mut Segment> {
        self.places.iter_mut().flatten()
    }
}

/// Numbers of a segment's pages.
fn pages(segment: &Segment) -> impl Iterator<Item = u64> + use<> {
    segment.base / PAGE..segment.end() / PAGE
}
