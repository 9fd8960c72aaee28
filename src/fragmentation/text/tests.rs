use super::*;
use crate::output::answer::Shown;
use gpushim_trace::{Class, Cost, Event, Kind, Trace, Writer, WriterOptions};

const MIB: u64 = 1 << 20;

fn report(segments: u64) -> FragmentationReport {
    let dir = tempfile::tempdir().unwrap();
    let writer = Writer::create(&dir.path().join("a.trace"), &WriterOptions::default()).unwrap();
    for number in 1..=segments {
        let event = |kind, size| Event {
            device: 0,
            address: number << 32,
            size,
            extra: [0, Cost::pack(0, size)],
            ..Event::new(kind, Class::Device)
        };
        writer.record(&event(Kind::Reserve, 20 * MIB));
        writer.record_alloc(&event(Kind::Alloc, 2 * MIB));
    }
    let trace = Trace::open(writer.path()).unwrap();
    let focus = Focus::of(&trace, None);
    FragmentationReport::of(&trace, focus, Moment::Peak, &mut *trace.names())
}

#[test]
fn the_verdict_and_the_map() {
    let found = report(4);
    assert!(found.is_found());
    let text = Shown(&found, 3).to_string();
    assert!(
        text.contains(
            "Fragmented: when memory grew to its peak for 2.0 MiB, 72.0 MiB (90.0 %) of the 80.0 MiB that are reserved lay free \
             in pieces, the largest 18.0 MiB, beside blocks that keep them; 72.0 MiB of it in 4 segments, nearly \
             empty: an allocation without a recorded stack keeps 4 of those with 4 blocks of 8.0 MiB in all.\n  \
             GPUSHIM_POLICY=vmm would have reserved 8.0 MiB, 72.0 MiB less (by replay)\n"
        ),
        "{text}"
    );
    let map = text
        .lines()
        .filter(|line| line.ends_with("▇···········································"));
    assert_eq!(map.count(), 4, "{text}");
    let pins = text
        .lines()
        .filter(|line| line.contains("18.0 MiB") && line.starts_with("0x"));
    assert_eq!(pins.count(), 3, "three lines of each list: {text}");
}

#[test]
fn silent_where_little_is_free() {
    let found = report(2);
    assert!(!found.is_found());
    assert!(
        found
            .verdict
            .starts_with("Not fragmented: 36.0 MiB (90.0 %)"),
        "{}",
        found.verdict
    );
    let nothing = report(0);
    assert!(
        nothing
            .verdict
            .starts_with("The recording has no reserved memory"),
        "{}",
        nothing.verdict
    );
}
