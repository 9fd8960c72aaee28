//! Checks of this machine: driver, devices, runtimes, the library.

use std::collections::BTreeSet;
use std::ffi::{CStr, c_char, c_int};
use std::path::{Path, PathBuf};
use std::process::Command;

use super::check::{Check, Verdict};
use crate::cli::library;
use crate::doctor::{preload, python, takeover};
use crate::output::units::bytes;
use crate::shared_limit::SharedLimit;
use gpushim_config::{Config, Resolved, host, rank, trace_path};
use gpushim_trace::{ClockSource, Writer, WriterOptions};

/// All checks of this machine, and of the named Python or else the Python of the path.
pub fn checks(python: Option<&Path>) -> Vec<Check> {
    let resolved = Resolved::from_env();
    let command = Check::new("gpushim", Verdict::Ok, gpushim_version::line());
    let mut checks = vec![
        command,
        shim(),
        preload::check(),
        driver(),
        cudarts(),
        clock(),
        python::check(python),
    ];
    if !resolved.config.enabled {
        let detail = "off: a preloaded library does nothing, and nothing is recorded";
        checks.push(Check::new("GPUSHIM", Verdict::Note, detail));
    }
    checks.extend(limit(&resolved.config));
    checks.push(trace_folder(&resolved));
    checks.extend(takeover::checks(&resolved));
    for problem in &resolved.problems {
        checks.push(Check::new("setting", Verdict::Problem, problem.to_string()));
    }
    checks
}

/// The limit of this environment: where it holds. `None`: there is none.
fn limit(config: &Config) -> Option<Check> {
    let what = "GPUSHIM_LIMIT";
    let Some(limit) = config.limit else {
        let detail =
            "none, but GPUSHIM_LIMIT_REQUIRED is on: a program that uses CUDA does not start";
        return config
            .limit_required
            .then(|| Check::new(what, Verdict::Problem, detail));
    };
    let size = bytes(limit.bytes);
    let scope = config.limit_scope.ledger(|name| std::env::var_os(name));
    let alone = |why: String| {
        let detail = match config.limit_required {
            true => format!("failed to {why}: a program that uses CUDA does not start"),
            false => format!("failed to {why}: {size} would hold for each process alone"),
        };
        Some(Check::new(what, Verdict::Problem, detail))
    };
    let path = match scope {
        Ok(None) => {
            let detail =
                format!("{size} of each device for each process that has libgpushim.so preloaded");
            return Some(Check::new(what, Verdict::Ok, detail));
        }
        Ok(Some(scope)) => match scope.path() {
            Ok(path) => path,
            Err(error) => return alone(error.to_string()),
        },
        Err(why) => return alone(why),
    };
    let shared = match path.exists() {
        true => SharedLimit::read(&path),
        false => {
            let detail = format!(
                "{size} of each device, shared by {}, which no process has used yet",
                path.display()
            );
            return Some(Check::new(what, Verdict::Ok, detail));
        }
    };
    match shared {
        Ok(shared) => {
            let processes: BTreeSet<u32> = shared.parts.iter().map(|part| part.pid).collect();
            let held = shared
                .devices()
                .map(|(device, held, _)| format!("; of {device} {} are held", bytes(held)));
            let detail = format!(
                "{size} of each device, shared by {}: processes there {}{}",
                path.display(),
                processes.len(),
                held.collect::<String>()
            );
            Some(Check::new(what, Verdict::Ok, detail))
        }
        Err(error) => alone(error.to_string()),
    }
}

/// Preloads the library into a harmless process, the only reliable test.
fn shim() -> Check {
    let what = "libgpushim.so";
    let path = match library::find() {
        Ok(path) => path,
        Err(error) => return Check::new(what, Verdict::Problem, format!("failed to {error}")),
    };
    let command = std::env::current_exe().unwrap_or_else(|_| PathBuf::from("/bin/true"));
    let tried = Command::new(command)
        .arg("--version")
        .env("LD_PRELOAD", &path)
        .output();
    match tried {
        Ok(output) if output.status.success() && output.stderr.is_empty() => loads(&path),
        Ok(output) => {
            let said = String::from_utf8_lossy(&output.stderr);
            let said = said.lines().next().unwrap_or("it said nothing").to_string();
            Check::new(
                what,
                Verdict::Problem,
                format!(
                    "{} does not load ({}): {said}",
                    path.display(),
                    output.status
                ),
            )
        }
        Err(error) => Check::new(
            what,
            Verdict::Problem,
            format!("failed to start a process with it: {error}"),
        ),
    }
}

/// The library loads: which one it is.
fn loads(path: &Path) -> Check {
    let what = "libgpushim.so";
    let path_shown = path.display();
    let Some(version) = version_of(path) else {
        let detail =
            format!("{path_shown} loads, but does not tell its version: it is an older one");
        return Check::new(what, Verdict::Note, detail);
    };
    let ours = gpushim_version::source();
    let is_of_one_release = version
        .strip_prefix(&ours)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with(','));
    if is_of_one_release {
        return Check::new(what, Verdict::Ok, format!("{path_shown} loads: {version}"));
    }
    let detail =
        format!("{path_shown} loads: {version}, of another release than this command, {ours}");
    Check::new(what, Verdict::Note, detail)
}

/// Version, commit and build id that the library returns.
fn version_of(path: &Path) -> Option<String> {
    type Tell = unsafe extern "C" fn() -> *const c_char;
    // SAFETY: it was just preloaded into a process, where its initialisers did no harm.
    let library = unsafe { libloading::Library::new(path) }.ok()?;
    // SAFETY: `const char *gpushim_version(void)` in include/gpushim.h. None if another library's
    // `dlsym` finds nothing.
    let tell = unsafe { library.get::<Option<Tell>>(b"gpushim_version\0") };
    let tell = tell.ok().and_then(|tell| *tell);
    // SAFETY: it takes nothing, and returns a C string that lives as long as the library.
    let version = tell.map(|tell| unsafe { CStr::from_ptr(tell()) });
    let version = version.map(|version| version.to_string_lossy().into_owned());
    // Linked with `-z nodelete`, it stays anyway.
    std::mem::forget(library);
    version
}

fn driver() -> Check {
    let what = "libcuda.so.1";
    // SAFETY: loading runs the library's initialisers, as every CUDA program does.
    let library = match unsafe { libloading::Library::new(what) } {
        Ok(library) => library,
        Err(error) => {
            let detail = format!(
                "not found ({error}): CUDA programs cannot run here; install NVIDIA's driver"
            );
            return Check::new(what, Verdict::Problem, detail);
        }
    };
    let mut version: c_int = 0;
    // SAFETY: `CUresult cuDriverGetVersion(int *)` has this type in every driver, and needs no
    // cuInit.
    let result = unsafe {
        match library.get::<unsafe extern "C" fn(*mut c_int) -> c_int>(b"cuDriverGetVersion\0") {
            Ok(get) => get(&mut version),
            Err(error) => {
                return Check::new(
                    what,
                    Verdict::Problem,
                    format!("is not a CUDA driver: {error}"),
                );
            }
        }
    };
    let path = loaded_path("libcuda.so").unwrap_or_else(|| what.to_string());
    // Not unloaded: the unloading of drivers is hardly tested.
    std::mem::forget(library);
    if result != 0 {
        return Check::new(
            what,
            Verdict::Problem,
            format!("{path}: cuDriverGetVersion gave error {result}"),
        );
    }
    let kernel = std::fs::read_to_string("/sys/module/nvidia/version").ok();
    let kernel = kernel.map_or(String::new(), |version| {
        format!(", kernel module {}", version.trim())
    });
    Check::new(
        what,
        Verdict::Ok,
        format!(
            "{path}, CUDA {}.{}{kernel}",
            version / 1000,
            version % 1000 / 10
        ),
    )
}

/// The file that a library of this name was loaded from.
fn loaded_path(name: &str) -> Option<String> {
    let maps = std::fs::read_to_string("/proc/self/maps").ok()?;
    let path = |line: &str| Some(line[line.find('/')?..].to_string());
    maps.lines().filter_map(path).find(|path| {
        path.rsplit('/')
            .next()
            .is_some_and(|file| file.starts_with(name))
    })
}

/// The dynamic CUDA runtimes that the loader would find.
fn cudarts() -> Check {
    let what = "libcudart";
    let mut found = BTreeSet::new();
    let path = std::env::var_os("LD_LIBRARY_PATH").unwrap_or_default();
    let folders = std::env::split_paths(&path).chain([PathBuf::from("/usr/local/cuda/lib64")]);
    for folder in folders {
        let entries = std::fs::read_dir(&folder).into_iter().flatten().flatten();
        let names = entries.filter(|entry| {
            entry
                .file_name()
                .to_string_lossy()
                .starts_with("libcudart.so.")
        });
        found.extend(names.filter_map(|entry| entry.path().canonicalize().ok()));
    }
    let cache = ["ldconfig", "/sbin/ldconfig"]
        .iter()
        .find_map(|name| Command::new(name).arg("-p").output().ok());
    let cache = cache
        .map(|output| String::from_utf8_lossy(&output.stdout).into_owned())
        .unwrap_or_default();
    let listed = cache
        .lines()
        .filter(|line| line.trim_start().starts_with("libcudart.so."));
    found
        .extend(listed.filter_map(|line| Path::new(line.split_once("=> ")?.1).canonicalize().ok()));
    if found.is_empty() {
        let detail = "none on the library path; programs bring their own (PyTorch's wheels) or link it statically";
        return Check::new(what, Verdict::Note, detail);
    }
    let paths: Vec<_> = found
        .iter()
        .map(|path| path.display().to_string())
        .collect();
    Check::new(what, Verdict::Ok, paths.join(", "))
}

fn clock() -> Check {
    let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let kernel = kernel.trim();
    match ClockSource::detect() {
        ClockSource::Tsc => Check::new(
            "clock",
            Verdict::Ok,
            format!("invariant time stamp counter, kernel {kernel}"),
        ),
        ClockSource::Monotonic => {
            let detail = format!(
                "CLOCK_MONOTONIC, about 17 ns more an event: no invariant TSC, kernel {kernel}"
            );
            Check::new("clock", Verdict::Note, detail)
        }
    }
}

/// Creates a trace as the shim would, and removes it.
fn trace_folder(resolved: &Resolved) -> Check {
    let what = "trace";
    let Some(pattern) = resolved.config.trace.as_deref() else {
        return Check::new(what, Verdict::Note, "off (GPUSHIM_TRACE=off)");
    };
    let rank = rank(|name| std::env::var_os(name)).unwrap_or(0);
    let mut path = trace_path(pattern, std::process::id(), rank, &host());
    path.set_extension("gpushim-doctor");
    let options = WriterOptions {
        bytes: resolved.config.trace_size,
        ..WriterOptions::default()
    };
    match Writer::create(&path, &options) {
        Ok(writer) => {
            let folder = writer
                .path()
                .parent()
                .unwrap_or(Path::new("/"))
                .display()
                .to_string();
            let size = bytes(resolved.config.trace_size);
            match std::fs::remove_file(writer.path()) {
                Ok(()) => Check::new(
                    what,
                    Verdict::Ok,
                    format!("{pattern} in {folder}, {size}, writable"),
                ),
                Err(error) => Check::new(
                    what,
                    Verdict::Problem,
                    format!("failed to remove a file in {folder}: {error}"),
                ),
            }
        }
        Err(error) => {
            let detail = format!("failed to {error}; set GPUSHIM_TRACE elsewhere");
            Check::new(what, Verdict::Problem, detail)
        }
    }
}
