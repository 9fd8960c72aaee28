use super::*;
use gpushim_trace::{Class, Event, Kind, StackNode, Trace, Writer, WriterOptions};

/// Memory that rises and falls within ranges of several names.
fn made() -> (tempfile::TempDir, Trace) {
    let dir = tempfile::tempdir().unwrap();
    let writer = Writer::create(&dir.path().join("a.trace"), &WriterOptions::default()).unwrap();
    let event = |kind, address, size, stack| Event {
        device: 0,
        thread: 7,
        address,
        size,
        stack,
        ..Event::new(kind, Class::Device)
    };
    for step in 0..50_u64 {
        let name = writer.intern(&format!("step {step}"));
        let outer = writer.stack_child(0, StackNode::Range { name, domain: 0 });
        writer.record(&event(Kind::RangePush, name.into(), 0, outer));
        let name = writer.intern("forward");
        let inner = writer.stack_child(outer, StackNode::Range { name, domain: 0 });
        writer.record(&event(Kind::RangePush, name.into(), 0, inner));
        writer.record_alloc(&event(Kind::Alloc, 1 << 30, (1 + step % 7) << 20, inner));
        writer.record(&event(Kind::RangePop, 0, 0, outer));
        writer.record_free(&event(Kind::Free, 1 << 30, (1 + step % 7) << 20, outer));
        writer.record(&event(Kind::RangePop, 0, 0, 0));
    }
    let trace = Trace::open(writer.path()).unwrap();
    (dir, trace)
}

#[test]
fn extremes_are_kept_whatever_the_number_of_columns() {
    let (_dir, trace) = made();
    let whole = Run::of(&trace, None, 1);
    let curve = &whole.devices[0].curves[0];
    assert_eq!((curve.name, curve.peak), ("requested", 7 << 20));
    assert_eq!(curve.columns, [Some((0, 7 << 20))]);
    assert!(whole.is_complete && whole.devices.len() == 1);
    for columns in [2, 17, 80, 4000] {
        let run = Run::of(&trace, Some(0), columns);
        let fine = &run.devices[0].curves[0];
        assert_eq!(fine.columns.len(), columns);
        let most = fine.columns.iter().flatten().map(|(_, most)| *most).max();
        assert_eq!(most, Some(curve.peak));
        assert_eq!((fine.peak, fine.peak_ns), (curve.peak, curve.peak_ns));
        let names: Vec<_> = run.phases.iter().map(|phase| phase.name.as_str()).collect();
        assert_eq!(names, ["step #", "forward"]);
        for phase in &run.phases {
            assert!(phase.columns.iter().all(|part| (0.0..=1.0).contains(part)));
            assert!(phase.ns == 0 || phase.columns.iter().any(|part| *part > 0.0));
        }
    }
    assert!(Run::of(&trace, Some(3), 10).devices.is_empty());
}

#[test]
fn columns_have_the_spans_that_they_touch() {
    let span = |from_ns, to_ns, min, max| Span {
        from_ns,
        to_ns,
        min,
        max,
    };
    let spans = [span(10, 20, 5, 9), span(20, 30, 1, 7), span(60, 200, 3, 4)];
    let curve = curve("x", &spans, 99, 10).unwrap();
    let expected = [
        None,
        Some((5, 9)),
        Some((1, 7)),
        Some((3, 4)),
        Some((3, 4)),
        Some((3, 4)),
        Some((3, 4)),
        Some((3, 4)),
        Some((3, 4)),
        Some((3, 4)),
    ];
    assert_eq!(curve.columns, expected);
    assert_eq!((curve.peak, curve.peak_ns), (9, 10));
    assert_eq!(
        crate::timeline::find::curve("x", &[span(0, 9, 0, 0)], 99, 10),
        None
    );
    assert_eq!(
        covered(&[(0, 5), (8, 25)], 99, 10)[..4],
        [0.7, 1.0, 0.5, 0.0]
    );
    assert_eq!(covered(&[(0, u64::MAX)], u64::MAX, 3).len(), 3);
}
