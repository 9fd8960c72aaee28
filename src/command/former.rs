//! Names of subcommands that are part of others now.

use clap::Error;
use clap::error::{ContextKind, ContextValue};

/// A former subcommand, and the one that answers its question.
const SUCCESSORS: [(&str, &str); 2] = [("leaks", "growth"), ("drops", "report")];

/// Returns what to type instead, if an error is of a former subcommand.
pub fn successor(error: &Error) -> Option<String> {
    let Some(ContextValue::String(word)) = error.get(ContextKind::InvalidSubcommand) else {
        return None;
    };
    let (former, now) = SUCCESSORS.iter().find(|(former, _)| former == word)?;
    Some(format!(
        "run `{former}`: it is part of `{now}` now: gpushim {now} FILE"
    ))
}
