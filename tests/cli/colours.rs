//! Colours and the width of lines, on terminals and elsewhere.

use super::pseudo_terminal::start;
use super::*;

/// Visible text: without the sequences that colour it.
fn seen(text: &str) -> String {
    let mut parts = text.split("\u{1b}[");
    let first = parts.next().unwrap_or_default().to_string();
    parts.fold(first, |seen, part| {
        seen + part.split_once('m').map_or("", |(_, rest)| rest)
    })
}

fn on_terminal(dir: &Path, args: &[&str], columns: u16, variable: Option<(&str, &str)>) -> String {
    let mut command = gpushim(dir, args);
    for name in ["NO_COLOR", "CLICOLOR", "CLICOLOR_FORCE"] {
        command.env_remove(name);
    }
    command.envs(variable);
    start(&mut command, columns).end().0
}

#[test]
fn a_terminal_has_colours_and_a_pipe_has_none() {
    let dir = tempfile::tempdir().unwrap();
    sample(&dir.path().join("a.trace"));
    let piped = stdout(&run(dir.path(), &["report", "a.trace"]));
    assert!(!piped.contains('\u{1b}'), "{piped}");
    let shown = on_terminal(dir.path(), &["report", "a.trace"], 110, None);
    assert!(shown.contains("\u{1b}[1mFindings\u{1b}[0m"), "{shown}");
    // Except for the lines of a long command.
    let words = |text: &str| {
        text.split_whitespace()
            .map(str::to_string)
            .collect::<Vec<_>>()
    };
    assert_eq!(words(&seen(&shown)), words(&piped), "the same text");
    let always = stdout(&run(
        dir.path(),
        &["--color", "always", "report", "a.trace"],
    ));
    assert_eq!(words(&always), words(&shown));
    for without in [
        on_terminal(
            dir.path(),
            &["report", "a.trace", "--color", "never"],
            110,
            None,
        ),
        on_terminal(
            dir.path(),
            &["report", "a.trace"],
            110,
            Some(("NO_COLOR", "1")),
        ),
    ] {
        assert_eq!(words(&without), words(&piped));
    }
    let json = stdout(&run(
        dir.path(),
        &["report", "a.trace", "--format", "json", "--color", "always"],
    ));
    assert!(!json.contains('\u{1b}'), "JSON is for programs");
}

#[test]
fn nothing_in_a_file_colours_the_terminal() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.trace");
    let writer = Writer::create(&path, &WriterOptions::default()).unwrap();
    writer.fact("problem", "\u{fdd1}red\u{fddf} \u{1b}[31mred");
    writer.record(&event(Kind::Alloc, 0x1000, MIB));
    drop(writer);
    let shown = stdout(&run(
        dir.path(),
        &["--color", "always", "report", "a.trace"],
    ));
    assert!(
        shown.contains("\\u{fdd1}red\\u{fddf} \\u{1b}[31mred"),
        "{shown}"
    );
}

#[test]
fn sentences_fit_the_terminal_and_tables_keep_their_columns() {
    let dir = tempfile::tempdir().unwrap();
    sample(&dir.path().join("a.trace"));
    for columns in [60, 80] {
        let mut lines = 0;
        for command in ["report", "oom", "peak", "growth", "fragmentation"] {
            let shown = seen(&on_terminal(
                dir.path(),
                &[command, "a.trace"],
                columns,
                None,
            ));
            for line in shown.lines() {
                lines += 1;
                let is_table = line.trim_start().contains("  ");
                let has_words = line.split_whitespace().count() > 6;
                assert!(
                    line.chars().count() <= usize::from(columns) || is_table || !has_words,
                    "{command}, {columns} columns: {line:?}"
                );
            }
        }
        assert!(lines > 60, "{lines} lines");
    }
    let narrow = seen(&on_terminal(dir.path(), &["report", "a.trace"], 60, None));
    assert!(narrow.contains("   at the end  Memory"), "{narrow}");
    // Sentences have the same words, however long the lines are.
    let words = |text: &str| {
        text.split_whitespace()
            .map(String::from)
            .collect::<Vec<_>>()
            .join(" ")
    };
    let wide = stdout(&run(dir.path(), &["oom", "a.trace"]));
    let narrow = seen(&on_terminal(dir.path(), &["oom", "a.trace"], 60, None));
    assert_eq!(words(&narrow), words(&wide));
}

/// Continuous integration often has a terminal that does not know its size.
#[test]
fn a_terminal_without_a_size_has_80_columns_and_the_variable_decides() {
    let dir = tempfile::tempdir().unwrap();
    sample(&dir.path().join("a.trace"));
    // The sentences of the findings: tables keep their columns.
    let widest = |text: &str| {
        let text = seen(text);
        let sentences = text.lines().skip_while(|line| line.trim() != "Findings");
        let sentences = sentences.take_while(|line| !line.starts_with("Held at"));
        let widest = sentences.map(|line| line.trim_end().chars().count()).max();
        widest.unwrap_or(0)
    };
    let report = ["report", "a.trace"];
    let unknown = widest(&on_terminal(dir.path(), &report, 0, None));
    assert!((60..=80).contains(&unknown), "{unknown}");
    let set = on_terminal(dir.path(), &report, 0, Some(("COLUMNS", "60")));
    assert!((40..=60).contains(&widest(&set)), "{set}");
    let mut command = gpushim(dir.path(), &report);
    let piped = stdout(&command.env("COLUMNS", "60").output().unwrap());
    assert!((40..=60).contains(&widest(&piped)), "{piped}");
}
