//! Tests of the subcommand `run`.

use super::*;

fn run_command(dir: &Path, args: &[&str]) -> Command {
    let mut command = gpushim(dir, &[&["run"], args].concat());
    command.env("GPUSHIM_LIBRARY", harmless_library());
    command
}

#[test]
fn run_sets_the_environment_and_hands_on_the_exit_code() {
    let dir = tempfile::tempdir().unwrap();
    let script =
        "echo $LD_PRELOAD; echo $GPUSHIM_POLICY; echo $GPUSHIM_LIMIT; echo $GPUSHIM_TRACE; exit 7";
    let mut command = run_command(
        dir.path(),
        &[
            "--policy", "blocks", "--limit", "1g", "--", "sh", "-c", script,
        ],
    );
    let output = command
        .env("LD_PRELOAD", harmless_library())
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(7));
    let library = Path::new(&harmless_library())
        .canonicalize()
        .unwrap()
        .display()
        .to_string();
    let here = dir.path().canonicalize().unwrap();
    let expected = format!(
        "{library}:{}\nblocks\n1g\n{}/gpushim-%h-%p.trace\n",
        harmless_library(),
        here.display()
    );
    assert_eq!(stdout(&output), expected);
    assert!(
        stderr(&output).starts_with("gpushim: no trace was written"),
        "{}",
        stderr(&output)
    );
}

#[test]
fn run_only_records_unless_a_pool_is_asked_for() {
    let dir = tempfile::tempdir().unwrap();
    let policy = |args: &[&str], variable: (&str, &str)| {
        let program = ["--", "sh", "-c", "echo policy=$GPUSHIM_POLICY"];
        let mut command = run_command(dir.path(), &[args, &program].concat());
        let output = command.env(variable.0, variable.1).output().unwrap();
        stdout(&output).trim().to_string()
    };
    let none = ("GPUSHIM_LOG", "warn");
    assert_eq!(policy(&[], none), "policy=off");
    assert_eq!(policy(&["--stacks=off"], none), "policy=off");
    assert_eq!(policy(&["--elastic=off"], none), "policy=off");
    assert_eq!(policy(&["--pool"], none), "policy=auto");
    assert_eq!(policy(&["--policy", "vmm"], none), "policy=vmm");
    // The library's own default is the pool.
    for args in [
        &["--limit", "20G"][..],
        &["--takeover"],
        &["--elastic"],
        &["--reuse", "strict"],
        &["--cache-max", "1G"],
        &["--decay", "1s"],
    ] {
        assert_eq!(policy(args, none), "policy=", "{args:?}");
    }
    assert_eq!(policy(&[], ("GPUSHIM_POLICY", "blocks")), "policy=blocks");
    assert_eq!(policy(&[], ("GPUSHIM_LIMIT", "20G")), "policy=");
    assert_eq!(policy(&[], ("GPUSHIM_TAKEOVER", "off")), "policy=off");
}

#[test]
fn run_names_an_option_that_it_does_not_know() {
    let dir = tempfile::tempdir().unwrap();
    for (args, said) in [
        (
            &["--stack", "true"][..],
            "failed to use --stack: `gpushim run` has no such option",
        ),
        (
            &["--limit", "20", "true"],
            "failed to use --limit 20: expected a size with its unit",
        ),
    ] {
        let output = run_command(dir.path(), args).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        assert!(stderr(&output).contains(said), "{}", stderr(&output));
    }
}

#[test]
fn run_names_the_traces_that_were_written() {
    let dir = tempfile::tempdir().unwrap();
    let trace = sample(&dir.path().join("source"));
    sample(&dir.path().join("gpushim-old-1.trace"));
    let copy = |names: &str| format!("for name in {names}; do cp {} $name; done", trace.display());
    let one = run_command(dir.path(), &["--", "sh", "-c", &copy("gpushim-h-2.trace")])
        .output()
        .unwrap();
    let said = stderr(&one);
    let (first, last) = (said.lines().next(), said.lines().last());
    assert!(
        first.is_some_and(|line| line.starts_with("gpushim: 1 finding; peak 512.0 KiB of tensors")),
        "{said}"
    );
    assert!(said.contains("\n  1. Out of memory at "), "{said}");
    assert!(said.lines().count() <= 8, "{said}");
    let last = last.unwrap_or_default();
    assert!(
        last.starts_with("gpushim: wrote gpushim-h-2.trace (")
            && last.ends_with(" on disk); next: gpushim report gpushim-h-2.trace"),
        "{said}"
    );
    let two = run_command(
        dir.path(),
        &["--trace", "x%p", "--", "sh", "-c", &copy("x1 x2")],
    )
    .output()
    .unwrap();
    let said = stderr(&two);
    let last = said.lines().last().unwrap_or_default();
    assert!(
        last.starts_with("gpushim: wrote 2 traces (")
            && last.ends_with("; next: gpushim report x1 x2"),
        "{said}"
    );
    let quiet = run_command(
        dir.path(),
        &["-q", "--trace", "y%p", "--", "sh", "-c", &copy("y1")],
    )
    .output()
    .unwrap();
    assert_eq!(
        (quiet.status.code(), stderr(&quiet).as_str()),
        (Some(0), "")
    );
    assert!(dir.path().join("y1").exists());
    let off = run_command(dir.path(), &["--trace", "off", "true"])
        .output()
        .unwrap();
    assert_eq!((off.status.code(), stderr(&off).as_str()), (Some(0), ""));
}

#[test]
fn run_ends_as_its_command_ends() {
    let dir = tempfile::tempdir().unwrap();
    let killed = run_command(dir.path(), &["--", "sh", "-c", "kill -KILL $$"])
        .output()
        .unwrap();
    assert_eq!(
        killed.status.signal(),
        Some(libc::SIGKILL),
        "as the shell itself was"
    );
    let missing = run_command(dir.path(), &["--", "/no/such/program"])
        .output()
        .unwrap();
    assert_eq!(missing.status.code(), Some(2));
    let line = stderr(&missing);
    assert!(
        line.starts_with("gpushim: failed to run /no/such/program: there is no such program"),
        "{line}"
    );
    let bad = run_command(dir.path(), &["--reuse", "never", "--", "true"])
        .output()
        .unwrap();
    assert_eq!(bad.status.code(), Some(2));
    assert!(
        stderr(&bad).contains("failed to use --reuse never: expected order, wait or strict"),
        "{}",
        stderr(&bad)
    );
    assert!(
        !stderr(&bad).contains("using"),
        "nothing is run: {}",
        stderr(&bad)
    );
    let later = run_command(
        dir.path(),
        &["--policy", "vmm", "--trace", "off", "--", "true"],
    )
    .output()
    .unwrap();
    assert_eq!(
        later.status.code(),
        Some(0),
        "understood, and the library says what it does instead"
    );
    let gone = gpushim(dir.path(), &["run", "true"])
        .env("GPUSHIM_LIBRARY", "/no/lib.so")
        .output()
        .unwrap();
    assert_eq!(gone.status.code(), Some(2));
    assert!(
        stderr(&gone).contains("failed to find libgpushim.so: GPUSHIM_LIBRARY=/no/lib.so"),
        "{}",
        stderr(&gone)
    );
}

#[test]
fn run_hands_signals_on() {
    let dir = tempfile::tempdir().unwrap();
    // The command says when it is ready, and that it got the signal.
    let script = "trap 'echo got; exit 9' TERM; echo ready; while :; do sleep 0.05; done";
    let mut command = run_command(dir.path(), &["--trace", "off", "--", "sh", "-c", script]);
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut out = child.stdout.take().unwrap();
    let mut ready = [0; 6];
    out.read_exact(&mut ready).unwrap();
    // SAFETY: the child is ours and has not been waited for.
    unsafe { libc::kill(child.id() as libc::pid_t, libc::SIGTERM) };
    let mut rest = String::new();
    out.read_to_string(&mut rest).unwrap();
    let status = child.wait().unwrap();
    assert_eq!(
        (rest.as_str(), status.code(), status.signal()),
        ("got\n", Some(9), None)
    );
}

#[test]
fn run_leaves_the_signal_mask_of_its_command_alone() {
    let dir = tempfile::tempdir().unwrap();
    let script = [
        "--trace",
        "off",
        "--",
        "grep",
        "SigBlk",
        "/proc/self/status",
    ];
    let output = run_command(dir.path(), &script).output().unwrap();
    let direct = Command::new("grep")
        .args(["SigBlk", "/proc/self/status"])
        .output()
        .unwrap();
    assert_eq!(stdout(&output), stdout(&direct));
}

#[test]
fn run_records_stacks_unless_it_is_told_not_to() {
    let dir = tempfile::tempdir().unwrap();
    let said = |args: &[&str], variable: Option<&str>| {
        let script = ["--", "sh", "-c", "echo $GPUSHIM_STACKS $GPUSHIM_PYTHON"];
        let mut command = run_command(dir.path(), &[args, &script].concat());
        if let Some(value) = variable {
            command.env("GPUSHIM_STACKS", value);
        }
        stdout(&command.output().unwrap())
    };
    assert_eq!(said(&[], None), "all\n");
    assert_eq!(said(&["--no-stacks"], None), "off\n");
    assert_eq!(said(&["--stacks", "off"], Some("all")), "off\n");
    assert_eq!(
        said(&["--stacks", "1M", "--python", "off"], None),
        "1M off\n"
    );
    assert_eq!(said(&["--stacks"], Some("off")), "all\n");
    assert_eq!(said(&[], Some("1/8")), "1/8\n");
    assert_eq!(said(&[], Some("off")), "off\n");
}

#[test]
fn options_after_the_program_are_the_programs() {
    let dir = tempfile::tempdir().unwrap();
    let words = [
        "--stacks",
        "off",
        "-q",
        "--help",
        "--color",
        "always",
        "--",
        "--trace=off",
        "-",
    ];
    for before in [
        &[][..],
        &["--stacks"],
        &["--stacks", "all"],
        &["--trace", "off"],
    ] {
        let program = ["printf", "%s|"];
        let output = run_command(dir.path(), &[before, &program, &words].concat())
            .output()
            .unwrap();
        assert_eq!(stdout(&output), words.join("|") + "|", "{before:?}");
        assert_eq!(output.status.code(), Some(0));
    }
}

#[test]
fn one_rank_speaks_for_all() {
    let dir = tempfile::tempdir().unwrap();
    let trace = sample(&dir.path().join("source"));
    let run = |variable: &str, rank: &str| {
        let name = format!("gpushim-{variable}-{rank}.trace");
        let script = format!("cp {} {name}; exit 3", trace.display());
        let mut command = run_command(dir.path(), &["sh", "-c", &script]);
        for name in ["RANK", "OMPI_COMM_WORLD_RANK", "SLURM_PROCID", "PMI_RANK"] {
            command.env_remove(name);
        }
        let output = command.env(variable, rank).output().unwrap();
        assert_eq!(output.status.code(), Some(3));
        assert!(dir.path().join(name).exists(), "a trace for each rank");
        stderr(&output)
    };
    for variable in ["RANK", "OMPI_COMM_WORLD_RANK", "SLURM_PROCID", "PMI_RANK"] {
        assert_eq!(run(variable, "1"), "", "{variable}");
        assert!(
            run(variable, "0").contains("; next: gpushim report "),
            "{variable}"
        );
    }
}
