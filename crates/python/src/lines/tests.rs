//! Against the tables and answers of every CPython of this machine.

use std::path::PathBuf;
use std::process::Command;

use super::*;

/// The interpreters of this machine, of versions whose tables are known.
fn interpreters() -> Vec<(PathBuf, u8)> {
    let home = std::env::var_os("PYENV_ROOT")
        .map(PathBuf::from)
        .or_else(|| {
            let home = std::env::var_os("HOME").map(PathBuf::from)?;
            Some(home.join(".pyenv"))
        });
    let versions = home.and_then(|home| std::fs::read_dir(home.join("versions")).ok());
    let of_pyenv = versions.into_iter().flatten().flatten();
    let mut found: Vec<PathBuf> = of_pyenv
        .map(|entry| entry.path().join("bin/python3"))
        .collect();
    found.sort();
    found.push(PathBuf::from("/usr/bin/python3"));
    let minor = |program: &PathBuf| {
        let told = Command::new(program)
            .args([
                "-c",
                "import sys; print(sys.version_info[0], sys.version_info[1])",
            ])
            .output()
            .ok()?;
        let told = String::from_utf8(told.stdout).ok()?;
        let minor = told.trim().strip_prefix("3 ")?.parse().ok()?;
        (8..=14).contains(&minor).then_some(minor)
    };
    let all = found.into_iter();
    all.filter_map(|program| Some((program.clone(), minor(&program)?)))
        .collect()
}

/// Prints for the code objects of the standard library and of random functions: the table, the
/// first line, and for each instruction the line that the interpreter gives it.
const DUMP: &str = include_str!("dump.py");

#[test]
fn lines_are_those_that_each_interpreter_gives() {
    let all = interpreters();
    if all.is_empty() {
        eprintln!("NOT TESTED: no Python of 3.8 to 3.14 is here");
    }
    for (program, minor) in all {
        let format = match minor {
            8 | 9 => LineTable::Deltas,
            10 => LineTable::Ranges,
            _ => LineTable::Locations,
        };
        let dumped = Command::new(&program)
            .args(["-c", DUMP])
            .output()
            .expect("a Python runs");
        assert!(
            dumped.status.success(),
            "{}",
            String::from_utf8_lossy(&dumped.stderr)
        );
        let dumped = String::from_utf8(dumped.stdout).expect("ASCII");
        let mut instructions = 0;
        for code in dumped.lines() {
            let mut words = code.split(' ');
            let mut word = || words.next().expect("a word");
            let (name, first_line, table) = (word(), word(), word());
            let first_line = first_line.parse().expect("a line");
            let table: Vec<u8> = (0..table.len() / 2)
                .map(|at| u8::from_str_radix(&table[2 * at..2 * at + 2], 16).expect("two digits"))
                .collect();
            for (offset, expected) in (0..).step_by(2).zip(words) {
                let line = line_of(format, table.iter().copied(), first_line, offset);
                let expected: Option<u32> = expected.parse().ok();
                assert_eq!(
                    line, expected,
                    "3.{minor} {name} of line {first_line} at {offset}"
                );
                instructions += 1;
            }
        }
        println!(
            "3.{minor} {}: {instructions} instructions",
            program.display()
        );
        assert!(instructions > 20_000, "{instructions}");
    }
}

#[test]
fn before_the_first_instruction_it_is_the_first_line() {
    for format in [LineTable::Deltas, LineTable::Ranges, LineTable::Locations] {
        assert_eq!(line_of(format, std::iter::empty(), 7, -1), Some(7));
    }
    assert_eq!(
        line_of(LineTable::Locations, std::iter::empty(), 7, 0),
        None
    );
    assert_eq!(line_of(LineTable::Deltas, std::iter::empty(), -7, 0), None);
}

proptest::proptest! {
    #[test]
    fn any_table_is_survived(table: Vec<u8>, first: i32, offset: i32) {
        for format in [LineTable::Deltas, LineTable::Ranges, LineTable::Locations] {
            line_of(format, table.iter().copied(), first, offset);
        }
    }
}
