//! Separates the words of `gpushim run` from the words of its program.
//!
//! `--stacks`, `--python`, `--takeover` and `--elastic` may come without a value. The word after
//! one of them is its value if the variable accepts it (`--stacks all python3 train.py`). Otherwise
//! it is the program (`--stacks python3 train.py`).

use std::ffi::{OsStr, OsString};

use gpushim_config::Resolved;

/// Options with a value that may be left out, and their variables.
const OPTIONAL: [(&str, &str); 4] = [
    ("--stacks", "GPUSHIM_STACKS"),
    ("--python", "GPUSHIM_PYTHON"),
    ("--takeover", "GPUSHIM_TAKEOVER"),
    ("--elastic", "GPUSHIM_ELASTIC"),
];
/// Options that never have a value.
const FLAGS: [&str; 8] = [
    "--no-stacks",
    "--no-pack",
    "--no-summary",
    "--quiet",
    "-q",
    "--help",
    "-h",
    "--version",
];

/// The words of a command line, those of `run` with an optional value as one word: `--stacks=all`.
pub fn joined(words: impl Iterator<Item = OsString>) -> Vec<OsString> {
    let words: Vec<OsString> = words.collect();
    let Some(run) =
        subcommand(&words).filter(|at| words.get(*at).is_some_and(|word| word == "run"))
    else {
        return words;
    };
    let mut words = words.into_iter();
    let mut out: Vec<OsString> = words.by_ref().take(run + 1).collect();
    let mut words = words.peekable();
    while let Some(word) = words.next() {
        let text = word.to_string_lossy().into_owned();
        if text == "--" || !text.starts_with('-') {
            out.push(word);
            break;
        }
        let optional = OPTIONAL.iter().find(|(option, _)| *option == text);
        if let Some((option, variable)) = optional {
            match words.next_if(|next| accepts(variable, next)) {
                Some(value) => {
                    let mut both = OsString::from(format!("{option}="));
                    both.push(value);
                    out.push(both);
                }
                None => out.push(word),
            }
            continue;
        }
        let has_value = text.starts_with("--") && !text.contains('=') && !FLAGS.contains(&&*text);
        out.push(word);
        if has_value {
            out.extend(words.next());
        }
    }
    out.extend(words);
    out
}

/// Index of the subcommand's word: after the command itself and `--color`.
fn subcommand(words: &[OsString]) -> Option<usize> {
    let mut at = 1;
    while let Some(word) = words.get(at) {
        match word.to_str() {
            Some("--color") => at += 2,
            Some(word) if word.starts_with('-') => at += 1,
            _ => return Some(at),
        }
    }
    None
}

fn accepts(variable: &str, value: &OsStr) -> bool {
    let lookup = |name: &str| (name == variable).then(|| value.to_os_string());
    !value.is_empty() && Resolved::from_lookup(lookup).problems.is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(line: &str) -> String {
        let words = joined(line.split(' ').map(OsString::from));
        let words: Vec<_> = words.iter().map(|word| word.to_string_lossy()).collect();
        words.join(" ")
    }

    #[test]
    fn a_value_that_may_be_left_out_is_told_from_the_program() {
        for (line, expected) in [
            (
                "gpushim run --stacks all python3 x.py --stacks all",
                "gpushim run --stacks=all python3 x.py --stacks all",
            ),
            (
                "gpushim run --stacks python3 x.py",
                "gpushim run --stacks python3 x.py",
            ),
            (
                "gpushim run --policy vmm --takeover torch --stacks 1/8 -- all",
                "gpushim run --policy vmm --takeover=torch --stacks=1/8 -- all",
            ),
            (
                "gpushim run --no-stacks --python on python3",
                "gpushim run --no-stacks --python=on python3",
            ),
            (
                "gpushim --color never run --stacks 1M ./a",
                "gpushim --color never run --stacks=1M ./a",
            ),
            ("gpushim run -- --stacks all", "gpushim run -- --stacks all"),
            (
                "gpushim run --limit --stacks all",
                "gpushim run --limit --stacks all",
            ),
            ("gpushim report --stacks all", "gpushim report --stacks all"),
            ("gpushim", "gpushim"),
        ] {
            assert_eq!(after(line), expected);
        }
    }
}
