use super::*;
use crate::iterations::Search;
use crate::ledger::sample::Training;
use crate::ledger::{LiveAt, Moment, walk};
use crate::peak::Peak;

/// What one pass tells is what each analysis finds by itself.
#[test]
fn one_pass_tells_what_many_do() {
    for (ranges, one_function, leak, takes_down) in [
        (true, false, 1_101_004, false),
        (false, false, 1_101_004, true),
        (false, true, 300_000, false),
        (true, false, 0, true),
        (false, false, 0, false),
    ] {
        let how = Training {
            ranges,
            one_function,
            leak,
            takes_down,
            varies: true,
            ..Training::default()
        };
        let (_dir, trace) = how.record();
        let focus = Focus::of(&trace, None);
        let iterations = Iterations::find(&trace, focus).unwrap_or_else(|| panic!("{how:?}"));
        let peak = Peak::at(&trace, focus, Moment::Peak);
        let mut search = Search::new(&trace, focus);
        read(&trace, &mut [&mut search]);
        let moments = [u64::MAX, peak.ticket];
        let mut follow = Follow::new(&trace, focus, search.choose(), &moments, None);
        read(&trace, &mut [&mut follow]);
        let found = follow.finish();
        let starts = found.iterations.as_ref().map(|found| &found.starts);
        assert_eq!(starts, Some(&iterations.starts), "{how:?}");
        let last = iterations.starts.iter().rev().nth(1).unwrap();
        let mut live = LiveAt::new(last.ticket);
        walk(&trace, focus, &mut [&mut live]);
        assert_eq!(found.kept.live, live.into_blocks(), "{how:?}");
        let [end, at_peak] = &found.live_at[..] else {
            panic!("two moments");
        };
        let moment = (peak.ns, peak.ticket);
        assert_eq!(Peak::of(&trace, moment, at_peak), peak, "{how:?}");
        let last = Peak::at(&trace, focus, Moment::End);
        assert_eq!(end.len() as u64, last.blocks, "{how:?}");
    }
}
