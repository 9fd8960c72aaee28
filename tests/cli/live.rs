//! The live view of `gpushim top`, on a terminal.

use super::pseudo_terminal::start;
use super::*;

#[test]
fn the_live_view_leaves_the_terminal_as_it_was() {
    let dir = tempfile::tempdir().unwrap();
    sample(&dir.path().join("a.trace"));
    for end in ["q", "\u{3}"] {
        let mut on = start(&mut gpushim(dir.path(), &["top", "a.trace"]), 100);
        on.wait_for("Enter: holders of its memory");
        on.press("\r");
        on.wait_for("over the whole run");
        on.press(end);
        let (seen, status) = on.end();
        assert_eq!(status.code(), Some(0), "{seen}");
        assert!(seen.starts_with("\u{1b}[?1049h"), "{seen:?}");
        let restored = "\u{1b}[?25h\u{1b}[?7h\u{1b}[?1049l";
        assert!(seen.ends_with(restored), "{seen:?}");
    }
}
