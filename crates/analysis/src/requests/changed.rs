//! A run without a property of the recorded one: its streams, its pools, or the time of its
//! streams' work.

use super::{InitialSegment, Requests};

/// A function that returns requests without a property.
pub type Changed = fn(&Requests) -> Requests;

impl Requests {
    /// Returns all requests on the default stream.
    pub fn on_one_stream(&self) -> Requests {
        let mut one = self.clone();
        for (stream, _) in &mut one.by {
            *stream = stream.map(|_| 0);
        }
        one.segments_mut().for_each(|segment| segment.of.stream = 0);
        let given = &mut one.given;
        for block in given.blocks.iter_mut().chain(&mut given.waiting) {
            block.stream = block.stream.map(|_| 0);
        }
        one
    }

    /// Returns all requests from the default pool.
    pub fn in_one_pool(&self) -> Requests {
        let mut one = self.clone();
        one.allocator.pools.clear();
        for segment in one.segments_mut() {
            (segment.pool, segment.of.pool) = (0, (0, 0));
        }
        one
    }

    /// Returns requests in which freed blocks can serve others at once, even if streams still use
    /// them.
    pub fn without_waiting(&self) -> Requests {
        let mut one = self.clone();
        one.allocator.late.clear();
        one.given.waiting.clear();
        one
    }

    /// Returns true if requests are on several streams.
    pub fn has_streams(&self) -> bool {
        let mut streams = self.by.iter().map(|(stream, _)| stream);
        let first = streams.next();
        streams.any(|stream| Some(stream) != first)
    }

    /// Returns true if some blocks or segments are in pools of graphs or of the program.
    pub fn has_pools(&self) -> bool {
        let segments = self.given.segments.iter().chain(&self.allocator.got);
        !self.allocator.pools.is_empty() || segments.into_iter().any(|one| one.pool != 0)
    }

    /// Returns true if streams used some of the blocks when they were freed.
    pub fn has_waiting(&self) -> bool {
        !self.allocator.late.is_empty() || !self.given.waiting.is_empty()
    }

    fn segments_mut(&mut self) -> impl Iterator<Item = &mut InitialSegment> {
        self.given
            .segments
            .iter_mut()
            .chain(&mut self.allocator.got)
    }
}

#[cfg(test)]
mod tests {
    use super::super::made::{Shape, generate};
    use super::*;

    #[test]
    fn streams_go_and_all_else_stays() {
        let shape = Shape {
            layers: 4,
            steps: 3,
            streams: 3,
            ..Shape::default()
        };
        let whole = generate(&shape);
        assert!(whole.has_streams());
        let one = whole.on_one_stream();
        let streams: Vec<_> = one.iter().map(|request| request.stream).collect();
        assert!(streams.iter().all(|stream| *stream == streams[0]));
        let sizes = |of: &Requests| {
            let all = of.iter();
            all.map(|one| (one.op, one.block, one.bytes))
                .collect::<Vec<_>>()
        };
        assert_eq!(sizes(&one), sizes(&whole));
        assert!(!whole.has_pools() && !whole.has_waiting());
    }
}
