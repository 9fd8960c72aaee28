//! Figures of a replay, and their course over the run.

use serde::Serialize;

use super::allocator::{Allocator, DriverTime};
use super::step::{Step, Steps};
use gpushim_analysis::requests::{Op, Request, Requests};

/// Most points of a [`Curve`].
const POINTS: usize = 512;

/// A part of a run: the highest figures in it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Point {
    /// Requests served up to its end.
    pub requests: u64,
    /// Ns since the start of the recording, at its end.
    pub ns: u64,
    /// Bytes asked for and not given back, at most.
    pub requested: u64,
    /// Bytes held from the driver, at most.
    pub reserved: u64,
    /// Bytes of the largest request that could be met without the driver, at its end.
    pub largest_free: u64,
}

/// Course of the run: at most 512 parts of equally many requests.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Curve(pub Vec<Point>);

/// A request that was not met.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Refused {
    /// Which request, from 0.
    pub request: u64,
    /// Bytes asked for.
    pub bytes: u64,
    /// Bytes live then, as asked for.
    pub requested: u64,
}

/// What came of a replay.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Outcome {
    /// Allocations that were asked for.
    pub allocations: u64,
    /// Highest sum of bytes asked for and not given back.
    pub peak_requested: u64,
    /// Highest sum of bytes held from the driver.
    pub peak_reserved: u64,
    /// `peak_requested` by `peak_reserved`.
    pub utilization: f64,
    /// Calls of the driver that get memory, map it or give it back.
    pub driver_calls: u64,
    /// Time of all driver calls, ns.
    pub driver_ns: u64,
    /// Requests that were not met.
    pub out_of_memory: u64,
    /// The first of them.
    pub first_out_of_memory: Option<Refused>,
    /// Bytes of the largest request that could have been met without the driver: the least of the curve.
    pub largest_free_least: u64,
    /// The same, the median.
    pub largest_free_median: u64,
    /// Its steps, where they are known.
    pub steps: Vec<Step>,
    /// How it went.
    pub curve: Curve,
    #[serde(skip)]
    requested: u64,
    #[serde(skip)]
    each: usize,
    /// Requests seen, and how many of them the curve has.
    #[serde(skip)]
    seen: (usize, usize),
    #[serde(skip)]
    point: Point,
    /// Steps up to the last request.
    #[serde(skip)]
    so_far: Steps,
}

impl Outcome {
    /// Makes the outcome of a replay before its first request.
    pub(super) fn new(requests: &Requests) -> Outcome {
        Outcome {
            allocations: 0,
            peak_requested: 0,
            peak_reserved: 0,
            utilization: 1.0,
            driver_calls: 0,
            driver_ns: 0,
            out_of_memory: 0,
            first_out_of_memory: None,
            largest_free_least: 0,
            largest_free_median: 0,
            steps: Vec::new(),
            curve: Curve::default(),
            requested: 0,
            each: requests.len().div_ceil(POINTS).max(1),
            seen: (0, 0),
            point: Point::default(),
            so_far: Steps::new(requests),
        }
    }

    pub(super) fn refused(&mut self, index: usize, request: &Request) {
        self.out_of_memory += 1;
        self.first_out_of_memory.get_or_insert(Refused {
            request: index as u64,
            bytes: request.bytes,
            requested: self.requested,
        });
    }

    /// Updates the figures after a request.
    #[inline]
    pub(super) fn see<A: Allocator + ?Sized>(
        &mut self,
        index: usize,
        request: &Request,
        is_refused: bool,
        allocator: &A,
    ) {
        match request.op {
            Op::Allocate => {
                self.allocations += 1;
                if !is_refused {
                    self.requested = self.requested.saturating_add(request.bytes);
                }
            }
            Op::Free => self.requested = self.requested.saturating_sub(request.bytes),
            Op::Done | Op::Trim => {}
        }
        let reserved = allocator.reserved();
        self.peak_requested = self.peak_requested.max(self.requested);
        self.peak_reserved = self.peak_reserved.max(reserved);
        let point = &mut self.point;
        point.requested = point.requested.max(self.requested);
        point.reserved = point.reserved.max(reserved);
        point.ns = request.ns;
        self.seen.0 = index + 1;
        if self.seen.0 - self.seen.1 >= self.each {
            self.close(allocator);
        }
    }

    /// Adds a request to the steps, after its effect is known.
    #[inline]
    pub(super) fn pass<A: Allocator + ?Sized>(
        &mut self,
        requests: &Requests,
        (index, is_served): (usize, bool),
        allocator: &A,
    ) {
        if self.so_far.go_on(requests) {
            let bytes = [self.requested, allocator.reserved()];
            let time = allocator.driver_time();
            self.so_far.see(requests, (index, is_served), bytes, time);
        }
    }

    fn close<A: Allocator + ?Sized>(&mut self, allocator: &A) {
        let largest_free = allocator.largest_free();
        let done = Point {
            requests: self.seen.0 as u64,
            largest_free,
            ..self.point
        };
        self.curve.0.push(done);
        self.seen.1 = self.seen.0;
        self.point = Point {
            requested: self.requested,
            reserved: allocator.reserved(),
            ..Point::default()
        };
    }

    pub(super) fn end<A: Allocator + ?Sized>(&mut self, allocator: &A) {
        if self.seen.0 > self.seen.1 {
            self.close(allocator);
        }
        self.steps = std::mem::take(&mut self.so_far.ended);
        let mut largest: Vec<u64> = self
            .curve
            .0
            .iter()
            .map(|point| point.largest_free)
            .collect();
        largest.sort_unstable();
        self.largest_free_least = largest.first().copied().unwrap_or(0);
        self.largest_free_median = largest.get(largest.len() / 2).copied().unwrap_or(0);
        let DriverTime { calls, ns } = allocator.driver_time();
        (self.driver_calls, self.driver_ns) = (calls, ns);
        if self.peak_reserved > 0 {
            self.utilization = self.peak_requested as f64 / self.peak_reserved as f64;
        }
    }
}
