//! Takeover: the environment of a process, and the facts in its trace.

use gpushim_config::takeover::{Framework, limits_of};

use crate::support::{Outcome, Run, place, program};

const CUDA: &str = "PYTORCH_CUDA_ALLOC_CONF";
const ANY: &str = "PYTORCH_ALLOC_CONF";
const TORCH: &str = "PYTORCH_CUDA_ALLOC_CONF=backend:cudaMallocAsync\n\
                     PYTORCH_ALLOC_CONF=backend:cudaMallocAsync\n";
const JAX: &str = "XLA_PYTHON_CLIENT_ALLOCATOR=cuda_async\nXLA_PYTHON_CLIENT_PREALLOCATE=false\n";
const TF: &str = "TF_GPU_ALLOCATOR=cuda_malloc_async\n";

fn run(takeover: &str) -> Run {
    Run::new(program("environment")).env("GPUSHIM_TAKEOVER", takeover)
}

/// The variables under takeover of some frameworks, with the user's own settings.
fn found(takeover: &str, set: &[(&str, &str)]) -> Outcome {
    let run = set
        .iter()
        .fold(run(takeover), |run, (name, value)| run.env(name, value));
    let outcome = run.shim();
    assert_eq!(outcome.code, 0, "{}", outcome.stdout);
    outcome
}

/// Result of [`found`], with the one fact about a framework.
fn decided(framework: &str, set: &[(&str, &str)]) -> (String, String) {
    let outcome = found(framework, set);
    let trace = outcome.trace();
    let facts = trace.facts(&format!("takeover.{framework}"));
    assert_eq!(facts.len(), 1, "{:?}", trace.facts);
    (outcome.told(), facts[0].to_owned())
}

#[test]
fn each_framework_has_its_variables() {
    for (takeover, variables) in [
        ("torch", TORCH.to_owned()),
        ("jax", JAX.to_owned()),
        ("tf", TF.to_owned()),
        ("tf, torch", [TORCH, TF].concat()),
        ("all", [TORCH, JAX, TF].concat()),
    ] {
        let outcome = found(takeover, &[]);
        assert_eq!(outcome.told(), variables, "{takeover}");
        let trace = outcome.trace();
        for framework in Framework::ALL {
            let key = format!("takeover.{}", framework.key());
            let asked = takeover == "all" || takeover.contains(framework.key());
            assert_eq!(trace.facts(&key).len(), usize::from(asked), "{key}");
            let limits = trace.facts(&format!("{key}.limits"));
            let expected = asked.then(|| limits_of(framework));
            assert_eq!(limits.first().copied(), expected.as_deref(), "{key}");
        }
    }
}

#[test]
fn elastic_memory_is_in_expandable_segments_unless_another_backend_is_chosen() {
    let outcome = found("torch", &[("GPUSHIM_ELASTIC", "auto")]);
    assert_eq!(outcome.told(), TORCH);
    let elastic = found("off", &[("GPUSHIM_ELASTIC", "on"), (CUDA, "a:b")]);
    let set = "PYTORCH_CUDA_ALLOC_CONF=a:b,expandable_segments:True";
    assert_eq!(elastic.told(), format!("{set}\n"));
    let said = format!("set {set}");
    assert_eq!(elastic.trace().facts("elastic.torch"), [said.as_str()]);
    let off = found("off", &[("GPUSHIM_ELASTIC", "off"), (CUDA, "a:b")]);
    assert_eq!(off.told(), "PYTORCH_CUDA_ALLOC_CONF=a:b\n");
}

#[test]
fn nothing_changes_unless_it_is_asked_for() {
    let plain = Run::new(program("environment")).env(CUDA, "x:y");
    let (native, shim) = plain.both();
    assert_eq!(native.told(), "PYTORCH_CUDA_ALLOC_CONF=x:y\n");
    for takeover in ["", "off"] {
        let (_, shim) = plain.clone().env("GPUSHIM_TAKEOVER", takeover).both();
        assert!(!facts(&shim).contains("takeover."));
    }
    assert!(!facts(&shim).contains("takeover."));
    // A mistake is reported, and takes nothing over.
    let wrong = plain
        .env("GPUSHIM_TAKEOVER", "pytorch")
        .may_complain()
        .shim();
    assert_eq!(wrong.told(), native.told());
    assert_eq!(
        wrong.complaints(),
        [
            "gpushim: GPUSHIM_TAKEOVER=pytorch: expected off, all, or a list of torch, jax, tf; using off"
        ]
    );
}

fn facts(outcome: &Outcome) -> String {
    let trace = outcome.trace();
    let lines: Vec<_> = trace
        .facts
        .iter()
        .map(|(key, value)| format!("{key} {value}"))
        .collect();
    lines.join("\n")
}

#[test]
fn options_of_pytorch_that_are_there_stay() {
    let options = "expandable_segments:True, roundup_power2_divisions:[256:1,512:2,>:4],";
    let kept = options.trim_end_matches(',');
    for name in [CUDA, ANY] {
        let (told, fact) = decided("torch", &[(name, options)]);
        let line = format!("{name}={kept},backend:cudaMallocAsync");
        assert_eq!(told, format!("{line}\n"));
        assert_eq!(fact, format!("set {line}"));
    }
    let (told, _) = decided("torch", &[(CUDA, "a:b"), (ANY, "c:d")]);
    assert_eq!(
        told,
        "PYTORCH_CUDA_ALLOC_CONF=a:b,backend:cudaMallocAsync\n\
         PYTORCH_ALLOC_CONF=c:d,backend:cudaMallocAsync\n"
    );
    // Set to nothing is not set.
    let (told, _) = decided("torch", &[(CUDA, ""), (ANY, " ")]);
    assert_eq!(told, TORCH);
}

#[test]
fn what_the_user_chose_stands() {
    for (framework, set, words) in [
        (
            "torch",
            &[(CUDA, "a:b"), (ANY, "c:[1:2], Backend: native")][..],
            "left alone: PYTORCH_ALLOC_CONF chooses backend:native",
        ),
        (
            "torch",
            &[(CUDA, "backend:cudaMallocAsync")],
            "PYTORCH_CUDA_ALLOC_CONF says backend:cudaMallocAsync already",
        ),
        (
            "torch",
            &[(ANY, "a:[1:2")],
            "left alone: the brackets in PYTORCH_ALLOC_CONF=a:[1:2 do not match",
        ),
        (
            "jax",
            &[("XLA_PYTHON_CLIENT_ALLOCATOR", "platform")],
            "left alone: XLA_PYTHON_CLIENT_ALLOCATOR chooses platform",
        ),
        (
            "tf",
            &[("TF_GPU_ALLOCATOR", "bfc")],
            "left alone: TF_GPU_ALLOCATOR chooses bfc",
        ),
    ] {
        let (told, fact) = decided(framework, set);
        let as_set: String = set
            .iter()
            .map(|(name, value)| format!("{name}={value}\n"))
            .collect();
        assert_eq!((told, fact.as_str()), (as_set, words));
    }
    let (told, fact) = decided("jax", &[("XLA_PYTHON_CLIENT_PREALLOCATE", "true")]);
    assert_eq!(
        told,
        "XLA_PYTHON_CLIENT_ALLOCATOR=cuda_async\nXLA_PYTHON_CLIENT_PREALLOCATE=true\n"
    );
    assert!(fact.ends_with("; XLA_PYTHON_CLIENT_PREALLOCATE=true was left as it is"));
}

#[test]
fn a_value_that_is_no_text_is_left_alone() {
    let script = format!(
        "unset {CUDA}; {ANY}=$(printf 'a\\377') GPUSHIM_TAKEOVER=torch exec {}",
        program("environment").display()
    );
    let shim = Run::new("/bin/sh").args(["-c", &script]).shim();
    assert_eq!(shim.told(), "PYTORCH_ALLOC_CONF=a\u{fffd}\n");
    let trace = shim.trace();
    assert_eq!(
        trace.facts("takeover.torch"),
        ["left alone: PYTORCH_ALLOC_CONF is not UTF-8"]
    );
    assert_eq!(trace.facts("takeover.torch.limits"), [] as [&str; 0]);
}

#[test]
fn children_have_the_same_values() {
    let shim = run("all").env(CUDA, "a:b").arg("2").shim();
    let one = format!(
        "PYTORCH_CUDA_ALLOC_CONF=a:b,backend:cudaMallocAsync\n{}",
        [JAX, TF].concat()
    );
    assert_eq!(shim.told(), one.repeat(3));
    let processes = shim.notes("process");
    assert_eq!(processes.len(), 3);
    for (generation, process) in processes.iter().enumerate() {
        let trace = shim.trace_of(process[0].parse().expect("a number"));
        let fact = trace.facts("takeover.torch")[0].to_owned();
        let (start, end) = if generation == 0 {
            ("set ", "cudaMallocAsync")
        } else {
            ("PYTORCH_CUDA_ALLOC_CONF says ", " already")
        };
        assert!(fact.starts_with(start) && fact.ends_with(end), "{fact}");
        // The framework is on that backend, whether this process or its parent set it.
        assert_eq!(trace.facts("takeover.torch.limits").len(), 1);
    }
}

#[test]
fn programs_of_every_kind_hand_it_on() {
    // A shell, a program that clears nothing, Python with a child: their output is their children's
    // environment.
    let script = "import os, subprocess, sys\n\
                  print(os.environ.get('PYTORCH_ALLOC_CONF'))\n\
                  sys.stdout.flush()\n\
                  subprocess.run(['/bin/sh', '-c', 'echo $PYTORCH_ALLOC_CONF; env | grep ^PYTORCH'], check=True)\n";
    let shim = Run::new("/bin/sh")
        .args(["-c", "exec env python3 -c \"$0\"", script])
        .env("GPUSHIM_TAKEOVER", "torch")
        .shim();
    let mut lines: Vec<_> = shim.stdout.lines().collect();
    lines[2..].sort_unstable();
    let expected = "backend:cudaMallocAsync";
    assert_eq!(
        lines,
        [
            expected,
            expected,
            "PYTORCH_ALLOC_CONF=backend:cudaMallocAsync",
            "PYTORCH_CUDA_ALLOC_CONF=backend:cudaMallocAsync"
        ]
    );
    assert_eq!(shim.files(), [] as [&str; 0], "a trace without CUDA");
}

#[test]
fn the_command_asks_for_it() {
    for (option, variables) in [
        ("--takeover", [TORCH, JAX, TF].concat()),
        ("--takeover=torch", TORCH.to_owned()),
        ("--takeover=off", String::new()),
    ] {
        let outcome = Run::new(env!("CARGO_BIN_EXE_gpushim"))
            .args(["run", option, "--trace=off"])
            .arg(program("environment"))
            .env("GPUSHIM_LIBRARY", &place().shim)
            .may_complain()
            .native();
        assert_eq!(
            (outcome.code, outcome.told()),
            (0, variables),
            "{}",
            outcome.stderr
        );
    }
}
