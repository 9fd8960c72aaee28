//! Output of `config` and `doctor`.

use super::*;

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
    let value = result(&bad("json"));
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
    let sound = result(
        &command
            .env("GPUSHIM_LIBRARY", harmless_library())
            .output()
            .unwrap(),
    );
    // It loads, and is another library.
    let library = check(&sound, "libgpushim.so");
    assert_eq!(library["verdict"], "note", "{sound}");
    let detail = library["detail"].as_str().unwrap();
    assert!(
        detail.contains(" loads, but does not tell its version"),
        "{detail}"
    );
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
        .env("GPUSHIM_TRACE", "broken.so/%p");
    let output = command
        .env("GPUSHIM_POLICY", "plan:run.plan")
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    let broken = result(&output);
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
            .contains("GPUSHIM_POLICY=plan:run.plan")
    );
}

#[test]
fn doctor_says_what_takeover_would_do() {
    let dir = tempfile::tempdir().unwrap();
    let mut command = gpushim(dir.path(), &["doctor", "--format", "json"]);
    let found = command
        .env("GPUSHIM_LIBRARY", harmless_library())
        .env("GPUSHIM_TAKEOVER", "torch,tf")
        .env("GPUSHIM_ELASTIC", "auto")
        .env("PYTORCH_CUDA_ALLOC_CONF", "backend:native")
        .env_remove("PYTORCH_ALLOC_CONF")
        .env_remove("TF_GPU_ALLOCATOR")
        .output()
        .unwrap();
    let found = result(&found);
    let torch = check(&found, "takeover.torch");
    assert_eq!(torch["verdict"], "note");
    let why = "left alone: PYTORCH_CUDA_ALLOC_CONF chooses backend:native";
    assert_eq!(torch["detail"], why);
    let elastic = check(&found, "elastic.torch");
    assert_eq!(
        (&elastic["verdict"], &elastic["detail"]),
        (&"note".into(), &why.into())
    );
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
    assert!(!text.contains("GPUSHIM_TAKEOVER"), "{text}");
    assert!(text.lines().count() <= 10, "{text}");
    let all = stdout(&run(dir.path(), &["doctor", "--all"]));
    assert!(all.contains("\nWhat frameworks cannot do under GPUSHIM_TAKEOVER\n"));
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
        let found = result(&command.output().unwrap());
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
    at_fixed_times(&sample(&dir.path().join("a.trace")), 8);
    // The run had a problem.
    let text = printed(dir.path(), &["doctor", "a.trace"], 1);
    insta::assert_snapshot!(text);
    assert!(
        !text.contains('\u{1b}') && !text.contains('\u{7}'),
        "control characters stay out of the terminal"
    );
}

#[test]
fn doctor_names_the_builds_of_command_and_library() {
    let version = stdout(&run(Path::new("/"), &["--version"]));
    let version = version.strip_prefix("gpushim ").unwrap().trim();
    let source = format!("{}, commit ", env!("CARGO_PKG_VERSION"));
    assert!(version.starts_with(&source), "{version}");
    assert!(version.contains(", build id "), "{version}");
    let value = result(&run(Path::new("/"), &["doctor", "--format", "json"]));
    let check = |what: &str| {
        let checks = value["checks"].as_array().unwrap();
        let found = checks.iter().find(|check| check["what"] == what);
        found.unwrap_or_else(|| panic!("no check of {what}: {value}"))
    };
    assert_eq!(check("gpushim")["detail"], version);
    let library = check("libgpushim.so");
    assert_eq!(library["verdict"], "ok", "{library}");
    let detail = library["detail"].as_str().unwrap();
    let (path, told) = detail.split_once(" loads: ").unwrap();
    assert!(path.ends_with("/libgpushim.so"), "{detail}");
    assert!(told.starts_with(&source), "{detail}");
    // Each file has its own.
    assert_ne!(told, version);
}

#[test]
fn doctor_says_whether_a_pythons_functions_are_recorded() {
    let folder = tempfile::tempdir().unwrap();
    let named = |name: &str, content: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, content).unwrap();
        let executable = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(&path, executable).unwrap();
        let output = run(
            Path::new("/"),
            &[
                "doctor",
                "--python",
                path.to_str().unwrap(),
                "--format",
                "json",
            ],
        );
        let checks = result(&output)["checks"].as_array().unwrap().clone();
        let check = checks.into_iter().find(|check| check["what"] == "Python");
        let check = check.expect("a check of Python");
        let text = |key: &str| check[key].as_str().unwrap().to_string();
        (text("verdict"), text("detail"))
    };
    let (verdict, detail) = named("python", "#!/bin/sh\nexec python3 \"$@\"\n");
    assert_eq!(verdict, "ok", "{detail}");
    assert!(
        detail.ends_with("stacks have its functions, with file and line"),
        "{detail}"
    );
    let (verdict, detail) = named("broken", "#!/bin/sh\necho no >&2\nexit 3\n");
    assert_eq!(verdict, "problem", "{detail}");
    assert!(
        detail.starts_with("failed to ask ") && detail.ends_with(": no"),
        "{detail}"
    );
    let (verdict, detail) = named("other", "#!/bin/sh\necho hello\n");
    assert_eq!(verdict, "problem", "{detail}");
    assert!(detail.contains("it is no Python"), "{detail}");
}
