//! The command, as a process, on traces made by the writer.

use std::io::Read;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use gpushim_trace::{Class, Cost, Event, Kind, Writer, WriterOptions, flags};
use serde_json::Value;

const MIB: u64 = 1 << 20;

/// The command in a directory, with nothing of gpushim in its environment.
fn gpushim(dir: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_gpushim"));
    command.args(args).current_dir(dir).env_remove("LD_PRELOAD");
    for (name, _) in
        std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("GPUSHIM_"))
    {
        command.env_remove(name);
    }
    command
}

fn run(dir: &Path, args: &[&str]) -> Output {
    gpushim(dir, args).output().unwrap()
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

fn json(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{error}: {}", stdout(output)))
}

fn event(kind: Kind, address: u64, size: u64) -> Event {
    Event {
        device: 0,
        thread: 77,
        address,
        size,
        ..Event::new(kind, Class::Device)
    }
}

/// A small run: two blocks from the driver, one hit, a tensor, an out-of-memory, one leak.
fn sample(path: &Path) -> PathBuf {
    let options = WriterOptions {
        bytes: 64 << 10,
        rank: Some(2),
        counters: &["hits"],
        ..WriterOptions::default()
    };
    let writer = Writer::create(path, &options).unwrap();
    for (key, value) in [
        ("driver", "/usr/lib/libcuda.so.1"),
        ("driver.cuda", "13.0"),
        ("cudart", "/opt/libcudart.so.13"),
        ("hooks", "120"),
        ("gpu.0", "NVIDIA H100 80GB HBM3, 85899345920 bytes"),
        ("GPUSHIM_POLICY", "blocks"),
        ("deepbind", "/opt/plugin.so"),
        (
            "takeover.torch",
            "PYTORCH_ALLOC_CONF says backend:cudaMallocAsync already",
        ),
        ("takeover.torch.limits", "`torch.cuda.MemPool`: raises"),
        (
            "problem",
            "GPUSHIM_REUSE=x: expected order, wait or strict; using order",
        ),
        ("odd", "\u{1b}[31mred\u{7}"),
    ] {
        writer.fact(key, value);
    }
    let alloc = |flag, address, size| Event {
        flags: flag,
        extra: [0, Cost::pack(35_000, 2 * MIB)],
        ..event(Kind::Alloc, address, size)
    };
    let tensor = |kind, size| Event {
        class: Class::Tensor,
        extra: [MIB / 2, 2 * MIB],
        ..event(kind, 0x1000, size)
    };
    for event in [
        event(Kind::Reserve, 0x1000, 2 * MIB),
        alloc(flags::GROWN, 0x1000, MIB),
        event(Kind::Reserve, 0x2000, 2 * MIB),
        alloc(flags::GROWN, 0x2000, 2 * MIB),
        tensor(Kind::TensorAlloc, MIB / 2),
        Event {
            extra: [0, Cost::pack(0, 2 * MIB)],
            ..event(Kind::Free, 0x2000, 2 * MIB)
        },
        alloc(flags::HIT, 0x2000, MIB),
        Event {
            result: 2,
            extra: [MIB, 80 << 30],
            ..event(Kind::OutOfMemory, 0, 100 << 30)
        },
    ] {
        writer.record(&event);
    }
    writer.path().to_path_buf()
}

#[test]
fn report_tells_the_run_on_one_screen() {
    let dir = tempfile::tempdir().unwrap();
    sample(&dir.path().join("a.trace"));
    let output = run(dir.path(), &["report", "a.trace"]);
    assert_eq!(
        (output.status.code(), stderr(&output).as_str()),
        (Some(0), "")
    );
    let text = stdout(&output);
    let squeezed: Vec<_> = text
        .lines()
        .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "))
        .collect();
    let has = |start: &str| {
        assert!(
            squeezed.iter().any(|line| line.starts_with(start)),
            "no line starts with {start:?}:\n{text}"
        );
    };
    has("trace a.trace");
    has(&format!("process {} on ", std::process::id()));
    has("gpu 0 NVIDIA H100 80GB HBM3, 80.0 GiB");
    has("driver CUDA 13.0, /usr/lib/libcuda.so.1");
    has("settings policy blocks");
    has("events 8 recorded");
    has("requested 3.0 MiB");
    has("allocated 4.0 MiB");
    has("reserved 4.0 MiB");
    has("utilization 75.0 %");
    has("tensors 512.0 KiB");
    has("framework reserved 2.0 MiB +1.5 MiB");
    has("Held at the peak, 512.0 KiB of tensors");
    has("512.0 KiB 100.0 % × 1");
    has("device 3 1 4.0 MiB 2.0 MiB (2)");
    has("Served from hit 1 (33.3 %), grown 2 (66.7 %)");
    has("Hit rate 33.3 %");
    has("In the driver 105.0 µs for allocations");
    has("Verdict");
    has("- Out of memory at ");
    has("at run time: GPUSHIM_REUSE=x");
    has("/opt/plugin.so was loaded with RTLD_DEEPBIND");
    has("Next: gpushim oom a.trace");
    assert!(
        text.lines().count() <= 50,
        "one screen: {} lines",
        text.lines().count()
    );
}

#[test]
fn several_traces_are_the_ranks_of_one_job() {
    let dir = tempfile::tempdir().unwrap();
    let job = dir.path().join("job");
    std::fs::create_dir(&job).unwrap();
    for (rank, blocks) in [(0, 50), (1, 50), (2, 90), (3, 51)] {
        let options = WriterOptions {
            rank: Some(rank),
            ..WriterOptions::default()
        };
        let writer = Writer::create(&job.join(format!("{rank}.trace")), &options).unwrap();
        for block in 0..blocks {
            writer.record(&event(Kind::Alloc, (block + 1) << 21, 2 * MIB));
        }
    }
    let output = run(dir.path(), &["report", "job", "--format", "json"]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let found = json(&output);
    assert_eq!(found["reports"].as_array().unwrap().len(), 4);
    let job = &found["job"];
    assert_eq!(
        (&job["highest"], &job["outliers"]),
        (&2.into(), &serde_json::json!([2]))
    );
    assert_eq!(job["ranks"][2]["peak"], 180 * MIB);
    // 241 blocks of 2 MiB on four ranks.
    assert_eq!(job["mean"], 241 * 2 * MIB / 4);
    let text = stdout(&run(
        dir.path(),
        &[
            "report",
            "job/0.trace",
            "job/1.trace",
            "job/2.trace",
            "job/3.trace",
        ],
    ));
    assert!(
        text.starts_with("4 ranks: rank 2 peaks highest, at 180.0 MiB after "),
        "{text}"
    );
    assert!(
        text.contains(
            "Rank 2 is unlike the others: 80.0 MiB more than the median of them, 100.0 MiB."
        ),
        "{text}"
    );
    // The one report that follows is that of the highest.
    assert_eq!(text.matches("trace      ").count(), 1, "{text}");
    assert!(text.contains("trace      job/2.trace"), "{text}");
    let one = stdout(&run(dir.path(), &["report", "job/0.trace"]));
    assert!(one.starts_with("trace      job/0.trace"), "{one}");
}

#[test]
fn report_as_json_has_exact_figures() {
    let dir = tempfile::tempdir().unwrap();
    sample(&dir.path().join("a.trace"));
    let output = run(
        dir.path(),
        &["report", "--format", "json", "a.trace", "a.trace"],
    );
    assert_eq!(output.status.code(), Some(0));
    let value = json(&output);
    assert_eq!(value["reports"].as_array().unwrap().len(), 2);
    let report = &value["reports"][0];
    let device = &report["summary"]["devices"][0];
    assert_eq!(device["requested"]["peak"], 3 * MIB);
    assert_eq!(device["reserved"]["end"], 4 * MIB);
    assert_eq!(device["tensors"]["tensors"]["peak"], MIB / 2);
    assert_eq!(device["top_at_end"][0]["count"], 2);
    assert_eq!(report["summary"]["sources"]["grown"], 2);
    assert_eq!(report["summary"]["events"]["recorded"], 8);
    assert_eq!(report["counters"][0][0], "hits");
}

#[test]
fn without_a_file_the_newest_is_taken() {
    let dir = tempfile::tempdir().unwrap();
    let output = run(dir.path(), &["report"]);
    assert_eq!(output.status.code(), Some(2));
    let line = stderr(&output);
    assert!(
        line.starts_with("gpushim: failed to find a trace: no file matches gpushim-%h-%p.trace"),
        "{line}"
    );
    assert_eq!(line.lines().count(), 1);
    sample(&dir.path().join("gpushim-h-1.trace"));
    std::thread::sleep(Duration::from_millis(20));
    sample(&dir.path().join("gpushim-h-2.trace"));
    std::thread::sleep(Duration::from_millis(20));
    sample(&dir.path().join("other.trace"));
    let text = stdout(&run(dir.path(), &["report"]));
    assert!(text.starts_with("trace      gpushim-h-2.trace\n"), "{text}");
    let elsewhere = gpushim(dir.path(), &["report"])
        .env("GPUSHIM_TRACE", "oth%p.trace")
        .output()
        .unwrap();
    assert!(stdout(&elsewhere).starts_with("trace      other.trace\n"));
}

#[test]
fn a_wrapped_ring_is_said() {
    let dir = tempfile::tempdir().unwrap();
    let options = WriterOptions {
        bytes: 4096,
        ..WriterOptions::default()
    };
    let writer = Writer::create(&dir.path().join("a.trace"), &options).unwrap();
    (0..500).for_each(|address| writer.record(&event(Kind::Alloc, address, 1)));
    let text = stdout(&run(dir.path(), &["report", "a.trace"]));
    assert!(
        text.contains("events     500 recorded, 64 readable, 436 lost, 0 torn"),
        "{text}"
    );
    assert!(text.contains("the ring has wrapped"), "{text}");
}

#[test]
fn a_block_that_outlives_the_ring_counts() {
    let dir = tempfile::tempdir().unwrap();
    let options = WriterOptions {
        bytes: 4096,
        ..WriterOptions::default()
    };
    let writer = Writer::create(&dir.path().join("a.trace"), &options).unwrap();
    writer.record_alloc(&event(Kind::Alloc, MIB, 3 * MIB));
    // It is told by when it was made, which is before all that the ring still has.
    std::thread::sleep(Duration::from_millis(1));
    for _ in 0..500 {
        writer.record_alloc(&event(Kind::Alloc, 64 * MIB, MIB));
        writer.record_free(&event(Kind::Free, 64 * MIB, MIB));
    }
    let report = json(&run(dir.path(), &["report", "a.trace", "--format", "json"]));
    let summary = &report["reports"][0]["summary"];
    assert_eq!(summary["events"]["wrapped"], true);
    assert_eq!(
        (&summary["older"]["count"], &summary["older"]["bytes"]),
        (&1.into(), &(3 * MIB).into())
    );
    let requested = &summary["devices"][0]["requested"];
    assert_eq!(
        (&requested["peak"], &requested["end"]),
        (&(4 * MIB).into(), &(3 * MIB).into())
    );
    let held = &report["reports"][0]["peaks"][0];
    assert_eq!(
        (&held["bytes"], &held["unknown"]),
        (&(4 * MIB).into(), &0.into())
    );
}

#[test]
fn events_are_listed_filtered_and_limited() {
    let dir = tempfile::tempdir().unwrap();
    sample(&dir.path().join("a.trace"));
    let all = stdout(&run(dir.path(), &["events", "a.trace"]));
    assert_eq!(all.lines().count(), 9, "{all}");
    assert!(
        all.contains("grown, block 2.0 MiB, 35.0 µs in the driver"),
        "{all}"
    );
    assert!(all.contains("free 1.0 MiB, of 80.0 GiB, result 2"), "{all}");
    let some = stdout(&run(
        dir.path(),
        &["events", "--kind", "alloc,free", "--limit", "2", "a.trace"],
    ));
    assert_eq!(some.lines().count(), 3, "{some}");
    let output = run(
        dir.path(),
        &["events", "--kind", "alloc", "--format", "json", "a.trace"],
    );
    let lines: Vec<Value> = stdout(&output)
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(lines.len(), 3);
    assert_eq!(lines[0]["event"], 1);
    assert_eq!(lines[0]["address"], 0x1000);
    assert_eq!(lines[0]["flags"][0], "grown");
    assert_eq!(lines[0]["block"], 2 * MIB);
    assert_eq!(lines[0]["thread"], 77);
    assert_eq!(lines[2]["flags"][0], "hit");
    let wrong = run(dir.path(), &["events", "--kind", "allocation", "a.trace"]);
    assert_eq!(wrong.status.code(), Some(2));
    assert!(stderr(&wrong).contains("expected one of alloc, free, reserve"));
}

#[test]
fn a_reader_that_stops_early_is_no_error() {
    let dir = tempfile::tempdir().unwrap();
    let writer = Writer::create(&dir.path().join("a.trace"), &WriterOptions::default()).unwrap();
    (0..50_000).for_each(|address| writer.record(&event(Kind::Alloc, address, 1)));
    for format in ["text", "json"] {
        let mut command = gpushim(dir.path(), &["events", "--format", format, "a.trace"]);
        let mut child = command
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut some = [0; 10];
        child.stdout.take().unwrap().read_exact(&mut some).unwrap();
        let output = child.wait_with_output().unwrap();
        assert_eq!(
            (output.status.code(), stderr(&output).as_str()),
            (Some(0), ""),
            "{format}"
        );
    }
}

#[test]
fn the_documentation_of_variables_is_what_the_table_says() {
    let output = run(Path::new("/"), &["config", "--markdown"]);
    let page = std::fs::read_to_string(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/docs/configuration.md"
    ))
    .unwrap();
    assert!(
        stdout(&output) == page,
        "docs/configuration.md: run `gpushim config --markdown > docs/configuration.md`"
    );
}

#[test]
fn config_says_what_is_in_force_and_what_is_wrong() {
    let fine = run(Path::new("/"), &["config"]);
    assert_eq!(fine.status.code(), Some(0));
    assert!(
        stdout(&fine).contains("GPUSHIM_POLICY       auto "),
        "{}",
        stdout(&fine)
    );
    let bad = |format: &str| {
        let mut command = gpushim(Path::new("/"), &["config", "--format", format]);
        command
            .env("GPUSHIM_LIMIT", "lots")
            .env("GPUSHIM_REUSE", "wait")
            .env("GPUSHIM_POLCY", "off");
        command.output().unwrap()
    };
    let text = bad("text");
    assert_eq!(text.status.code(), Some(1));
    assert!(
        stdout(&text).contains("GPUSHIM_LIMIT=lots: expected a size"),
        "{}",
        stdout(&text)
    );
    assert!(
        stdout(&text).contains("GPUSHIM_POLCY=off: no such variable"),
        "{}",
        stdout(&text)
    );
    let value = json(&bad("json"));
    assert_eq!(value["problems"].as_array().unwrap().len(), 2);
    let reuse = value["settings"]
        .as_array()
        .unwrap()
        .iter()
        .find(|one| one["name"] == "GPUSHIM_REUSE")
        .unwrap();
    assert_eq!(
        (reuse["value"].as_str(), reuse["origin"].as_str()),
        (Some("wait"), Some("environment"))
    );
}

/// A library that can be preloaded into anything: the C library, which is there already.
fn harmless_library() -> String {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let paths = maps
        .lines()
        .filter_map(|line| Some(&line[line.find('/')?..]));
    paths
        .into_iter()
        .find(|path| path.contains("/libc.so.6") || path.contains("/libc-2"))
        .unwrap()
        .to_string()
}

fn check<'a>(value: &'a Value, what: &str) -> &'a Value {
    let checks = value["checks"].as_array().unwrap();
    checks
        .iter()
        .find(|check| check["what"] == what)
        .unwrap_or_else(|| panic!("{what}: {value}"))
}

#[test]
fn doctor_examines_the_machine() {
    let dir = tempfile::tempdir().unwrap();
    let mut command = gpushim(dir.path(), &["doctor", "--format", "json"]);
    let sound = json(
        &command
            .env("GPUSHIM_LIBRARY", harmless_library())
            .output()
            .unwrap(),
    );
    assert_eq!(check(&sound, "libgpushim.so")["verdict"], "ok", "{sound}");
    assert_eq!(check(&sound, "trace")["verdict"], "ok");
    assert!(sound["limits"].as_array().unwrap().len() > 4);
    assert_eq!(
        std::fs::read_dir(dir.path()).unwrap().count(),
        0,
        "it leaves nothing behind"
    );

    std::fs::write(dir.path().join("broken.so"), "no library").unwrap();
    let mut command = gpushim(dir.path(), &["doctor", "--format", "json"]);
    command
        .env("GPUSHIM_LIBRARY", dir.path().join("broken.so"))
        .env("GPUSHIM_TRACE", "no/such/%p");
    let output = command.env("GPUSHIM_POLICY", "plan").output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let broken = json(&output);
    assert_eq!(check(&broken, "libgpushim.so")["verdict"], "problem");
    assert!(
        check(&broken, "libgpushim.so")["detail"]
            .as_str()
            .unwrap()
            .contains("does not load"),
        "{broken}"
    );
    assert_eq!(check(&broken, "trace")["verdict"], "problem");
    assert!(
        check(&broken, "setting")["detail"]
            .as_str()
            .unwrap()
            .contains("GPUSHIM_POLICY=plan")
    );
}

#[test]
fn doctor_says_what_takeover_would_do() {
    let dir = tempfile::tempdir().unwrap();
    let mut command = gpushim(dir.path(), &["doctor", "--format", "json"]);
    let found = command
        .env("GPUSHIM_LIBRARY", harmless_library())
        .env("GPUSHIM_TAKEOVER", "torch,tf")
        .env("PYTORCH_CUDA_ALLOC_CONF", "backend:native")
        .env_remove("PYTORCH_ALLOC_CONF")
        .env_remove("TF_GPU_ALLOCATOR")
        .output()
        .unwrap();
    let found = json(&found);
    let torch = check(&found, "takeover.torch");
    assert_eq!(torch["verdict"], "note");
    let why = "left alone: PYTORCH_CUDA_ALLOC_CONF chooses backend:native";
    assert_eq!(torch["detail"], why);
    let tf = check(&found, "takeover.tf");
    assert_eq!(tf["verdict"], "ok");
    assert_eq!(tf["detail"], "set TF_GPU_ALLOCATOR=cuda_malloc_async");
    let limits = found["takeover_limits"].as_array().unwrap();
    assert_eq!(limits.len(), gpushim_config::takeover::LIMITS.len());
    assert_eq!(limits[0]["framework"], "PyTorch");
    assert!(
        limits[0]["what"]
            .as_str()
            .unwrap()
            .contains("reduce-overhead")
    );

    let text = stdout(&run(dir.path(), &["doctor"]));
    assert!(!text.contains("takeover."), "not asked for: {text}");
    assert!(text.contains("\nNot done by frameworks under GPUSHIM_TAKEOVER\n"));
}

#[test]
fn doctor_minds_the_order_of_preloaded_libraries() {
    let dir = tempfile::tempdir().unwrap();
    let compile = |name: &str, source: &str| {
        let path = dir.path().join(name);
        std::fs::write(path.with_extension("c"), source).unwrap();
        let made = Command::new("gcc")
            .args(["-shared", "-fPIC", "-o"])
            .arg(&path)
            .arg(path.with_extension("c"))
            .status();
        assert!(made.unwrap().success());
        path.display().to_string()
    };
    let calls = "void *dlsym(void *, const char *); void *use(void) { return dlsym(0, \"x\"); }";
    let harmless = compile("libharmless.so", calls);
    let exports = "void *dlsym(void *a, const char *b) { (void)a; (void)b; return 0; }";
    let greedy = compile("libgreedy.so", exports);
    let ours = compile("libgpushim.so", "int nothing;");
    let verdict = |list: &[&str]| {
        let mut command = gpushim(dir.path(), &["doctor", "--format", "json"]);
        command.env("LD_PRELOAD", list.join(":"));
        let found = json(&command.output().unwrap());
        let found = check(&found, "LD_PRELOAD");
        let part = |name: &str| found[name].as_str().unwrap().to_string();
        (part("verdict"), part("detail"))
    };
    for list in [
        &[ours.as_str()][..],
        &[harmless.as_str(), ours.as_str()],
        &[ours.as_str(), greedy.as_str()],
    ] {
        let (verdict, detail) = verdict(list);
        assert_eq!(verdict, "note", "{detail}");
        assert!(
            detail.ends_with("(already names libgpushim.so)"),
            "{detail}"
        );
    }
    let (found, detail) = verdict(&[&harmless, &greedy, &ours]);
    assert_eq!(found, "problem");
    let start = format!("{greedy} comes before libgpushim.so and exports dlsym: ");
    assert!(detail.starts_with(&start), "{detail}");
    let (found, detail) = verdict(&[&harmless]);
    assert_eq!(found, "note");
    assert!(detail.contains("other libraries"), "{detail}");
}

#[test]
fn doctor_tells_what_a_run_hooked() {
    let dir = tempfile::tempdir().unwrap();
    sample(&dir.path().join("a.trace"));
    let output = run(dir.path(), &["doctor", "a.trace"]);
    assert_eq!(output.status.code(), Some(1), "the run had a problem");
    let text = stdout(&output);
    for part in [
        "PROBLEM  setting",
        "/opt/libcudart.so.13",
        "note     deepbind",
        "hooks",
        "GPUSHIM_POLICY",
        "ok       takeover.torch         PYTORCH_ALLOC_CONF says",
        "note     takeover.torch.limits  not done there: `torch.cuda.MemPool`: raises",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert!(
        !text.contains('\u{1b}') && !text.contains('\u{7}'),
        "control characters stay out of the terminal"
    );
}

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
            "--policy", "segments", "--limit", "1g", "--", "sh", "-c", script,
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
        "{library}:{}\nsegments\n1g\n{}/gpushim-%h-%p.trace\n",
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
fn run_names_the_traces_that_were_written() {
    let dir = tempfile::tempdir().unwrap();
    let trace = sample(&dir.path().join("source"));
    sample(&dir.path().join("gpushim-old-1.trace"));
    let copy = |names: &str| format!("for name in {names}; do cp {} $name; done", trace.display());
    let one = run_command(dir.path(), &["--", "sh", "-c", &copy("gpushim-h-2.trace")])
        .output()
        .unwrap();
    assert_eq!(
        stderr(&one),
        "gpushim: wrote gpushim-h-2.trace; next: gpushim report gpushim-h-2.trace\n"
    );
    let two = run_command(
        dir.path(),
        &["--trace", "x%p", "--", "sh", "-c", &copy("x1 x2")],
    )
    .output()
    .unwrap();
    assert_eq!(
        stderr(&two),
        "gpushim: wrote 2 traces; next: gpushim report x1 x2\n"
    );
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
    assert_eq!(killed.status.code(), Some(137));
    let missing = run_command(dir.path(), &["--", "/no/such/program"])
        .output()
        .unwrap();
    assert_eq!(missing.status.code(), Some(2));
    let line = stderr(&missing);
    assert!(
        line.starts_with("gpushim: failed to run /no/such/program: "),
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

/// The subcommands that read recordings.
const READERS: [&str; 16] = [
    "report",
    "events",
    "doctor",
    "growth",
    "leaks",
    "peak",
    "phases",
    "oom",
    "fragmentation",
    "drops",
    "timeline",
    "flamegraph",
    "top",
    "replay",
    "plan",
    "tune",
];

#[test]
fn hostile_files_give_a_sentence_and_never_a_panic() {
    let dir = tempfile::tempdir().unwrap();
    let whole = std::fs::read(sample(&dir.path().join("sound"))).unwrap();
    let write =
        |name: &str, content: &[u8]| std::fs::write(dir.path().join(name), content).unwrap();
    write("empty", b"");
    write("text", &b"op,ptr,size\n".repeat(1000));
    write("zeros", &[0; 100_000]);
    write("magic", b"gpushim\0");
    write("header", &whole[..2000]);
    std::fs::create_dir(dir.path().join("folder")).unwrap();
    for name in [
        "empty", "text", "zeros", "magic", "header", "folder", "missing",
    ] {
        for args in READERS.map(|command| [command, name]) {
            let output = run(dir.path(), &args);
            assert_eq!(
                output.status.code(),
                Some(2),
                "{args:?}: {}",
                stderr(&output)
            );
            let line = stderr(&output);
            assert!(
                line.starts_with("gpushim: failed to read the trace "),
                "{args:?}: {line}"
            );
            assert_eq!(
                (line.lines().count(), output.stdout.len()),
                (1, 0),
                "{args:?}: {line}"
            );
        }
    }
    // Readable in part: what is there is told, with a note.
    write("cut", &whole[..whole.len() - 65_000]);
    let mut torn = whole.clone();
    torn[300..340].fill(0xff);
    write("directory", &torn);
    let mut noisy = whole.clone();
    for (at, byte) in noisy.iter_mut().enumerate().skip(8192) {
        *byte ^= (at as u8).wrapping_mul(37);
    }
    write("noise", &noisy);
    for name in ["cut", "directory", "noise"] {
        for args in READERS.map(|command| [command, name]) {
            let begin = Instant::now();
            let output = run(dir.path(), &args);
            assert!(
                matches!(output.status.code(), Some(0 | 1)),
                "{args:?}: {:?} {}",
                output.status,
                stderr(&output)
            );
            assert!(!output.stdout.is_empty());
            assert!(!stderr(&output).contains("panicked"));
            // It comes to an end, on a busy machine too.
            assert!(begin.elapsed() < Duration::from_secs(60));
        }
    }
    let cut = stdout(&run(dir.path(), &["report", "cut"]));
    assert!(cut.contains("damage: the file is cut off: "), "{cut}");
    // One bad file does not keep the good one from being told.
    let both = run(dir.path(), &["report", "text", "sound"]);
    assert_eq!(both.status.code(), Some(2));
    assert!(stdout(&both).contains("8 recorded"));
}

#[test]
fn a_trace_without_stacks_has_no_symbols_to_pack() {
    let dir = tempfile::tempdir().unwrap();
    let trace = sample(&dir.path().join("a.trace"));
    for args in [&["symbols"][..], &["symbols", "-o", "all.symbols"]] {
        let output = run(dir.path(), &[args, &[trace.to_str().unwrap()]].concat());
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        assert!(stdout(&output).ends_with("a.trace: no call stacks to name\n"));
    }
    let files = std::fs::read_dir(dir.path()).unwrap().count();
    assert_eq!(files, 1);
    let output = run(dir.path(), &["symbols", "missing.trace"]);
    assert_eq!(output.status.code(), Some(2));
}

#[test]
fn findings_of_a_small_run() {
    let dir = tempfile::tempdir().unwrap();
    sample(&dir.path().join("run.trace"));
    let output = run(
        dir.path(),
        &["peak", "run.trace", "--of", "memory", "--format", "json"],
    );
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let peak = &json(&output)["findings"][0];
    let report = json(&run(
        dir.path(),
        &["report", "run.trace", "--format", "json"],
    ));
    let requested = &report["reports"][0]["summary"]["devices"][0]["requested"];
    assert_eq!(
        (&peak["bytes"], &peak["ns"]),
        (&requested["peak"], &requested["peak_ns"])
    );
    let end = json(&run(
        dir.path(),
        &[
            "peak",
            "--of",
            "memory",
            "run.trace",
            "--at",
            "end",
            "--format",
            "json",
        ],
    ));
    assert_eq!(end["findings"][0]["bytes"], requested["end"]);
    // Out of memory is what was asked about: exit code 1, and the figures of the event.
    let output = run(dir.path(), &["oom", "run.trace", "--format", "json"]);
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    let shortage = &json(&output)["findings"][0]["shortages"][0];
    assert_eq!(
        shortage["size"],
        report["reports"][0]["summary"]["out_of_memory"][0]["size"]
    );
    let text = stdout(&run(dir.path(), &["growth", "run.trace"]));
    assert!(text.contains("No iterations were found"), "{text}");
    let output = run(dir.path(), &["peak", "--at", "soon"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("expected seconds like 12.5, or end"));
}

#[test]
fn views_of_a_small_run() {
    let dir = tempfile::tempdir().unwrap();
    sample(&dir.path().join("run.trace"));
    let text = |args: &[&str]| {
        let output = run(dir.path(), args);
        assert_eq!(
            output.status.code(),
            Some(0),
            "{args:?}: {}",
            stderr(&output)
        );
        stdout(&output)
    };
    let found = text(&["fragmentation", "run.trace", "--of", "memory"]);
    assert!(
        found.contains("Not fragmented: 0 B (0.0 %) of the 4.0 MiB"),
        "{found}"
    );
    assert!(found.contains("100.0 %  ████"), "{found}");
    let found = text(&[
        "fragmentation",
        "run.trace",
        "--at",
        "0",
        "--format",
        "json",
    ]);
    let found: Value = serde_json::from_str(&found).unwrap();
    assert_eq!(found["findings"][0]["is_peak"], false);
    let found = text(&["drops", "run.trace", "--of", "memory"]);
    assert!(found.contains("No drop lasts"), "{found}");
    assert!(found.contains("2.0 MiB  3.0 MiB  1.0 MiB"), "{found}");
    let wide = text(&["timeline", "run.trace", "--width", "60"]);
    assert!(
        wide.contains("gpu 0: █ tensors, ▓ at times, ░ reserved by the framework"),
        "{wide}"
    );
    let longest = wide.lines().map(|line| line.chars().count()).max();
    assert_eq!(longest, Some(60), "{wide}");
    let found = text(&["timeline", "run.trace", "--format", "json"]);
    let found: Value = serde_json::from_str(&found).unwrap();
    let curves = &found["findings"][0]["devices"][0]["curves"];
    assert_eq!(curves[0]["peak"], MIB / 2, "{found:#}");
    let found = text(&["flamegraph", "run.trace", "--of", "live"]);
    assert!(found.contains("512.0 KiB live at the end"), "{found}");
    let found = text(&["flamegraph", "run.trace", "--of", "total", "--folded"]);
    assert_eq!(found, "(no stack recorded) 524288\n");
    for args in [
        &["timeline", "--svg", "a.svg", "run.trace"][..],
        &["flamegraph", "--svg", "b.svg", "run.trace", "run.trace"],
    ] {
        assert_eq!(text(args), "");
        let svg = std::fs::read_to_string(dir.path().join(args[2])).unwrap();
        assert!(
            svg.contains("<svg ") && svg.trim_end().ends_with("</svg>"),
            "{svg}"
        );
    }
    let output = run(
        dir.path(),
        &[
            "flamegraph",
            "--of",
            "temporary",
            "--svg",
            "c.svg",
            "run.trace",
        ],
    );
    assert_eq!(output.status.code(), Some(2));
    assert!(
        stderr(&output)
            .contains("failed to draw a flame graph: no bytes were freed in the iteration"),
        "{}",
        stderr(&output)
    );
    assert!(!dir.path().join("c.svg").exists());
}

#[test]
fn tune_advises_what_to_set() {
    use std::fmt::Write;

    let dir = tempfile::tempdir().unwrap();
    // Twenty steps that each ask for 64 and 128 MiB, in turn, and give them back; one block stays.
    let mut list = format!(
        "op,ptr,size,stream,thread,time_ns\nalloc,0x1000000000,{},0,1,0\n",
        64 * MIB
    );
    for step in 1..=20_u64 {
        let (bytes, ns) = ((64 + 64 * (step % 2)) * MIB, step * 100_000_000);
        for (op, ns) in [("alloc", ns), ("free", ns + 50_000_000)] {
            writeln!(list, "{op},{:#x},{bytes},0,1,{ns}", (16 + step) << 36).unwrap();
        }
    }
    std::fs::write(dir.path().join("steps.csv"), list).unwrap();
    let output = run(dir.path(), &["tune", "steps.csv", "--format", "json"]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let found = json(&output);
    let advice = &found["advice"];
    assert_eq!(
        advice["environment"],
        serde_json::json!({"GPUSHIM_PAGE": "64M"})
    );
    assert_eq!(advice["line"], "GPUSHIM_PAGE=64M");
    assert_eq!(advice["peak_reserved"], 192 * MIB);
    assert_eq!(advice["utilization"], 1.0);
    assert_eq!(advice["saves"]["than"], "torch");
    assert_eq!(found["not_tried"], 0);
    let front = found["front"].as_array().unwrap();
    let is_advised = |row: &&Value| row["is_advised"] == true;
    assert_eq!(front.iter().filter(is_advised).count(), 1, "{front:?}");
    assert_eq!(
        found["confidence"]["level"], "sure",
        "{}",
        found["confidence"]
    );

    let text = stdout(&run(dir.path(), &["tune", "steps.csv"]));
    for part in [
        "steps.csv: device memory\ngpu 0: 41 requests, at most 192.0 MiB live\n",
        "\npolicy ",
        "  advised\n",
        "driver calls take at most 2 % of the run after its start",
        "\n\n  GPUSHIM_PAGE=64M\n\nIt would have held 192.0 MiB at most",
        "GPUSHIM_LIMIT=192M would have been enough",
        "\nSure: ",
    ] {
        assert!(text.contains(part), "no {part:?} in {text}");
    }
    let fits = stdout(&run(dir.path(), &["tune", "steps.csv", "--limit", "200M"]));
    assert!(fits.contains("All of them fit into 200.0 MiB."), "{fits}");
    let output = run(dir.path(), &["tune", "steps.csv", "--limit", "100M"]);
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    let text = stdout(&output);
    assert!(
        text.contains("Nothing fits into 100.0 MiB. Closest is "),
        "{text}"
    );
    assert!(text.contains("it needs 192.0 MiB."), "{text}");
    let late = stdout(&run(dir.path(), &["tune", "steps.csv", "--seconds", "0"]));
    assert!(late.contains("There was no time to try anything"), "{late}");
    let wrong = run(dir.path(), &["tune", "steps.csv", "--within", "200"]);
    assert_eq!(wrong.status.code(), Some(2));
    // One advice for what can be read.
    let some = run(dir.path(), &["tune", "steps.csv", "missing.csv"]);
    assert_eq!(some.status.code(), Some(2));
    assert!(stdout(&some).contains("GPUSHIM_PAGE=64M"));
}
