use std::sync::atomic::AtomicBool;

use super::*;
use crate::{Trace, Writer, WriterOptions};

fn small() -> WriterOptions {
    WriterOptions {
        bytes: 1 << 16,
        ..WriterOptions::default()
    }
}

/// Returns a trace and an asker of it.
fn pair(folder: &tempfile::TempDir) -> (Writer, Asker) {
    let writer = Writer::create(&folder.path().join("a.trace"), &small()).unwrap();
    let asker = Asker::open(writer.path()).unwrap();
    (writer, asker)
}

/// Condition that ends after `most` looks.
fn looks(mut most: u32) -> impl FnMut() -> bool {
    move || {
        most = most.saturating_sub(1);
        most > 0
    }
}

const ANSWERS: [Answer; 4] = [
    Answer::Unknown,
    Answer::Done,
    Answer::Already,
    Answer::Refused,
];

#[test]
fn what_is_asked_arrives_and_is_answered() {
    let folder = tempfile::tempdir().unwrap();
    let (writer, asker) = pair(&folder);
    assert_eq!(asker.process(), Some(std::process::id()));
    assert_eq!(writer.control().take(), None);
    let name = "épreuve ".repeat(200);
    let requests = [
        Request::Pause,
        Request::Resume,
        Request::Mark("after warm-up".into()),
        Request::Mark(String::new()),
        Request::Mark(name.clone()),
    ];
    let stop = AtomicBool::new(false);
    let seen = std::thread::scope(|scope| {
        let serve = scope.spawn(|| {
            let mut seen = Vec::new();
            while !stop.load(Ordering::Relaxed) {
                if let Some(taken) = writer.control().take() {
                    seen.push(taken.request.clone());
                    writer.control().answer(taken, ANSWERS[seen.len() % 4]);
                }
            }
            seen
        });
        for (index, request) in requests.iter().enumerate() {
            let expected = ANSWERS[(index + 1) % 4];
            assert_eq!(asker.ask(request, || true), Ok(expected));
        }
        stop.store(true, Ordering::Relaxed);
        serve.join().unwrap()
    });
    assert_eq!(seen[..4], requests[..4]);
    let Request::Mark(cut) = &seen[4] else {
        panic!("{seen:?}")
    };
    // A letter cut in two is replaced.
    assert!(
        cut.len() <= control::TEXT_MAX + 3 && name.starts_with(cut.trim_end_matches('\u{fffd}'))
    );
    let trace = Trace::open(writer.path()).unwrap();
    assert_eq!(trace.problems(), [] as [&str; 0]);
}

#[test]
fn a_request_that_is_not_taken_is_withdrawn() {
    let folder = tempfile::tempdir().unwrap();
    let (writer, asker) = pair(&folder);
    assert_eq!(asker.ask(&Request::Pause, looks(3)), Err(Busy::Silent));
    assert_eq!(writer.control().take(), None, "it must not come late");
}

#[test]
fn one_asks_at_a_time() {
    let folder = tempfile::tempdir().unwrap();
    let (_writer, asker) = pair(&folder);
    let other = Asker::open(asker.path()).unwrap();
    assert!(asker.lock());
    assert_eq!(other.ask(&Request::Pause, looks(3)), Err(Busy::Locked));
    // A killed process loses the lock with its descriptors.
    drop(asker);
    assert_eq!(other.ask(&Request::Pause, looks(3)), Err(Busy::Silent));
}

#[test]
fn a_killed_asker_does_not_block_the_next() {
    let folder = tempfile::tempdir().unwrap();
    let (writer, asker) = pair(&folder);
    let panel = writer.control();
    // Killed after it had asked: its request may be complete or not, and the next one is taken.
    asker.panel().ask(&Request::Pause).unwrap();
    let turn = asker.panel().ask(&Request::Mark("next".into())).unwrap();
    let taken = panel.take().unwrap();
    assert_eq!(taken.request, Request::Mark("next".into()));
    // Killed while the writer served it: the next one waits for that answer.
    assert_eq!(asker.panel().ask(&Request::Resume), None);
    assert_eq!(asker.ask(&Request::Resume, looks(3)), Err(Busy::Taken));
    panel.answer(taken, Answer::Done);
    assert_eq!(asker.panel().answer_to(turn), Some(Answer::Done));
    assert!(asker.panel().ask(&Request::Resume).is_some());
    // Killed while it wrote: the state is idle, and an incomplete request is not taken.
    let before = asker.panel().turn();
    assert!(asker.panel().pass(before, before & !STATE | IDLE));
    assert_eq!(panel.take(), None);
    assert!(asker.panel().ask(&Request::Pause).is_some());
    assert_eq!(
        panel.take().map(|taken| taken.request),
        Some(Request::Pause)
    );
}

#[test]
fn whatever_is_in_the_panel_it_is_bounded() {
    let folder = tempfile::tempdir().unwrap();
    let (writer, asker) = pair(&folder);
    let (mut random, mut taken_at_all) = (1_u64, 0);
    for round in 0..20_000_u64 {
        for word in asker.panel().words {
            random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            word.store(random ^ random >> 29, Ordering::Relaxed);
        }
        // Now and then something that makes sense.
        if round % 2 == 0 {
            asker.panel().set(control::TURN, random & !STATE | ASKED);
            asker.panel().set(control::REQUEST, round / 2 % 8);
        }
        if round % 3 == 0 {
            asker.panel().set(control::TEXT_BYTES, u64::MAX - round);
        }
        if let Some(taken) = writer.control().take() {
            taken_at_all += 1;
            if let Request::Mark(name) = &taken.request {
                // Three bytes for each that is no UTF-8.
                assert!(name.len() <= 3 * control::TEXT_MAX);
            }
            // The turn is overwritten while the writer serves the request.
            if round % 5 == 0 {
                asker.panel().set(control::TURN, random);
            }
            writer.control().answer(taken, Answer::Done);
        }
    }
    assert!(taken_at_all >= 10_000, "{taken_at_all}");
    assert_eq!(Panel::new(&[]).take(), None);
}

#[test]
fn what_is_no_trace_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let said = |path: &std::path::Path| Asker::open(path).map(drop).unwrap_err().to_string();
    let path = folder.path().join("notes");
    std::fs::write(&path, "no trace, whatever its name is").unwrap();
    assert!(said(&path).contains("it is not a gpushim trace"));
    assert!(said(folder.path()).contains("directory"));
    let (writer, _) = pair(&folder);
    let link = folder.path().join("link");
    std::os::unix::fs::symlink(writer.path(), &link).unwrap();
    assert!(Asker::open(&link).is_err(), "a link");
    // A file of a gpushim without this part.
    let mut old = std::fs::read(writer.path()).unwrap();
    let entry = (0..).map(|index| 256 + index * 32);
    let entry = entry.take(32).find(|at| old[*at] == 14).unwrap();
    old[entry] = 99;
    std::fs::write(&path, &old).unwrap();
    assert!(said(&path).contains("takes no requests"));
    // A directory entry that leads outside.
    old[entry] = 14;
    old[entry + 8..entry + 16].copy_from_slice(&(1_u64 << 40).to_le_bytes());
    std::fs::write(&path, &old).unwrap();
    assert!(said(&path).contains("cut off"));
}
