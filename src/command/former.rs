//! Names of subcommands and formats that are part of others now.

use clap::Error;
use clap::error::{ContextKind, ContextValue};

/// A former subcommand, and where its question is answered.
const SUBCOMMANDS: [(&str, &str); 5] = [
    ("leaks", "`growth` now: gpushim growth FILE"),
    ("drops", "`report` now: gpushim report FILE"),
    ("fleet", "`report` now: gpushim report DIR"),
    ("flamegraph", "`html` and `export --to folded` now"),
    ("symbols", "`pack` now: gpushim pack FILE"),
];

/// Returns the present command to type, if an error is of a former subcommand or format.
pub fn successor(error: &Error) -> Option<String> {
    let of = |kind| match error.get(kind) {
        Some(ContextValue::String(word)) => word.as_str(),
        _ => "",
    };
    if of(ContextKind::InvalidArg).starts_with("--to ")
        && of(ContextKind::InvalidValue) == "speedscope"
    {
        return Some(
            "export to `speedscope`: it opens pprof: gpushim export --to pprof -o FILE.pb.gz TRACE"
                .to_string(),
        );
    }
    let word = of(ContextKind::InvalidSubcommand);
    let (former, now) = SUBCOMMANDS.iter().find(|(former, _)| *former == word)?;
    Some(format!("run `{former}`: it is part of {now}"))
}
