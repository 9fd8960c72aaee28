//! Serves the requests of `gpushim control`, through the control part of this process's trace.

use gpushim_trace::control::{Answer, Request};

use gpushim_trace::Occasion;

use crate::record::owners;
use crate::record::ranges::{self, Text};
use crate::record::recording::{self, By};
use crate::record::trace;

/// Serves at most one waiting request. True if there was one, so that the background thread stays
/// awake for the next.
pub fn serve() -> bool {
    let Some(panel) = trace::opened().map(|writer| writer.control()) else {
        return false;
    };
    let Some(taken) = panel.take() else {
        return false;
    };
    let answer = act(&taken.request);
    panel.answer(taken, answer);
    true
}

fn act(request: &Request) -> Answer {
    let changed = |is_change| match is_change {
        true => Answer::Done,
        false => Answer::Already,
    };
    match request {
        Request::Pause => changed(recording::set(true, By::Command)),
        Request::Resume => changed(recording::set(false, By::Command)),
        Request::Mark(name) => {
            ranges::mark(None, &Text::Plain(name.into()));
            Answer::Done
        }
        Request::Owners if owners::ask(Occasion::Asked) => Answer::Done,
        Request::Owners => Answer::Refused,
        Request::Unknown => Answer::Unknown,
    }
}
