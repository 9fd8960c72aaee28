//! Growth rate of the memory of a running process, from the timeline of its trace.

use gpushim_trace::Span;

/// A run that is shorter says nothing of a minute, ns.
const SHORTEST: u64 = 5_000_000_000;
/// Longest time at the end of the run that counts, ns. At most the second half of the run counts:
/// memory taken at the start is no growth.
const WINDOW: u64 = 600_000_000_000;
/// Stretches that a slope needs.
const LEAST: usize = 4;
const MINUTE: f64 = 60e9;

/// Bytes a minute by which the floor of a series rises or falls.
///
/// It is the slope of a straight line through the least of each stretch of time (least squares).
/// `None` if the run is too short.
pub fn per_minute(spans: &[Span]) -> Option<f64> {
    let (first, last) = (spans.first()?, spans.last()?);
    let ran = last.to_ns.saturating_sub(first.from_ns);
    if ran < SHORTEST {
        return None;
    }
    let from = last.to_ns - (ran / 2).min(WINDOW);
    let begin = spans.partition_point(|span| span.from_ns < from);
    let points = spans.get(begin..).filter(|points| points.len() >= LEAST)?;
    let number = points.len() as f64;
    let middle = |span: &Span| span.from_ns.midpoint(span.to_ns).saturating_sub(from) as f64;
    let (mut time, mut level) = (0.0, 0.0);
    for span in points {
        time += middle(span) / number;
        level += span.min as f64 / number;
    }
    let (mut together, mut alone) = (0.0, 0.0);
    for span in points {
        let off = middle(span) - time;
        together += off * (span.min as f64 - level);
        alone += off * off;
    }
    (alone > 0.0).then(|| together / alone * MINUTE)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn spans(of: impl Fn(u64) -> (u64, u64), count: u64) -> Vec<Span> {
        let span = |at: u64| {
            let (min, max) = of(at);
            Span {
                from_ns: at * SECOND,
                to_ns: (at + 1) * SECOND,
                min,
                max,
            }
        };
        (0..count).map(span).collect()
    }

    #[test]
    fn the_floor_counts_and_not_what_goes_up_and_down() {
        let steady = spans(|at| (100, 1000 + at % 7 * 100), 120);
        assert_eq!(per_minute(&steady), Some(0.0));
        let grows = spans(|at| (at * 50, at * 50 + 9_999), 120);
        let slope = per_minute(&grows).expect("long enough");
        assert!((slope - 3000.0).abs() < 1e-6, "{slope}");
        let falls = spans(|at| (10_000 - at * 10, 20_000), 120);
        let slope = per_minute(&falls).expect("long enough");
        assert!((slope + 600.0).abs() < 1e-6, "{slope}");
    }

    #[test]
    fn what_is_taken_at_the_start_is_no_growth() {
        let start = spans(|at| (at.min(50) * 1000, 90_000), 120);
        assert_eq!(per_minute(&start), Some(0.0));
    }

    #[test]
    fn a_short_run_says_nothing() {
        assert_eq!(per_minute(&[]), None);
        assert_eq!(per_minute(&spans(|at| (at, at), 4)), None);
    }
}
