use super::*;
use gpushim_trace::{Class, Cost, Event, Kind, TimelineFollower, Writer, WriterOptions};

/// A ring that lost the peak: no least limit is named.
#[test]
fn a_peak_that_is_lost() {
    for lost in [0, 64 * MIB] {
        let dir = tempfile::tempdir().unwrap();
        let options = WriterOptions {
            bytes: 4096,
            ..WriterOptions::default()
        };
        let path = dir.path().join("a.trace");
        let writer = Writer::create(&path, &options).unwrap();
        let mut timeline = TimelineFollower::new(&writer, None);
        let block = |kind, address, size| Event {
            device: 0,
            address,
            size,
            extra: [0, Cost::pack(0, size)],
            ..Event::new(kind, Class::PoolAsync)
        };
        let allocate = |at, size| writer.record_alloc(&block(Kind::Alloc, at, size));
        let free = |at, size| writer.record_free(&block(Kind::Free, at, size));
        allocate(1 << 40, 10 * MIB);
        allocate(2 << 40, 8 * MIB + lost);
        free(2 << 40, 8 * MIB + lost);
        // The timeline has buckets of a third of a millisecond.
        std::thread::sleep(Duration::from_millis(5));
        for _ in 0..200 {
            timeline.flush_with(&mut |_| {});
            allocate(3 << 40, 20 * MIB);
            free(3 << 40, 20 * MIB);
        }
        let recording = recording::open(&path).unwrap();
        let recorded = Recorded::of(&*recording, Focus::of(&*recording, None), None);
        assert!(recorded.is_wrapped && recorded.has_history());
        assert_eq!(recorded.devices[&0].peak(), 30 * MIB, "with what was there");
        assert_eq!(recorded.is_peak_unsure(), lost > 0);
        let tuned = quietly(&[recorded], &OPTIONS);
        let limit = tuned.advice.as_ref().expect("advice").smallest_limit;
        assert_eq!(limit.is_some(), lost == 0);
        assert!(limit.is_none_or(|limit| limit >= 30 * MIB));
        assert!(tuned.confidence.level < Level::Sure);
    }
}
