//! Large rises and falls of a level.

/// A level at a moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Point {
    pub ns: u64,
    /// The event that made it.
    pub ticket: u64,
    pub bytes: u64,
}

/// What a new value means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Turn {
    /// Nothing yet.
    None,
    /// The highest since the last fall.
    High,
    /// The lowest since that.
    Low,
    /// It has risen again by enough: a fall lies behind it, from here to here. What is now is the highest since.
    Fell(Point, Point),
}

/// Levels that differ by less than 1/`LEVEL` of the least fall are the same.
const LEVEL: u64 = 32;

/// Follows a level. It falls if it goes down by `least` from its highest; the fall lasts until it has gone up
/// by as much from its lowest.
#[derive(Clone, Debug)]
pub(super) struct Swing {
    pub least: u64,
    high: Point,
    low: Point,
}

impl Swing {
    pub fn new(least: u64) -> Swing {
        Swing {
            least: least.max(1),
            high: Point::default(),
            low: Point::default(),
        }
    }

    /// What comes is a fall of its own.
    pub fn begin(&mut self, now: Point) {
        (self.high, self.low) = (now, now);
    }

    /// Where the fall that it is in began.
    pub fn fell_from(&self) -> Option<Point> {
        self.is_falling().then_some(self.high)
    }

    fn is_falling(&self) -> bool {
        self.high.bytes.saturating_sub(self.low.bytes) >= self.least
    }

    /// The level is this.
    pub fn feed(&mut self, now: Point) -> Turn {
        if now.bytes < self.low.bytes {
            // Where a level goes up and down a little, the fall to it ended when it was reached.
            let deeper = self.low.bytes - now.bytes;
            if self.is_falling() && deeper < self.least / LEVEL {
                return Turn::None;
            }
            self.low = now;
            return Turn::Low;
        }
        if self.is_falling() {
            if now.bytes - self.low.bytes < self.least {
                return Turn::None;
            }
            let (high, low) = (self.high, self.low);
            (self.high, self.low) = (now, now);
            return Turn::Fell(high, low);
        }
        if now.bytes >= self.high.bytes {
            (self.high, self.low) = (now, now);
            return Turn::High;
        }
        Turn::None
    }

    /// The fall that goes on at the end, if one does.
    pub fn finish(&self) -> Option<(Point, Point)> {
        self.is_falling().then_some((self.high, self.low))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn falls(levels: &[u64]) -> Vec<(u64, u64)> {
        let mut swing = Swing::new(10);
        let mut falls = Vec::new();
        for (ticket, bytes) in (1..).zip(levels) {
            let now = Point {
                ns: ticket,
                ticket,
                bytes: *bytes,
            };
            if let Turn::Fell(from, to) = swing.feed(now) {
                falls.push((from.bytes, to.bytes));
            }
        }
        falls.extend(swing.finish().map(|(from, to)| (from.bytes, to.bytes)));
        falls
    }

    #[test]
    fn only_large_falls_count() {
        assert_eq!(falls(&[5, 50, 41, 60, 51, 55]), []);
        assert_eq!(falls(&[50, 45, 40, 49, 30, 39, 41, 60]), [(50, 30)]);
        assert_eq!(falls(&[50, 20, 50, 20]), [(50, 20), (50, 20)]);
        assert_eq!(falls(&[50, 45, 48, 40]), [(50, 40)]);
    }
}
