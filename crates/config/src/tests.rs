use super::*;

fn with(pairs: &[(&str, &str)]) -> Resolved {
    Resolved::from_lookup(|name| {
        pairs
            .iter()
            .find(|(key, _)| *key == name)
            .map(|(_, value)| OsString::from(value))
    })
}

fn default() -> Config {
    with(&[]).config
}

#[test]
fn defaults_are_those_of_the_table() {
    let resolved = with(&[]);
    assert_eq!(resolved.problems, []);
    assert_eq!(
        resolved.config,
        Config {
            enabled: true,
            policy: Policy::Vmm,
            reuse: Reuse::Order,
            limit: None,
            limit_scope: LimitScope::Process,
            limit_required: false,
            cache_max: None,
            decay: Duration::from_secs(10),
            page: 2 << 20,
            trace: Some("gpushim-%h-%p.trace".to_string()),
            trace_size: 64 << 20,
            trace_mode: TraceMode::Ring,
            trace_facts: Facts::Masked,
            spool_size: None,
            spool_floor: 1 << 30,
            stacks: Stacks::Off,
            python: true,
            owners: Announcements::Off,
            nvtx: Announcements::Auto,
            tensors: Announcements::Auto,
            takeover: Takeover::default(),
            elastic: Elastic::Off,
            autopsy: Autopsy::Off,
            log: Log::Warn,
        }
    );
    // All but GPUSHIM_LIBRARY, which only the command reads.
    let listed: Vec<_> = resolved
        .settings
        .iter()
        .map(|setting| setting.variable.name)
        .collect();
    let table: Vec<_> = VARIABLES.iter().map(|variable| variable.name).collect();
    assert_eq!(listed, table[..table.len() - 1]);
}

#[test]
fn every_default_is_accepted_when_written_out() {
    let resolved = Resolved::from_lookup(|name| {
        VARIABLES
            .iter()
            .find(|variable| variable.name == name)
            .map(|variable| variable.default.into())
    });
    assert_eq!(resolved.problems, []);
    assert_eq!(resolved.config, default());
    assert!(
        resolved
            .settings
            .iter()
            .all(|setting| setting.origin == Origin::Environment)
    );
}

#[test]
fn values_are_taken() {
    let (config, problems) = Config::from_lookup(|name| {
        let value = match name {
            "GPUSHIM_POLICY" => "blocks",
            "GPUSHIM_REUSE" => "strict",
            "GPUSHIM_LIMIT" => "1.5g, guarantee=1M",
            "GPUSHIM_LIMIT_SCOPE" => "/dev/shm/x",
            "GPUSHIM_LIMIT_REQUIRED" => "on",
            "GPUSHIM_CACHE_MAX" => "0",
            "GPUSHIM_DECAY" => "off",
            "GPUSHIM_PAGE" => "4M",
            "GPUSHIM_TRACE" => "off",
            "GPUSHIM_TRACE_SIZE" => " 1MiB ",
            "GPUSHIM_TENSORS" => "off",
            "GPUSHIM_TAKEOVER" => "torch, tf",
            "GPUSHIM_ELASTIC" => "auto",
            "GPUSHIM_AUTOPSY" => "/opt/gpushim",
            "GPUSHIM_LOG" => "debug",
            _ => return None,
        };
        Some(value.into())
    });
    assert_eq!(problems, []);
    let expected = Config {
        policy: Policy::Blocks,
        reuse: Reuse::Strict,
        limit: Some(Limit {
            bytes: 1536 << 20,
            guarantee: 1 << 20,
        }),
        limit_scope: LimitScope::File("/dev/shm/x".into()),
        limit_required: true,
        cache_max: Some(0),
        decay: Duration::ZERO,
        page: 4 << 20,
        trace: None,
        trace_size: 1 << 20,
        tensors: Announcements::Off,
        takeover: Takeover {
            torch: true,
            jax: false,
            tf: true,
        },
        elastic: Elastic::Auto,
        autopsy: Autopsy::Command("/opt/gpushim".into()),
        // The autopsy needs them.
        stacks: Stacks::All,
        log: Log::Debug,
        ..default()
    };
    assert_eq!(config, expected);
}

#[test]
fn every_policy_is_known() {
    for (name, policy, sound) in [
        ("auto", Policy::Vmm, true),
        ("off", Policy::Off, true),
        ("blocks", Policy::Blocks, true),
        ("vmm", Policy::Vmm, true),
        ("segments", Policy::Vmm, false),
        ("bins", Policy::Vmm, false),
        ("driver", Policy::Vmm, false),
        ("plan:run.plan", Policy::Vmm, false),
    ] {
        let resolved = with(&[("GPUSHIM_POLICY", name)]);
        assert_eq!(
            (resolved.config.policy, resolved.problems.is_empty()),
            (policy, sound),
            "{name}"
        );
    }
}

#[test]
fn takeover_is_a_list() {
    let known = |text| {
        let resolved = with(&[("GPUSHIM_TAKEOVER", text)]);
        let Takeover { torch, jax, tf } = resolved.config.takeover;
        resolved.problems.is_empty().then_some([torch, jax, tf])
    };
    assert_eq!(known("off"), Some([false; 3]));
    assert_eq!(known("all"), Some([true; 3]));
    assert_eq!(known("torch"), Some([true, false, false]));
    assert_eq!(known(" tf ,jax"), Some([false, true, true]));
    assert_eq!(known("jax,all"), Some([true; 3]));
    for text in ["torch,", "Torch", "pytorch", "torch jax", "off,jax"] {
        assert_eq!(known(text), None, "{text}");
    }
}

#[test]
fn a_bad_value_is_one_line_and_the_default() {
    for variable in &VARIABLES[..VARIABLES.len() - 1] {
        // No variable accepts this: an unknown word, an unfinished pattern, no size, no time.
        let resolved = with(&[(variable.name, "nonsense%")]);
        assert_eq!(resolved.config, default(), "{}", variable.name);
        let [problem] = resolved.problems.as_slice() else {
            panic!("{}", variable.name)
        };
        let line = problem.to_string();
        assert!(
            line.starts_with(&format!("{}=nonsense%: expected ", variable.name)),
            "{line}"
        );
        assert!(line.contains(variable.accepts), "{line}");
        assert!(
            line.ends_with(&format!("using {}", variable.default)),
            "{line}"
        );
        assert!(!line.contains('\n'));
    }
}

#[test]
fn empty_is_unset_and_bytes_that_are_no_text_are_a_problem() {
    use std::os::unix::ffi::OsStringExt;
    assert_eq!(with(&[("GPUSHIM_LIMIT", "")]).problems, []);
    let (config, problems) = Config::from_lookup(|name| {
        (name == "GPUSHIM_TRACE").then(|| OsString::from_vec(vec![b'a', 0xff]))
    });
    assert_eq!(config, default());
    assert_eq!(problems.len(), 1);
}

#[test]
fn a_yes_or_no_is_taken_as_the_word_of_the_variable() {
    let in_force = |name, text| {
        let resolved = with(&[(name, text)]);
        let mut settings = resolved.settings.into_iter();
        let setting = settings.find(|setting| setting.variable.name == name);
        (
            resolved.problems.len(),
            setting.map(|setting| setting.value),
        )
    };
    for (name, yes, no) in [
        ("GPUSHIM_STACKS", "all", "off"),
        ("GPUSHIM_PYTHON", "on", "off"),
        ("GPUSHIM_OWNERS", "auto", "off"),
        ("GPUSHIM_TAKEOVER", "all", "off"),
        ("GPUSHIM_ELASTIC", "on", "off"),
    ] {
        for (text, word) in [("yes", yes), ("True", yes), ("no", no), ("FALSE", no)] {
            assert_eq!(
                in_force(name, text),
                (0, Some(word.to_string())),
                "{name}={text}"
            );
        }
    }
    assert_eq!(
        in_force("GPUSHIM_LIMIT", "no"),
        (0, Some("none".to_string()))
    );
    assert_eq!(in_force("GPUSHIM_LIMIT", "yes").0, 1);
}

#[test]
fn amounts_without_a_unit_are_asked_back() {
    for text in ["20", "80000", "1048575"] {
        let resolved = with(&[("GPUSHIM_LIMIT", text)]);
        assert_eq!(resolved.problems.len(), 1, "{text}");
    }
    for text in ["20b", "1048576", "17179869184", "20G"] {
        let resolved = with(&[("GPUSHIM_LIMIT", text)]);
        assert_eq!(resolved.problems, [], "{text}");
    }
}

#[test]
fn sizes() {
    for (text, bytes) in [
        ("0", 0),
        ("4096", 4096),
        ("512M", 512 << 20),
        ("2GiB", 2 << 30),
        ("1.5g", 1536 << 20),
        ("0.001k", 1),
        ("7 kb", 7 << 10),
        ("3T", 3 << 40),
        ("18446744073709551615", u64::MAX),
    ] {
        assert_eq!(size(text), Some(bytes), "{text}");
    }
    for text in [
        "",
        "M",
        "-1",
        "1.2.3",
        ".5G",
        "1e3",
        "1X",
        "99999999999T",
        "18446744073709551616",
        "1.0123456789G",
    ] {
        assert_eq!(size(text), None, "{text}");
    }
}

#[test]
fn durations() {
    for (text, ms) in [
        ("500ms", 500),
        ("10s", 10_000),
        ("2m", 120_000),
        ("1.5", 1500),
        ("1h", 3_600_000),
    ] {
        assert_eq!(duration(text), Some(Duration::from_millis(ms)), "{text}");
    }
    for text in ["", "s", "10 days", "-1s", "99999999999999h"] {
        assert_eq!(duration(text), None, "{text}");
    }
}

#[test]
fn patterns() {
    assert_eq!(
        trace_path("a-%p-%r-%h%%.trace", 7, 3, "n/1"),
        PathBuf::from("a-7-3-n_1%.trace")
    );
    assert_eq!(
        trace_path(DEFAULT_PATTERN, 1, 0, "host"),
        PathBuf::from("gpushim-host-1.trace")
    );
    for bad in ["", "%", "a%", "%x", "dir/", "a\0b"] {
        assert!(!path::is_pattern(bad), "{bad:?}");
    }
}

#[test]
fn ranks_come_from_the_launcher() {
    fn from(pairs: &'static [(&str, &str)]) -> impl Fn(&str) -> Option<OsString> {
        |name| {
            let pair = pairs.iter().find(|(key, _)| *key == name);
            pair.map(|(_, value)| OsString::from(value))
        }
    }
    let rank = |pairs| rank(from(pairs));
    assert_eq!(rank(&[]), None);
    assert_eq!(rank(&[("SLURM_PROCID", "5")]), Some(5));
    assert_eq!(rank(&[("SLURM_PROCID", "5"), ("RANK", "2")]), Some(2));
    assert_eq!(rank(&[("RANK", "x"), ("PMI_RANK", "1")]), Some(1));
    // MPICH's mpirun in a batch job: all its ranks have the number of the batch script.
    assert_eq!(rank(&[("SLURM_PROCID", "0"), ("PMI_RANK", "3")]), Some(3));
    // The size is set by the launcher that gave the rank: torchrun within a Slurm job of one task
    // for each node.
    let world = |pairs| world(from(pairs));
    assert_eq!(world(&[("WORLD_SIZE", "8")]), None);
    assert_eq!(world(&[("RANK", "0"), ("WORLD_SIZE", "0")]), None);
    assert_eq!(
        world(&[
            ("RANK", "3"),
            ("WORLD_SIZE", "8"),
            ("SLURM_PROCID", "0"),
            ("SLURM_NTASKS", "1")
        ]),
        Some(8)
    );
    assert_eq!(
        world(&[("SLURM_PROCID", "0"), ("SLURM_NTASKS", "4")]),
        Some(4)
    );
    let job = |pairs| job(from(pairs));
    assert_eq!(job(&[("TORCHELASTIC_RUN_ID", "none")]), None);
    assert_eq!(
        job(&[("TORCHELASTIC_RUN_ID", "a"), ("SLURM_JOB_ID", "77")]).as_deref(),
        Some("77")
    );
}

#[test]
fn the_page_names_every_variable() {
    let page = markdown();
    for variable in &VARIABLES {
        assert!(page.contains(&format!("| `{}` |", variable.name)));
        assert!(page.contains(&format!("\n## {}\n", variable.name)));
    }
}

#[test]
fn an_autopsy_has_stacks_unless_they_are_set() {
    let stacks = |pairs: &[(&str, &str)]| {
        let resolved = with(pairs);
        let mut settings = resolved.settings.iter();
        let setting = settings.find(|one| one.variable.name == "GPUSHIM_STACKS");
        let value = setting.map(|one| one.value.clone()).unwrap_or_default();
        (resolved.config.stacks, value)
    };
    let all = (Stacks::All, "all".to_string());
    for value in ["1", "on", "yes", "./gpushim"] {
        assert_eq!(stacks(&[("GPUSHIM_AUTOPSY", value)]), all, "{value}");
        let set = stacks(&[("GPUSHIM_AUTOPSY", value), ("GPUSHIM_STACKS", "off")]);
        assert_eq!(set, (Stacks::Off, "off".to_string()));
    }
    for value in ["0", "off", ""] {
        let off = (Stacks::Off, "off".to_string());
        assert_eq!(stacks(&[("GPUSHIM_AUTOPSY", value)]), off, "{value}");
    }
}
