use super::*;
use crate::symbols::Kind;

struct Way(Holder);

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.way(f)
    }
}

fn function(name: &str, file: &str, line: Option<u32>) -> Function {
    Function {
        name: name.to_string(),
        file: Some(file.to_string()),
        line,
        module: None,
        kind: Kind::Python,
    }
}

fn way(library: usize, user: usize) -> Vec<String> {
    let frame = |name: &str, number: usize| {
        function(&format!("{name}{number}"), &format!("{name}.py"), None)
    };
    let frames = (0..library).map(|number| frame("library", number));
    let frames = frames.chain((0..user).map(|number| frame("mine", number)));
    let who = CallSite {
        function: Some(frame("mine", 0)),
        frames: frames.collect(),
        frames_hidden: 7,
        ..CallSite::default()
    };
    let holder = Holder {
        who,
        blocks: 1,
        bytes: 2048,
        per_iteration: None,
        share: 1.0,
        oldest_ns: None,
        made_before: false,
        kept_by: None,
    };
    let text = Way(holder).to_string();
    let mut lines: Vec<String> = text.lines().skip(2).map(str::to_string).collect();
    let last = lines.pop().unwrap();
    assert_eq!(
        last,
        "  (without 7 calls of allocators, runtimes and interpreters)"
    );
    lines
}

#[test]
fn the_way_from_an_allocation_to_main() {
    assert_eq!(
        way(1, 2),
        [
            "  library0  library.py",
            "  mine0  mine.py",
            "  mine1  mine.py"
        ]
    );
    // Five calls of libraries are shown, more are counted.
    assert_eq!(way(5, 1).len(), 6);
    let long = way(20, 2);
    assert_eq!(
        long,
        [
            "  library0  library.py",
            "  library1  library.py",
            "  library2  library.py",
            "  … 15 calls within libraries",
            "  library18  library.py",
            "  library19  library.py",
            "  mine0  mine.py",
            "  mine1  mine.py",
        ]
    );
    let deep = way(20, 40);
    assert_eq!(deep.len(), 32);
    assert_eq!(deep[31], "  and 15 more");
}

#[test]
fn names_with_templates() {
    let long = format!("{}  libtorch.so", "x".repeat(500));
    assert_eq!(shortened(&long).chars().count(), LETTERS + 1 + 2 + 11);
    assert!(shortened(&long).ends_with("…  libtorch.so"));
    assert_eq!(shortened("main  train.py:3"), "main  train.py:3");
}

/// A call site of `copy` with these functions before and after it, by name and line.
fn site(inner: &[(&str, u32)], outer: &[(&str, u32)], ranges: &[&str]) -> CallSite {
    let frame = |(name, line): &(&str, u32)| function(name, "/me/train.py", Some(*line));
    let copy = function("copy", "/me/train.py", Some(5));
    let frames = inner.iter().map(frame).chain([copy.clone()]);
    CallSite {
        function: Some(copy),
        is_own: true,
        frames: frames.chain(outer.iter().map(frame)).collect(),
        ranges: ranges.iter().map(|name| name.to_string()).collect(),
        ..CallSite::default()
    }
}

#[test]
fn rows_that_would_look_the_same_show_where_they_differ() {
    let forward = |line| site(&[], &[("forward", line), ("main", 90)], &[]);
    let told = |sites: &[CallSite]| labels(sites, "no stack");
    let copy = "copy  train.py:5";
    assert_eq!(told(&[forward(7)]), [copy]);
    assert_eq!(
        told(&[forward(7), forward(8)]),
        [
            format!("{copy} ← forward train.py:7"),
            format!("{copy} ← forward train.py:8")
        ]
    );
    // The callers differ farther out; of three the first two need another frame.
    let block = |of, line| site(&[], &[("forward", 7), (of, line), ("main", 90)], &[]);
    assert_eq!(
        told(&[block("a", 1), block("a", 2), site(&[], &[("step", 3)], &[])]),
        [
            format!("{copy} ← forward train.py:7 ← a train.py:1"),
            format!("{copy} ← forward train.py:7 ← a train.py:2"),
            format!("{copy} ← step train.py:3"),
        ]
    );
    // The callee differs, or only the range.
    let empty = site(&[("empty", 1)], &[], &[]);
    let zeros = site(&[("zeros", 1)], &[], &["step"]);
    assert_eq!(
        told(&[empty, zeros.clone()]),
        [
            format!("{copy} → empty train.py:1"),
            format!("{copy} → zeros train.py:1")
        ]
    );
    let [mut mul, mut div] = [zeros.clone(), zeros.clone()];
    (mul.operator, div.operator) = (Some("mul".to_string()), Some("div".to_string()));
    assert_eq!(
        told(&[mul, div]),
        [format!("{copy} → mul"), format!("{copy} → div")]
    );
    let other = site(&[("zeros", 1)], &[], &["warm-up"]);
    assert_eq!(
        told(&[zeros.clone(), other]),
        [format!("{copy} [step]"), format!("{copy} [warm-up]")]
    );
    // Nothing tells them apart.
    assert_eq!(told(&[zeros.clone(), zeros]), [copy, copy]);
    assert_eq!(told(&[CallSite::default()]), ["no stack"]);
}
