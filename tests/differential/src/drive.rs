//! Native and shimmed processes, side by side: batches, differences, and how a difference is
//! shortened.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use crate::cases::{Driver, Shim};

/// Paths of the shim, the stand-in and the results.
#[derive(Clone, Debug)]
pub struct Places {
    /// Path of the shim's shared library.
    pub shim: PathBuf,
    /// The folder of the stand-in.
    pub standin: PathBuf,
    /// A folder for logs, reports and traces.
    pub work: PathBuf,
}

/// Programs of one process.
#[derive(Clone, Copy, Debug)]
pub struct Batch {
    /// Seed of the first program.
    pub seed: u64,
    /// Number of programs in the batch.
    pub programs: u64,
    /// Number of steps of each program.
    pub steps: usize,
}

/// The longest that a process may take.
const PATIENCE: Duration = Duration::from_secs(120);

/// A line that a documented refusal prints: stream-ordered memory has no IPC handle.
const DOCUMENTED: &str = "gpushim: failed to make an IPC handle: memory of a stream-ordered pool";

/// Result of a worker process.
#[derive(Debug)]
pub enum End {
    /// Steps, and how often each promise was used.
    Done(u64, Vec<u64>),
    /// The difference, with the seed of its program.
    Differs(u64, String),
    /// The worker could not run.
    Broken(String),
}

fn worker(
    places: &Places,
    driver: &Driver,
    batch: Batch,
    log: &Path,
    keep: Option<&Path>,
) -> Command {
    let own = std::env::current_exe().unwrap_or_else(|_| "differential".into());
    let mut command = Command::new(own);
    command.arg("worker").arg(driver.name);
    command.args([
        batch.seed.to_string(),
        batch.programs.to_string(),
        batch.steps.to_string(),
    ]);
    command.arg(log);
    if let Some(keep) = keep {
        command.arg("--keep").arg(keep);
    }
    for (key, _) in std::env::vars_os() {
        let name = key.to_string_lossy();
        if name.starts_with("GPUSHIM_") || name.starts_with("STANDIN_") || name == "LD_PRELOAD" {
            command.env_remove(&key);
        }
    }
    command.env("LD_LIBRARY_PATH", &places.standin);
    command.env("STANDIN_DEVICES", driver.devices.to_string());
    command.env("STANDIN_MEMORY", driver.memory.to_string());
    command.envs(driver.env.iter().copied());
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

/// The process's output, or none if it did not end in time.
fn output(mut command: Command, errors: &Path) -> std::io::Result<Option<Output>> {
    let file = std::fs::File::create(errors)?;
    let mut child = command.stderr(file).spawn()?;
    let started = Instant::now();
    let mut pause = Duration::from_micros(500);
    loop {
        if child.try_wait()?.is_some() {
            return child.wait_with_output().map(Some);
        }
        if started.elapsed() > PATIENCE {
            child.kill()?;
            child.wait()?;
            return Ok(None);
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(10));
    }
}

fn read_end(output: std::io::Result<Option<Output>>, seed: u64, errors: &Path) -> End {
    let output = match output {
        Ok(Some(output)) => output,
        Ok(None) => {
            return End::Differs(
                seed,
                format!("the process hangs: not done after {} s", PATIENCE.as_secs()),
            );
        }
        Err(error) => return End::Broken(error.to_string()),
    };
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = std::fs::read_to_string(errors).unwrap_or_default();
    let complaints: Vec<&str> = errors
        .lines()
        .filter(|line| line.starts_with("gpushim:") || line.contains("panicked"))
        .filter(|line| !line.starts_with(DOCUMENTED))
        .collect();
    let tail = |text: &str| {
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(6)..].join("\n  ")
    };
    if let Some(found) = text.split_once("difference ") {
        let (of, rest) = found.1.split_once('\n').unwrap_or((found.1, ""));
        let of = of.trim().parse().unwrap_or(seed);
        return End::Differs(
            of,
            format!(
                "{}\n  last lines on stderr:\n  {}",
                rest.trim_end(),
                tail(&errors)
            ),
        );
    }
    if let Some(error) = text.lines().find_map(|line| line.strip_prefix("error ")) {
        return End::Broken(error.to_owned());
    }
    let Some(done) = text
        .lines()
        .find_map(|line| line.strip_prefix("done "))
        .filter(|_| output.status.success())
    else {
        return End::Differs(
            seed,
            format!(
                "the process ended with {}\n  {}",
                output.status,
                tail(&errors)
            ),
        );
    };
    if let Some(complaint) = complaints.first() {
        return End::Differs(seed, format!("the shim complains: {complaint}"));
    }
    let mut numbers = done.split(' ').filter_map(|number| number.parse().ok());
    End::Done(numbers.next().unwrap_or(0), numbers.collect())
}

/// A folder for the files of one thread of the campaign.
fn folder(places: &Places, lane: usize) -> PathBuf {
    let folder = places.work.join(format!("{}-{lane}", std::process::id()));
    let _ = std::fs::create_dir_all(&folder);
    folder
}

/// Runs programs natively; their log.
pub fn native(
    places: &Places,
    driver: &Driver,
    batch: Batch,
    lane: usize,
    keep: Option<&Path>,
) -> (PathBuf, End) {
    let folder = folder(places, lane);
    let log = folder.join("native.log");
    let errors = folder.join("native.err");
    let mut command = worker(places, driver, batch, &log, keep);
    if !driver.orders_memory() {
        // The shim's frees wait for nothing, as promised. A program that depends on this wait is
        // wrong natively, too.
        command.env("STANDIN_MEMORY_ORDERS", "no");
    }
    let end = read_end(output(command, &errors), batch.seed, &errors);
    (log, end)
}

/// Runs them under the shim and compares.
pub fn shimmed(
    places: &Places,
    driver: &Driver,
    shim: &Shim,
    batch: Batch,
    lane: usize,
    log: &Path,
    keep: Option<&Path>,
) -> End {
    let folder = folder(places, lane);
    let errors = folder.join("shim.err");
    let mut command = worker(places, driver, batch, log, keep);
    command.arg("--shim").arg(shim.name);
    command
        .env("LD_PRELOAD", &places.shim)
        .env("GPUSHIM_TRACE", "off");
    if shim.leaves_streams(driver) && !driver.orders_memory() {
        command.env("STANDIN_MEMORY_ORDERS", "no");
    }
    for (key, value) in shim.env {
        match *value {
            "@trace" => command.env(key, folder.join("%p.trace")),
            value => command.env(key, value),
        };
    }
    let end = read_end(output(command, &errors), batch.seed, &errors);
    remove_traces(&folder);
    end
}

fn remove_traces(folder: &Path) {
    let Ok(entries) = std::fs::read_dir(folder) else {
        return;
    };
    for entry in entries.flatten() {
        let path = entry.path();
        if path.to_string_lossy().contains(".trace") {
            let _ = if path.is_dir() {
                std::fs::remove_dir_all(&path)
            } else {
                std::fs::remove_file(&path)
            };
        }
    }
}

/// Runs the kept steps of one program natively and under the shim. Returns the difference.
fn trial(
    places: &Places,
    driver: &Driver,
    shim: &Shim,
    batch: Batch,
    lane: usize,
    keep: &[u32],
) -> Option<String> {
    let list = folder(places, lane).join("keep");
    let words: Vec<String> = keep.iter().map(u32::to_string).collect();
    std::fs::write(&list, words.join(" ")).ok()?;
    let (log, end) = native(places, driver, batch, lane, Some(&list));
    if !matches!(end, End::Done(..)) {
        return None;
    }
    match shimmed(places, driver, shim, batch, lane, &log, Some(&list)) {
        End::Differs(_, text) => Some(text),
        _ => None,
    }
}

/// Kind of a difference: the operation and the codes, without places and addresses.
fn kind_of(text: &str) -> String {
    let of = |line: &str| {
        line.trim()
            .split([',', '{'])
            .next()
            .unwrap_or_default()
            .chars()
            .filter(|c| !c.is_ascii_digit() || line.contains('['))
            .collect::<String>()
    };
    match text.split_once("op: ") {
        Some((_, rest)) => rest.lines().take(3).map(of).collect(),
        None => text.chars().take_while(|c| !c.is_ascii_digit()).collect(),
    }
}

/// A difference with the fewest steps found in `patience`, and these steps.
pub fn shorten(
    places: &Places,
    driver: &Driver,
    shim: &Shim,
    seed: u64,
    steps: usize,
    lane: usize,
    patience: Duration,
) -> Option<(String, Vec<u32>)> {
    let started = Instant::now();
    let batch = Batch {
        seed,
        programs: 1,
        steps,
    };
    let length = crate::generate::program(seed, driver.shape(steps)).len() as u32;
    let mut kept: Vec<u32> = (0..length).collect();
    let mut text = trial(places, driver, shim, batch, lane, &kept)?;
    let kind = kind_of(&text);
    if steps > 1000 {
        // Each trial takes too long, and a growth is in all of the steps.
        return Some((text, kept));
    }
    let mut part = kept.len().div_ceil(2);
    while part > 0 {
        let mut at = 0;
        let mut is_shorter = false;
        while at < kept.len() {
            if started.elapsed() > patience {
                return Some((text, kept));
            }
            let mut rest = kept.clone();
            rest.drain(at..(at + part).min(kept.len()));
            match trial(places, driver, shim, batch, lane, &rest) {
                Some(found) if kind_of(&found) == kind => {
                    (text, kept, is_shorter) = (found, rest, true);
                }
                _ => at += part,
            }
        }
        if !is_shorter || part > 1 {
            part = if part == 1 { 0 } else { part / 2 };
        }
    }
    Some((text, kept))
}

/// Runs one program natively and under the shim, and prints each step with its observations.
pub fn aloud(
    places: &Places,
    driver: &Driver,
    shim: &Shim,
    batch: Batch,
    keep: Option<&str>,
) -> i32 {
    let folder = folder(places, 0);
    let list = folder.join("keep");
    let kept =
        keep.map(|keep| std::fs::write(&list, keep.replace(',', " ")).map(|()| list.as_path()));
    let kept = match kept.transpose() {
        Ok(kept) => kept,
        Err(error) => {
            eprintln!("{}: {error}", list.display());
            return 3;
        }
    };
    let (log, end) = native(places, driver, batch, 0, kept);
    if !matches!(end, End::Done(..)) {
        println!("natively: {end:?}");
        return 3;
    }
    let mut command = worker(places, driver, batch, &log, kept);
    command.arg("--shim").arg(shim.name).arg("--loud");
    command
        .env("LD_PRELOAD", &places.shim)
        .env("GPUSHIM_TRACE", "off");
    command.envs(
        shim.env
            .iter()
            .filter(|(_, value)| *value != "@trace")
            .copied(),
    );
    command.stdout(Stdio::inherit()).stderr(Stdio::inherit());
    match command.status() {
        Ok(status) => status.code().unwrap_or(1),
        Err(error) => {
            eprintln!("{error}");
            3
        }
    }
}
