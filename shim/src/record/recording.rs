//! Begins and ends a pause of the recording, and notes it in the trace.

use std::sync::Once;

use crate::record::ranges::{self, Text};
use crate::record::{pause, trace};

/// The party that pauses the recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    /// The program, by `gpushim_pause`.
    Program,
    /// Its user, by `gpushim control`.
    Command,
}

impl By {
    /// Notes in the trace that it is incomplete, once for each party.
    fn tell(self) {
        static TOLD: [Once; 2] = [Once::new(), Once::new()];
        let (told, who) = match self {
            By::Program => (&TOLD[0], "the program"),
            By::Command => (&TOLD[1], "`gpushim control`"),
        };
        told.call_once(|| {
            let what = format!(
                "{who} paused it: what it allocated between the marks `recording paused` and `recording` is not here"
            );
            let what = match self {
                By::Program => what,
                By::Command => what.replace("what it allocated", "what the program allocated"),
            };
            trace::fact("recording", &what);
        });
    }
}

/// Begins or ends a pause, with a mark in the trace. True if that is a change.
pub fn set(is_paused: bool, by: By) -> bool {
    if !pause::set(is_paused) {
        return false;
    }
    if is_paused {
        by.tell();
    }
    let mark = if is_paused {
        "recording paused"
    } else {
        "recording"
    };
    ranges::mark(None, &Text::Plain(mark.into()));
    true
}
