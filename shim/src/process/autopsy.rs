//! The command that explains a request that ran out of memory, started while the process still
//! runs.
//!
//! The failing thread only leaves a notice. The background thread starts the command, or else the
//! end of the process does. The command gets the path of the trace. The program does not notice the
//! command: its `wait` does not see the child, and nothing waits.

use std::ffi::{CString, OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, OnceLock};
use std::time::{Duration, Instant};

use gpushim_config::Autopsy;
use gpushim_trace::{Layer, Writer};

use crate::base::{apart, boundary, preloaded, settings, stderr};
use crate::record::shortages::{self, By};
use crate::record::{owners, trace};

/// Most requests of a process that are explained.
const MOST: u32 = 5;
/// Least time between two explanations.
const PAUSE: Duration = Duration::from_secs(10);
/// Longest such time. It grows while the driver's failed requests need no explanation.
const LONGEST: Duration = Duration::from_secs(3600);
/// Time for a framework with announced tensors to get its memory after all, or to announce its own
/// failure.
const SETTLES: Duration = Duration::from_millis(200);
/// Longest wait for the walk that finds the owners of blocks, and the time between two checks of
/// it.
const WALKS: Duration = Duration::from_millis(500);
const LOOK: Duration = Duration::from_millis(10);
/// Time after which the command counts as ended in any case.
const HANGS: Duration = Duration::from_secs(60);

/// Facts that are known when the trace is opened.
struct Prepared {
    trace: CString,
    environment: Vec<CString>,
    /// The folder of this library, if it is known.
    folder: Option<PathBuf>,
    path: Option<OsString>,
}

static PREPARED: OnceLock<Prepared> = OnceLock::new();

/// The command that was started last, and the notice that waits.
struct State {
    waiting: Option<(By, Instant)>,
    last: Option<Instant>,
    pause: Duration,
    said: u32,
    running: Option<Running>,
}

/// A command that was started.
struct Running {
    id: libc::pid_t,
    since: Instant,
    /// Bytes of the explanations before it.
    earlier: u64,
}

static STATE: Mutex<State> = Mutex::new(State::new());

/// Prepares the command if the user wants it. `wake` wakes the background thread, without waiting.
pub fn prepare(writer: &Writer, wake: fn()) {
    if settings::config().autopsy == Autopsy::Off {
        return;
    }
    let Some(trace) = absolute(writer.path()) else {
        return;
    };
    let is_ours = |name: &OsString| {
        let name = name.as_bytes();
        name == b"LD_PRELOAD" || name.starts_with(b"GPUSHIM_")
    };
    // Read now: later the program may change it on another thread.
    let environment = std::env::vars_os().filter(|(name, _)| !is_ours(name));
    let environment = environment.filter_map(|(name, value)| {
        let line = [name.as_bytes(), b"=", value.as_bytes()].concat();
        CString::new(line).ok()
    });
    let prepared = Prepared {
        trace,
        environment: environment.collect(),
        folder: preloaded::file().and_then(|file| file.parent().map(Path::to_path_buf)),
        path: std::env::var_os("PATH"),
    };
    if PREPARED.set(prepared).is_ok() {
        shortages::when_noted(wake);
    }
}

/// Returns a path that stays valid when the program changes its directory.
fn absolute(path: &Path) -> Option<CString> {
    let path = std::env::current_dir().ok()?.join(path);
    CString::new(path.into_os_string().into_vec()).ok()
}

/// Starts the command if it is due, on the background thread. Returns the time after which it must
/// be called again, if that is before the thread's next tick.
pub fn work() -> Option<Duration> {
    PREPARED.get().and_then(|prepared| {
        let mut state = STATE.lock().ok()?;
        state.end_of_running(prepared);
        state.take_notice();
        let (by, since) = state.waiting?;
        let wait = state.wait(by, since);
        if !wait.is_zero() {
            return Some(wait);
        }
        state.start(prepared);
        None
    })
}

/// Starts a waiting command at the end of the process, without its pause.
pub fn conclude() {
    let Some(prepared) = PREPARED.get() else {
        return;
    };
    if let Ok(mut state) = STATE.try_lock() {
        state.take_notice();
        if state.waiting.is_some() {
            state.start(prepared);
        }
    }
}

/// True if a framework announces its tensors and has some.
fn has_tensors() -> bool {
    let live = trace::opened().map(|writer| writer.live_bytes(Layer::Tensor));
    live.is_some_and(|devices| devices.iter().any(|bytes| *bytes > 0))
}

impl State {
    const fn new() -> State {
        State {
            waiting: None,
            last: None,
            pause: PAUSE,
            said: 0,
            running: None,
        }
    }

    fn take_notice(&mut self) {
        if let Some(by) = shortages::take() {
            let (before, since) = self.waiting.unwrap_or((by, Instant::now()));
            self.waiting = Some((by.max(before), since));
        }
    }

    /// Returns the time that a notice still has to wait.
    fn wait(&self, by: By, since: Instant) -> Duration {
        let settles = by == By::Driver && has_tensors();
        let settles = if settles { SETTLES } else { Duration::ZERO };
        // The program of a framework sees the failure, however often the driver's requests were
        // served after all.
        let pause = if by == By::Driver { self.pause } else { PAUSE };
        let pause = self
            .last
            .map_or(Duration::ZERO, |last| pause.saturating_sub(last.elapsed()));
        let walks = match owners::is_awaited() && since.elapsed() < WALKS {
            true => LOOK,
            false => Duration::ZERO,
        };
        pause
            .max(settles.saturating_sub(since.elapsed()))
            .max(walks)
    }

    /// True if a further explanation is allowed, counting the one that is being written.
    fn may_start(&self) -> bool {
        self.said + u32::from(self.running.is_some()) < MOST
    }

    fn start(&mut self, prepared: &Prepared) {
        self.waiting = None;
        // A forked child has the parent's state, and no trace of its own.
        if !self.may_start() || boundary::bypassed_at_exit() {
            return;
        }
        let now = Instant::now();
        self.last = Some(now);
        let earlier = prepared.said();
        self.running = prepared.start().map(|id| Running {
            id,
            since: now,
            earlier,
        });
        if let Some(one) = &self.running {
            // `gpushim run` lets it finish before it packs the trace.
            trace::fact("autopsy", &one.id.to_string());
        }
    }

    /// Checks if the command has ended, and if it wrote an explanation.
    fn end_of_running(&mut self, prepared: &Prepared) {
        let is_over = |one: &mut Running| apart::has_ended(one.id) || one.since.elapsed() > HANGS;
        let Some(one) = self.running.take_if(is_over) else {
            return;
        };
        if prepared.said() > one.earlier {
            self.said += 1;
            self.pause = PAUSE;
        } else {
            self.pause = (self.pause * 2).min(LONGEST);
        }
    }
}

impl Prepared {
    fn start(&self) -> Option<libc::pid_t> {
        let command = CString::new(self.command()?.into_os_string().into_vec()).ok()?;
        let arguments = [c"gpushim", c"oom", c"--autopsy", self.trace.as_c_str()];
        apart::start(&command, &arguments, &self.environment, stderr::is_there())
    }

    /// Returns the bytes of the explanations beside the trace.
    fn said(&self) -> u64 {
        let name = [self.trace.as_bytes(), b".autopsy"].concat();
        let meta = std::fs::metadata(Path::new(OsStr::from_bytes(&name)));
        meta.map_or(0, |meta| meta.len())
    }

    /// Returns the path of the command: the user's, or the one installed with the library, or the
    /// one on the `PATH`.
    fn command(&self) -> Option<PathBuf> {
        let is_there = |path: &PathBuf| {
            let path = CString::new(path.as_os_str().as_bytes());
            // SAFETY: the path is a C string.
            path.is_ok_and(|path| unsafe { libc::access(path.as_ptr(), libc::X_OK) } == 0)
        };
        if let Autopsy::Command(path) = &settings::config().autopsy {
            return Some(path.clone()).filter(is_there);
        }
        // Places: beside the library, in its package's folder, and a wheel's `bin` for a library in
        // `lib/gpushim`.
        let beside = ["", "bin", "../bin", "../../bin"];
        let folders = (self.folder.iter()).flat_map(|folder| beside.map(|part| folder.join(part)));
        let path = self.path.clone().unwrap_or_default();
        let on_path = std::env::split_paths(&path).filter(|folder| folder.is_absolute());
        let mut all = folders.chain(on_path).map(|folder| folder.join("gpushim"));
        all.find(|path| path.is_file() && is_there(path))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_is_explained_at_once_and_later_ones_after_a_pause() {
        let now = Instant::now();
        let mut state = State::new();
        assert!(state.wait(By::Driver, now).is_zero() && state.may_start());
        state.last = Some(now);
        for by in [By::Driver, By::Framework] {
            let wait = state.wait(by, now);
            assert!(wait > PAUSE / 2 && wait <= PAUSE, "{by:?}: {wait:?}");
        }
        // Requests of the driver that are served after all, again and again, are explained less and
        // less often.
        state.pause = LONGEST;
        assert!(state.wait(By::Driver, now) > LONGEST / 2);
        assert!(state.wait(By::Framework, now) <= PAUSE);
    }

    #[test]
    fn a_process_gets_five() {
        let mut state = State::new();
        state.said = MOST - 1;
        assert!(state.may_start());
        state.running = Some(Running {
            id: 1,
            since: Instant::now(),
            earlier: 0,
        });
        assert!(!state.may_start());
        (state.said, state.running) = (MOST, None);
        assert!(!state.may_start());
    }
}
