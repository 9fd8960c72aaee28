//! All segments of a device, found by any address in them without a search: each announcement looks several times.

use rustc_hash::FxHashMap;

use super::pages::PAGE;
use super::segment::Segment;

/// The segments.
#[derive(Default)]
pub(super) struct Segments {
    /// Where there is none, the place is in `unused`.
    places: Vec<Option<Segment>>,
    unused: Vec<usize>,
    /// The place of the segment that each page is of, by the page's number from address 0.
    by_page: FxHashMap<u64, usize>,
}

impl Segments {
    /// A new one, which begins on a page and shares none.
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

    /// Takes out the one that begins at an address.
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

    /// The one that an address is in.
    #[inline]
    pub fn around(&self, address: u64) -> Option<&Segment> {
        let place = *self.by_page.get(&(address / PAGE))?;
        self.places.get(place)?.as_ref()
    }

    /// The one that an address is in.
    #[inline]
    pub fn around_mut(&mut self, address: u64) -> Option<&mut Segment> {
        let place = *self.by_page.get(&(address / PAGE))?;
        self.places.get_mut(place)?.as_mut()
    }

    /// The one that begins at an address.
    #[inline]
    pub fn get(&self, base: u64) -> Option<&Segment> {
        self.around(base).filter(|segment| segment.base == base)
    }

    /// The one that begins at an address.
    #[inline]
    pub fn get_mut(&mut self, base: u64) -> Option<&mut Segment> {
        self.around_mut(base).filter(|segment| segment.base == base)
    }

    /// Whether any of these bytes are in one.
    pub fn reach(&self, address: u64, bytes: u64) -> bool {
        let end = address.saturating_add(bytes);
        let mut all = self.values();
        all.any(|segment| segment.base < end && address < segment.base + segment.reserved())
    }

    /// All.
    pub fn values(&self) -> impl Iterator<Item = &Segment> {
        self.places.iter().flatten()
    }

    /// All.
    pub fn values_mut(&mut self) -> impl Iterator<Item = &mut Segment> {
        self.places.iter_mut().flatten()
    }
}

/// The numbers of a segment's pages.
fn pages(segment: &Segment) -> impl Iterator<Item = u64> + use<> {
    let first = segment.base / PAGE;
    first..first + segment.reserved() / PAGE
}
