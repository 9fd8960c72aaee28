//! Help texts of the command.

use super::*;

#[test]
fn alone_it_says_on_one_screen_what_to_type() {
    let dir = tempfile::tempdir().unwrap();
    let output = run(dir.path(), &[]);
    // 0 would say that nothing was found.
    assert_eq!(
        (output.status.code(), stdout(&output).as_str()),
        (Some(2), "")
    );
    let screen = stderr(&output);
    assert!(screen.contains("gpushim run python train.py"), "{screen}");
    assert!(screen.lines().count() <= 24, "{screen}");
    assert!(
        screen.lines().all(|line| line.chars().count() <= 80),
        "{screen}"
    );
    assert!(!screen.contains('\u{1b}'), "{screen}");
}

#[test]
fn help_has_the_subcommands_in_groups() {
    let dir = tempfile::tempdir().unwrap();
    let output = run(dir.path(), &["--help"]);
    assert_eq!(output.status.code(), Some(0));
    let help = stdout(&output);
    let headings = [
        "Record:",
        "Diagnose:",
        "Look:",
        "Tune:",
        "Export:",
        "Help:",
        "Options:",
    ];
    let lines: Vec<&str> = help.lines().collect();
    let places = headings.map(|heading| lines.iter().position(|line| *line == heading));
    assert!(
        places.iter().all(Option::is_some) && places.is_sorted(),
        "{help}"
    );
    assert!(
        !help.contains('\u{1b}') && !help.contains("\n\n\n"),
        "{help}"
    );
    let coloured = stdout(&run(dir.path(), &["--color", "always", "--help"]));
    assert!(coloured.contains("\u{1b}[1mRecord:"), "{coloured}");
    assert_eq!(
        run(dir.path(), &["report", "--help"]).status.code(),
        Some(0)
    );
    let wrong = run(dir.path(), &["reprot"]);
    assert_eq!(wrong.status.code(), Some(2));
    assert!(stderr(&wrong).contains("report"), "{}", stderr(&wrong));
}

#[test]
fn former_subcommands_name_their_successor() {
    let dir = tempfile::tempdir().unwrap();
    sample(&dir.path().join("a.trace"));
    for (former, now) in [("leaks", "growth"), ("drops", "report")] {
        let said = format!(
            "gpushim: failed to run `{former}`: it is part of `{now}` now: gpushim {now} FILE\n"
        );
        for args in [
            &[former][..],
            &[former, "a.trace"],
            &[former, "--top", "30", "--format", "json", "a.trace"],
            &["help", former],
        ] {
            let output = run(dir.path(), args);
            assert_eq!(output.status.code(), Some(2), "{args:?}");
            assert_eq!(stderr(&output), said, "{args:?}");
            assert_eq!(stdout(&output), "", "{args:?}");
        }
        assert_ne!(run(dir.path(), &[now, "a.trace"]).status.code(), Some(2));
    }
    for (args, said) in [
        (
            &["fleet", "--job", "7", "--html", "job.html", "."][..],
            "gpushim: failed to run `fleet`: it is part of `report` now: gpushim report DIR\n",
        ),
        (
            &["flamegraph", "a.trace"],
            "gpushim: failed to run `flamegraph`: it is part of `html` and `export --to folded` now\n",
        ),
        (
            &["symbols", "-o", "job.symbols", "a.trace"],
            "gpushim: failed to run `symbols`: it is part of `pack` now: gpushim pack FILE\n",
        ),
        (
            &["export", "--to", "speedscope", "a.trace"],
            "gpushim: failed to export to `speedscope`: it opens pprof: gpushim export --to pprof -o FILE.pb.gz TRACE\n",
        ),
    ] {
        let output = run(dir.path(), args);
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        assert_eq!(stderr(&output), said);
    }
    let unknown = run(dir.path(), &["export", "--to", "svg", "a.trace"]);
    let said = stderr(&unknown);
    assert!(
        said.contains(
            "[possible values: memory-viz, perfetto, firefox, pprof, folded, rmm, json, parquet]"
        ),
        "{said}"
    );
    // A program of that name is run.
    let program = run(dir.path(), &["run", "leaks"]);
    assert!(
        !stderr(&program).contains("part of"),
        "{}",
        stderr(&program)
    );
}
