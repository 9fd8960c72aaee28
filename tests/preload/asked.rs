//! Processes that are asked for something by `gpushim control` while they run.

use std::collections::HashSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use gpushim_trace::{Event, Kind, Layer, Trace};
use tempfile::TempDir;

use crate::support::{Outcome, Run, place, program};

/// A process that gets requests, with four threads or the given number; and the files that it
/// leaves.
struct Asked {
    folder: TempDir,
    pid: String,
}

impl Asked {
    fn control(&self, words: &[&str]) -> Output {
        command(&self.pid, words).output().expect("the command")
    }

    /// Sends a request that must succeed. Returns its output.
    fn done(&self, words: &[&str]) -> String {
        let output = self.control(words);
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{words:?}: {told}");
        assert_eq!(told, "", "{words:?}");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    fn path(&self, name: &str) -> String {
        self.folder.path().join(name).display().to_string()
    }

    fn trace(&self) -> String {
        self.path(&format!("{}.trace", self.pid))
    }
}

fn command(pid: &str, words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_gpushim"));
    command.args(["control", pid]).args(words);
    command
}

/// Waits until it is so.
///
/// # Panics
/// If it is not so after a minute.
pub fn until(what: &str, is_so: impl Fn() -> bool) {
    let begin = Instant::now();
    while !is_so() {
        assert!(begin.elapsed() < Duration::from_secs(60), "{what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Runs the program, acts while it runs, and has it end.
fn while_it_runs(arguments: &[&str], mode: &str, act: impl FnOnce(&Asked)) -> (Outcome, TempDir) {
    let folder = TempDir::new().expect("a folder");
    let at = folder.path().to_path_buf();
    let run = Run::new(program("asked"))
        .args(arguments)
        .env("AT", &at)
        .env("GPUSHIM_TRACE", at.join("%p.trace"))
        .env("GPUSHIM_TRACE_SIZE", "4M")
        .env("GPUSHIM_TRACE_MODE", mode)
        .env("GPUSHIM_SPOOL_FLOOR", "0");
    std::thread::scope(|scope| {
        let shim = scope.spawn(|| run.shim());
        until("it starts", || {
            at.join("pid").exists() || shim.is_finished()
        });
        let pid = fs::read_to_string(at.join("pid")).expect("its number");
        let asked = Asked { folder, pid };
        let acted = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| act(&asked)));
        fs::write(at.join("stop"), "").expect("written");
        let outcome = shim.join().expect("a run");
        if let Err(why) = acted {
            std::panic::resume_unwind(why);
        }
        assert_eq!(outcome.code, 0, "{}", outcome.stdout);
        (outcome, asked.folder)
    })
}

fn marks(trace: &Trace) -> Vec<String> {
    let marks = trace
        .events()
        .filter(|record| record.event.kind == Kind::Mark);
    let name = |event: Event| trace.string(event.address as u32).unwrap_or_default();
    marks.map(|record| name(record.event)).collect()
}

fn recorded(path: &str) -> u64 {
    let trace = Trace::open(Path::new(path)).expect("the trace");
    let sums = trace.totals().expect("sums");
    sums.layer(Layer::Device).allocations
}

#[test]
fn a_pause_a_mark_and_a_resumption() {
    let (_, folder) = while_it_runs(&["4"], "ring", |asked| {
        let pid = &asked.pid;
        let says = |what: &str| format!("process {pid}: {what}\n");
        assert_eq!(asked.done(&["resume"]), says("it was recording already"));
        assert_eq!(asked.done(&["mark", "warm ü"]), says("mark `warm ü` set"));
        assert_eq!(asked.done(&["pause"]), says("recording paused"));
        assert_eq!(
            asked.done(&["pause"]),
            says("its recording was paused already")
        );
        // An allocation that had begun before the pause may be recorded late.
        std::thread::sleep(Duration::from_millis(50));
        let before = recorded(&asked.trace());
        std::thread::sleep(Duration::from_millis(100));
        assert_eq!(recorded(&asked.trace()), before, "nothing in the pause");
        assert_eq!(asked.done(&["resume"]), says("recording again"));
        until("it records again", || recorded(&asked.trace()) > before);
        let report = Command::new(env!("CARGO_BIN_EXE_gpushim"))
            .args(["events", "--kind", "mark", &asked.trace()])
            .output()
            .expect("events");
        let listed = String::from_utf8_lossy(&report.stdout).into_owned();
        assert!(
            listed.contains("warm ü") && listed.contains("recording paused"),
            "{listed}"
        );
        fs::rename(asked.trace(), asked.path("a.trace")).expect("renamed");
        let said = String::from_utf8_lossy(&asked.control(&["pause"]).stderr).into_owned();
        assert!(said.is_empty(), "the kernel knows its new name: {said}");
    });
    let trace = Trace::open(&folder.path().join("a.trace")).expect("the trace");
    assert_eq!(trace.problems(), [] as [&str; 0]);
    let told = trace.fact("recording").unwrap_or_default();
    assert!(told.starts_with("`gpushim control` paused it: "), "{told}");
    assert!(trace.live().is_some_and(|live| live.blocks.is_empty()));
    let sums = trace.totals().expect("sums").layer(Layer::Device);
    assert_eq!((sums.live(), sums.live_bytes()), (0, 0));
}

#[test]
fn a_hundred_pauses_in_a_row() {
    let (_, folder) = while_it_runs(&["2"], "ring", |asked| {
        let begin = Instant::now();
        for _ in 0..100 {
            assert!(asked.done(&["pause"]).ends_with("recording paused\n"));
            assert!(asked.done(&["resume"]).ends_with("recording again\n"));
        }
        println!("200 requests in {:?}", begin.elapsed());
        fs::rename(asked.trace(), asked.path("a.trace")).expect("renamed");
    });
    let trace = Trace::open(&folder.path().join("a.trace")).expect("the trace");
    assert_eq!(trace.problems(), [] as [&str; 0]);
    assert!(trace.live().is_some_and(|live| live.blocks.is_empty()));
    if trace.lost() == 0 {
        let marks = marks(&trace);
        assert_eq!(marks.len(), 200);
        assert!(
            marks
                .chunks(2)
                .all(|two| two == ["recording paused", "recording"])
        );
    }
}

#[test]
fn a_killed_command_does_not_block_the_next() {
    while_it_runs(&["2"], "ring", |asked| {
        for round in 0..40 {
            let mut child = command(&asked.pid, &["mark", "killed"])
                .spawn()
                .expect("a child");
            std::thread::sleep(Duration::from_micros(round * 400));
            child.kill().expect("killed");
            child.wait().expect("waited for");
        }
        assert!(asked.done(&["pause"]).ends_with("recording paused\n"));
        assert!(asked.done(&["mark", "at last"]).ends_with("set\n"));
    });
}

#[test]
fn who_cannot_be_asked() {
    let said = |output: Output| {
        assert_eq!(output.status.code(), Some(2));
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(
            said.starts_with("gpushim: failed to ") && said.lines().count() == 1,
            "{said}"
        );
        said
    };
    while_it_runs(&["1", "fork"], "ring", |asked| {
        let child = fs::read_to_string(asked.path("child")).expect("a child");
        let forked = said(command(&child, &["pause"]).output().expect("the command"));
        let expected = format!(
            "it was forked by process {}, which writes the trace",
            asked.pid
        );
        assert!(forked.contains(&expected), "{forked}");
        // SAFETY: it takes nothing and cannot fail.
        if unsafe { libc::geteuid() } == 0 {
            let mode =
                std::os::unix::fs::MetadataExt::mode(&fs::metadata(asked.trace()).expect("meta"));
            assert_eq!(mode & 0o777, 0o600);
            // A copy of the command for the other user, in a folder that this user may enter.
            let folder = TempDir::new().expect("a folder");
            let copy = folder.path().join("gpushim");
            fs::copy(env!("CARGO_BIN_EXE_gpushim"), &copy).expect("copied");
            let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
            fs::set_permissions(folder.path(), open).expect("opened");
            let mut other = Command::new(&copy);
            other
                .args(["control", &asked.pid, "pause"])
                .uid(65534)
                .gid(65534);
            let refused = said(other.current_dir("/").output().expect("the command"));
            assert!(
                refused.contains("it is a process of user 0; only that user and root may"),
                "{refused}"
            );
            assert!(
                asked.done(&["pause"]).ends_with("recording paused\n"),
                "not by the other user"
            );
        } else {
            println!("not root: the other user was not tried");
        }
    });
    let alone = said(
        command(&std::process::id().to_string(), &["pause"])
            .output()
            .expect("the command"),
    );
    assert!(
        alone.contains("it was not started under gpushim"),
        "{alone}"
    );
    let none = said(
        command("8388608", &["pause"])
            .output()
            .expect("the command"),
    );
    assert!(none.contains("there is no such process"), "{none}");
    let mut quiet = Command::new("sleep")
        .arg("100")
        .env("LD_PRELOAD", &place().shim)
        .spawn()
        .expect("a process");
    until("the library is there", || {
        let maps = fs::read_to_string(format!("/proc/{}/maps", quiet.id())).unwrap_or_default();
        maps.contains("libgpushim")
    });
    let early = said(
        command(&quiet.id().to_string(), &["pause"])
            .output()
            .expect("the command"),
    );
    quiet.kill().expect("killed");
    quiet.wait().expect("waited for");
    assert!(
        early.contains("the trace begins with the first use of CUDA memory"),
        "{early}"
    );
}

#[test]
fn a_process_that_is_stopped_or_ends_meanwhile() {
    while_it_runs(&["1"], "ring", |asked| {
        let signal = |name: &str| {
            let sent = Command::new("kill").args([name, &asked.pid]).status();
            assert!(sent.expect("kill").success());
        };
        signal("-STOP");
        let output = asked.control(&["mark", "never"]);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        signal("-CONT");
        assert!(
            said.contains("because it is stopped; continue it with `kill -CONT"),
            "{said}"
        );
        assert!(asked.done(&["mark", "later"]).ends_with("set\n"));
        let trace = Trace::open(Path::new(&asked.trace())).expect("the trace");
        assert!(!marks(&trace).contains(&"never".to_owned()), "taken back");
    });
}

/// Checks that the counts of a copy are exact. Its events must agree with its live table.
///
/// Returns the number of lost events. `is_whole`: no event was overwritten before it could be
/// copied.
fn adds_up(path: &str, is_whole: bool) -> u64 {
    let trace = Trace::open(Path::new(path)).expect("the copy");
    assert_eq!(trace.problems(), [] as [&str; 0], "{path}");
    assert_eq!(trace.events().count() as u64, trace.readable());
    assert_eq!(
        trace.recorded(),
        trace.readable() + trace.lost() + trace.torn()
    );
    let live = trace.live().expect("a live table");
    assert!(live.is_complete(), "{live:?}");
    let count = live.blocks.len();
    // A block freed after the copy of its slot may be in the copy beside the next block of its
    // thread. If no event was overwritten meanwhile, few blocks are affected.
    assert!(
        count >= 1 && (count <= 4 * 32 + 1 + 4 || !is_whole),
        "{count}"
    );
    // Each thread frees only its own blocks. A ring overwrites the oldest events of each thread, but
    // a slow thread's overwritten events may be newer than another thread's oldest ones.
    let block = |event: Event| (event.thread, event.address);
    let held: HashSet<_> = live.blocks.iter().map(|one| block(one.event)).collect();
    let (mut told, mut made) = (HashSet::new(), HashSet::new());
    for record in trace.events() {
        let event = record.event;
        match event.kind {
            Kind::Alloc => {
                made.insert(block(event));
                told.insert(block(event));
            }
            Kind::Free => drop(told.remove(&block(event))),
            _ => {}
        }
    }
    let odd = told.symmetric_difference(&held);
    let odd = odd.filter(|block| made.contains(*block)).count();
    // Where a spool fell behind, events are missing in the middle, and not the oldest. The other
    // events then do not determine the live blocks.
    if is_whole && (trace.spooled() == 0 || trace.lost() == 0) {
        // As after a kill: a block for each thread that was at it.
        assert!(odd <= 4, "{odd} of {}", held.len());
    }
    trace.lost()
}

/// Checks that subcommands read a copy as they read any trace.
fn is_read(copy: &str) {
    for words in [&["report"][..], &["events", "--limit", "3"], &["timeline"]] {
        let output = Command::new(env!("CARGO_BIN_EXE_gpushim"))
            .args(words)
            .arg(copy)
            .output()
            .expect("the command");
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(
            output.status.code().is_some_and(|code| code < 2) && told.is_empty(),
            "{words:?}: {told}"
        );
    }
}

#[test]
fn a_copy_while_four_threads_allocate() {
    for (mode, rounds) in [("ring", 3), ("full", 2)] {
        let name = |round| format!("copy-{round}.trace");
        let mut are_whole = Vec::new();
        let (_, folder) = while_it_runs(&["4"], mode, |asked| {
            for round in 0..rounds {
                let said = asked.done(&["dump", "-o", &asked.path(&name(round))]);
                assert!(said.contains(" copied to ") && said.contains("blocks live "));
                are_whole.push(!said.contains("overwritten"));
            }
            let again = asked.control(&["dump", "-o", &asked.path(&name(0))]);
            let told = String::from_utf8_lossy(&again.stderr).into_owned();
            assert!(
                !again.status.success() && told.contains("there is such a file already"),
                "{told}"
            );
            let beside = asked.done(&["dump"]);
            assert!(beside.contains(&format!("/{}.dump.trace", asked.pid)));
        });
        for (round, is_whole) in are_whole.into_iter().enumerate() {
            let copy = folder.path().join(name(round)).display().to_string();
            println!("{mode}: {} events lost", adds_up(&copy, is_whole));
            let readers = fs::metadata(&copy).expect("the copy").permissions().mode();
            assert_eq!(readers & 0o777, 0o600);
            is_read(&copy);
        }
        let mut left = fs::read_dir(folder.path()).expect("a folder").flatten();
        let unfinished = |name: &str| name.ends_with(".unfinished");
        assert!(!left.any(|entry| unfinished(&entry.file_name().to_string_lossy())));
    }
}
