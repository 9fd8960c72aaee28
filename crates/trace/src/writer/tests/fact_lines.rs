//! Facts about the process.

use super::*;

#[test]
fn facts_survive_every_letter() {
    let dir = tempfile::tempdir().unwrap();
    let options = WriterOptions {
        rank: Some(7),
        ..small()
    };
    let writer = Writer::create(&dir.path().join("a.trace"), &options).unwrap();
    writer.fact("odd\tkey", "a\\b\tc\nd 'é'");
    writer.fact("hook", "cuMemAlloc_v2");
    writer.fact("hook", "cuMemFree_v2");
    let trace = Trace::open(writer.path()).unwrap();
    assert_eq!(trace.fact("odd\tkey").as_deref(), Some("a\\b\tc\nd 'é'"));
    assert_eq!(trace.fact("pid"), Some(std::process::id().to_string()));
    assert_eq!(trace.fact("rank").as_deref(), Some("7"));
    let hooks = trace
        .facts()
        .into_iter()
        .filter(|(key, _)| key == "hook")
        .count();
    assert_eq!((hooks, trace.facts_cut()), (2, 0));
}

#[test]
fn facts_are_bounded() {
    let dir = tempfile::tempdir().unwrap();
    let writer = Writer::create(&dir.path().join("a.trace"), &small()).unwrap();
    let long = "é".repeat(10_000);
    for _ in 0..100 {
        writer.fact("long", &long);
    }
    writer.fact("short", "still fits");
    writer.record(&numbered(1, 1));
    let trace = Trace::open(writer.path()).unwrap();
    let longs: Vec<_> = trace
        .facts()
        .into_iter()
        .filter(|(key, _)| key == "long")
        .collect();
    assert_eq!(longs[0].1, format!("{}…", "é".repeat(facts::VALUE_MAX / 2)));
    assert_eq!(longs.len() as u64 + trace.facts_cut(), 100);
    assert!(trace.facts_cut() > 0);
    assert_eq!(trace.fact("short").as_deref(), Some("still fits"));
    assert_eq!(
        trace.events().count(),
        1,
        "the facts did not run into the ring"
    );
}
