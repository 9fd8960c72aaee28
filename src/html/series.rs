//! Curves over time: the least and the most in each of many equal stretches.

use gpushim_trace::Span;

/// A value over time, in stretches of equal length.
pub struct Curve {
    /// Least and most in each stretch, without earlier memory, which [`Curve::finish`] adds.
    buckets: Vec<(i64, i64)>,
    width_ns: u64,
    at: usize,
    now: i64,
    /// The most of all, and when it was first reached.
    peak: (i64, u64),
    /// Bytes that were live before the first event: freed, but without an allocation.
    missing: i64,
}

impl Curve {
    /// A curve that is 0 from the start to `end_ns`.
    pub fn new(end_ns: u64, buckets: usize) -> Curve {
        let buckets = buckets.max(1);
        Curve {
            buckets: vec![(0, 0); buckets],
            width_ns: (end_ns / buckets as u64 + 1).max(1),
            at: 0,
            now: 0,
            peak: (0, 0),
            missing: 0,
        }
    }

    /// Length of a stretch in ns.
    pub fn width_ns(&self) -> u64 {
        self.width_ns
    }

    /// Adds a change to the value.
    pub fn add(&mut self, ns: u64, bytes: i64) {
        self.set(ns, self.now.saturating_add(bytes));
    }

    /// Sets the value at a time in ns.
    pub fn set(&mut self, ns: u64, bytes: i64) {
        self.reach(ns);
        self.now = bytes;
        if bytes > self.peak.0 {
            self.peak = (bytes, ns);
        }
        if let Some((least, most)) = self.buckets.get_mut(self.at) {
            *least = (*least).min(bytes);
            *most = (*most).max(bytes);
        }
    }

    /// Subtracts bytes that were live before the first event.
    pub fn remove_unseen(&mut self, ns: u64, bytes: i64) {
        self.add(ns, bytes.saturating_neg());
        self.was_there(bytes);
    }

    /// Something was there all the time, before the first event too.
    pub fn was_there(&mut self, bytes: i64) {
        self.missing = self.missing.saturating_add(bytes);
    }

    /// The most of all, bytes, and when it was first reached, ns.
    pub fn peak(&self) -> (u64, u64) {
        (self.to_bytes(self.peak.0), self.peak.1)
    }

    /// Last value of the curve, in bytes.
    pub fn end(&self) -> u64 {
        self.to_bytes(self.now)
    }

    fn to_bytes(&self, value: i64) -> u64 {
        u64::try_from(value.saturating_add(self.missing)).unwrap_or(0)
    }

    /// Fills the stretches up to here with the value of now.
    fn reach(&mut self, ns: u64) {
        let to = usize::try_from(ns / self.width_ns).unwrap_or(usize::MAX);
        let to = to.min(self.buckets.len() - 1);
        while self.at < to {
            self.at += 1;
            self.buckets[self.at] = (self.now, self.now);
        }
    }

    /// Least and most of each stretch, bytes. Where events are lost, other known values stand for
    /// the time before the first of them.
    pub fn finish(mut self, first_ns: u64, before: &[Span]) -> Vec<(u64, u64)> {
        self.reach(u64::MAX);
        let mut done: Vec<(u64, u64)> = self
            .buckets
            .iter()
            .map(|(least, most)| (self.to_bytes(*least), self.to_bytes(*most)))
            .collect();
        if !before.is_empty() {
            paint(&mut done, self.width_ns, first_ns, before);
        }
        done
    }
}

/// A curve from stretches of another width.
pub fn from_spans(end_ns: u64, buckets: usize, spans: &[Span]) -> Vec<(u64, u64)> {
    let curve = Curve::new(end_ns, buckets);
    curve.finish(u64::MAX, spans)
}

/// Replaces the stretches before a moment by the values of spans.
fn paint(done: &mut [(u64, u64)], width_ns: u64, until_ns: u64, spans: &[Span]) {
    let mut spans = spans.iter().peekable();
    let mut last = None;
    let mut begin: u64 = 0;
    for bucket in done {
        let end = begin.saturating_add(width_ns);
        if end > until_ns {
            break;
        }
        // All spans that overlap this stretch; the last of them may overlap the next one too.
        let mut seen: Option<(u64, u64)> = None;
        while let Some(span) = spans.peek().filter(|span| span.from_ns < end) {
            let (least, most) = seen.unwrap_or((span.min, span.max));
            if span.to_ns > begin {
                seen = Some((least.min(span.min), most.max(span.max)));
            }
            if span.to_ns > end {
                break;
            }
            last = Some((span.max, span.max));
            spans.next();
        }
        // Before the first span only the memory that existed then is known.
        if let Some(known) = seen.or(last) {
            *bucket = known;
        }
        begin = end;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn least_and_most_of_each_stretch() {
        let mut curve = Curve::new(99, 10);
        curve.add(5, 100);
        curve.add(6, -40);
        curve.add(35, 10);
        curve.add(36, -70);
        curve.add(37, 20);
        let done = curve.finish(0, &[]);
        assert_eq!(done.len(), 10);
        assert_eq!(done[0], (0, 100));
        assert_eq!(done[1..3], [(60, 60); 2]);
        assert_eq!(done[3], (0, 70));
        assert_eq!(done[4..], [(20, 20); 6]);
    }

    #[test]
    fn what_was_there_before_lifts_all_of_it() {
        let mut curve = Curve::new(99, 10);
        curve.add(5, 10);
        curve.remove_unseen(50, 30);
        let done = curve.finish(0, &[]);
        assert_eq!((done[0], done[4], done[9]), ((30, 40), (40, 40), (10, 10)));
    }

    #[test]
    fn lost_times_come_from_spans() {
        let span = |from_ns, to_ns, min, max| Span {
            from_ns,
            to_ns,
            min,
            max,
        };
        let mut curve = Curve::new(99, 10);
        curve.was_there(7);
        let spans = [span(10, 35, 1, 5), span(35, 70, 2, 9)];
        let done = curve.finish(60, &spans);
        let expected = [(7, 7), (1, 5), (1, 5), (1, 9), (2, 9), (2, 9), (7, 7)];
        assert_eq!(done[..7], expected);
    }
}
