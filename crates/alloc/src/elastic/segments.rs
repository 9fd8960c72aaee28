//! All segments of a device, by their addresses.

use super::segment::Segment;

/// Segments in the order of addresses. Each announcement searches it several times; the first
/// addresses of a few segments fit into one line of the processor's cache.
#[derive(Default)]
pub(super) struct Segments(Vec<(u64, Box<Segment>)>);

impl Segments {
    /// Adds a segment, which shares no page with another.
    pub fn insert(&mut self, segment: Segment) {
        let index = self.0.partition_point(|(base, _)| *base <= segment.base);
        self.0.insert(index, (segment.base, Box::new(segment)));
    }

    /// Removes the segment that begins at an address.
    pub fn remove(&mut self, base: u64) -> Option<Box<Segment>> {
        let index = self.0.binary_search_by_key(&base, |(base, _)| *base).ok()?;
        Some(self.0.remove(index).1)
    }

    /// Index of the last segment that begins at this address or before.
    #[inline]
    fn index(&self, address: u64) -> Option<usize> {
        let behind = self.0.partition_point(|(base, _)| *base <= address);
        behind.checked_sub(1)
    }

    /// Finds the segment around an address.
    #[inline]
    pub fn around(&self, address: u64) -> Option<&Segment> {
        let (_, segment) = self.0.get(self.index(address)?)?;
        (address < segment.end()).then_some(segment)
    }

    /// Finds the segment around an address.
    #[inline]
    pub fn around_mut(&mut self, address: u64) -> Option<&mut Segment> {
        let index = self.index(address)?;
        let (_, segment) = self.0.get_mut(index)?;
        (address < segment.end()).then_some(segment)
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
        let last = self.index(address.saturating_add(bytes).saturating_sub(1));
        let last = last.and_then(|index| self.0.get(index));
        last.is_some_and(|(_, segment)| address < segment.end())
    }

    pub fn values(&self) -> impl Iterator<Item = &Segment> {
        self.0.iter().map(|(_, segment)| &**segment)
    }

    pub fn values_mut(&mut self) -> impl Iterator<Item = &mut Segment> {
        self.0.iter_mut().map(|(_, segment)| &mut **segment)
    }
}
