//! `run` is its program: signals, stops, ends and the terminal are the same.

use std::os::unix::process::CommandExt;

use super::pseudo_terminal::start;
use super::*;

/// `run` with a summary at its end, so that it stays and waits.
fn staying(dir: &Path, script: &str) -> Command {
    let mut command = gpushim(dir, &["run", "--", "sh", "-c", script]);
    command.env("GPUSHIM_LIBRARY", harmless_library());
    for name in ["RANK", "OMPI_COMM_WORLD_RANK", "SLURM_PROCID", "PMI_RANK"] {
        command.env_remove(name);
    }
    command
}

fn line(out: &mut impl Read) -> String {
    let mut text = String::new();
    let mut letter = [0];
    while out.read(&mut letter).unwrap() == 1 && letter[0] != b'\n' {
        text.push(char::from(letter[0]));
    }
    text
}

fn state(pid: u32) -> Option<char> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(") ")?.1.chars().next()
}

fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !is_so() {
        assert!(begin.elapsed() < Duration::from_secs(30), "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn send(pid: u32, signal: libc::c_int) {
    // SAFETY: the process was started here and has not been waited for.
    unsafe { libc::kill(pid as libc::pid_t, signal) };
}

#[test]
fn every_signal_reaches_the_program() {
    let dir = tempfile::tempdir().unwrap();
    let signals = [
        ("TERM", libc::SIGTERM),
        ("HUP", libc::SIGHUP),
        ("INT", libc::SIGINT),
        ("QUIT", libc::SIGQUIT),
        ("USR1", libc::SIGUSR1),
        ("USR2", libc::SIGUSR2),
        ("ALRM", libc::SIGALRM),
        ("WINCH", libc::SIGWINCH),
        ("TSTP", libc::SIGTSTP),
        ("PWR", libc::SIGPWR),
    ];
    let traps: Vec<String> = signals
        .iter()
        .map(|(name, _)| format!("trap 'echo {name}' {name}"))
        .collect();
    let script = format!(
        "{}; trap 'exit 9' XCPU; echo ready; while :; do sleep 0.02; done",
        traps.join("; ")
    );
    let mut child = staying(dir.path(), &script)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut out = child.stdout.take().unwrap();
    assert_eq!(line(&mut out), "ready");
    for (name, signal) in signals {
        send(child.id(), signal);
        assert_eq!(line(&mut out), name);
    }
    send(child.id(), libc::SIGXCPU);
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(9));
    assert!(
        stderr(&output).starts_with("gpushim: no trace was written"),
        "{}",
        stderr(&output)
    );
}

#[test]
fn it_dies_by_the_signal_that_killed_the_program() {
    let dir = tempfile::tempdir().unwrap();
    for signal in [
        libc::SIGTERM,
        libc::SIGKILL,
        libc::SIGSEGV,
        libc::SIGINT,
        libc::SIGABRT,
    ] {
        let output = staying(dir.path(), &format!("ulimit -c 0; kill -{signal} $$"))
            .output()
            .unwrap();
        assert_eq!(output.status.signal(), Some(signal));
        assert!(!output.status.core_dumped());
        assert!(
            stderr(&output).contains("no trace was written"),
            "it still says its piece"
        );
    }
    // Exit code in a shell.
    let command = env!("CARGO_BIN_EXE_gpushim");
    let script = format!("{command} run -- sh -c 'kill -SEGV $$'; echo $?");
    let shell = Command::new("sh")
        .args(["-c", &script])
        .env("GPUSHIM_LIBRARY", harmless_library())
        .current_dir(dir.path())
        .output()
        .unwrap();
    assert_eq!(stdout(&shell), "139\n");
}

#[test]
fn killed_it_takes_the_program_with_it() {
    let dir = tempfile::tempdir().unwrap();
    let mut child = staying(dir.path(), "echo $$; exec sleep 60")
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let program: u32 = line(child.stdout.as_mut().unwrap()).parse().unwrap();
    send(child.id(), libc::SIGKILL);
    child.wait().unwrap();
    until("the program goes", || {
        state(program).is_none_or(|state| state == 'Z')
    });
}

#[test]
fn it_stops_and_goes_on_with_the_program() {
    let dir = tempfile::tempdir().unwrap();
    for signal in ["TSTP", "STOP", "TTIN"] {
        let script = format!("echo $$; kill -{signal} $$; echo on; exit 4");
        // In a group of its own, whose leader has a parent in this session: it may be stopped.
        let mut child = staying(dir.path(), &script)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()
            .unwrap();
        let mut out = child.stdout.take().unwrap();
        let program: u32 = line(&mut out).parse().unwrap();
        until("both stop", || {
            state(program) == Some('T') && state(child.id()) == Some('T')
        });
        send(child.id(), libc::SIGCONT);
        assert_eq!(line(&mut out), "on", "{signal}");
        assert_eq!(child.wait().unwrap().code(), Some(4));
    }
}

#[test]
fn the_terminal_is_the_programs() {
    let dir = tempfile::tempdir().unwrap();
    let script = "trap 'echo got; exit 5' INT; test -t 0 && test -t 1 && test -t 2 && echo terminal; \
                  read line; echo \"line $line\"; while :; do sleep 0.02; done";
    let mut on = start(&mut staying(dir.path(), script), 80);
    on.wait_for("terminal");
    on.press("typed\n");
    on.wait_for("line typed");
    on.press("\u{3}");
    let (seen, status) = on.end();
    assert_eq!(status.code(), Some(5), "{seen}");
    assert_eq!(
        seen.matches("got").count(),
        1,
        "once, from the terminal: {seen}"
    );
    assert!(seen.contains("no trace was written"), "{seen}");
}

#[test]
fn ctrl_c_ends_both() {
    let dir = tempfile::tempdir().unwrap();
    // No shell: dash loses a signal that comes while it starts a program.
    std::fs::write(dir.path().join("file"), "ready\n").unwrap();
    let mut command = gpushim(dir.path(), &["run", "--", "tail", "-f", "file"]);
    command.env("GPUSHIM_LIBRARY", harmless_library());
    let mut on = start(&mut command, 80);
    on.wait_for("ready");
    on.press("\u{3}");
    let (seen, status) = on.end();
    assert_eq!(status.signal(), Some(libc::SIGINT), "{seen}");
}

#[test]
fn the_ends_of_children_are_seen_where_they_were_ignored() {
    let dir = tempfile::tempdir().unwrap();
    let words = ["run", "--", "grep", "SigIgn", "/proc/self/status"];
    let mut command = gpushim(dir.path(), &words);
    command.env("GPUSHIM_LIBRARY", harmless_library());
    // SAFETY: the closure makes one async-signal-safe call.
    unsafe {
        command.pre_exec(|| {
            libc::signal(libc::SIGCHLD, libc::SIG_IGN);
            Ok(())
        });
    }
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert!(
        stderr(&output).contains("no trace was written"),
        "it has waited"
    );
    let ignored = stdout(&output);
    let ignored = ignored.trim().rsplit('\t').next().unwrap_or_default();
    let mask = u64::from_str_radix(ignored, 16).unwrap();
    assert_ne!(
        mask & 1 << (libc::SIGCHLD - 1),
        0,
        "the program ignores them still"
    );
}
