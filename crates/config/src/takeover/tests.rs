use super::*;

const CUDA: &str = "PYTORCH_CUDA_ALLOC_CONF";
const ANY: &str = "PYTORCH_ALLOC_CONF";

fn takeover(framework: Framework) -> Takeover {
    Takeover {
        torch: framework == Framework::Torch,
        jax: framework == Framework::Jax,
        tf: framework == Framework::Tf,
    }
}

fn lookup(pairs: &[(&str, &str)]) -> impl Fn(&str) -> Option<OsString> {
    let pairs: Vec<(String, OsString)> = pairs
        .iter()
        .map(|(name, value)| (name.to_string(), value.into()))
        .collect();
    move |name| {
        let found = pairs.iter().find(|(known, _)| known == name);
        found.map(|(_, value)| value.clone())
    }
}

/// Decides about one framework, and checks that the result decides the same when it is inherited.
fn decided(framework: Framework, pairs: &[(&str, &str)]) -> Decision {
    let mut all = decide(takeover(framework), lookup(pairs));
    assert_eq!(all.len(), 1);
    let decision = all.remove(0);
    assert_eq!(decision.framework, framework);
    let inherited: Vec<(&str, &str)> = decision
        .set
        .iter()
        .map(|(name, value)| (*name, value.as_str()))
        .chain(pairs.iter().copied())
        .collect();
    let again = decide(takeover(framework), lookup(&inherited)).remove(0);
    assert_eq!((&again.set[..], again.taken), (&[][..], decision.taken));
    decision
}

/// Variables that are set for PyTorch.
fn torch_sets(pairs: &[(&str, &str)]) -> Vec<(&'static str, String)> {
    let decision = decided(Framework::Torch, pairs);
    assert!(decision.taken && !decision.set.is_empty(), "{decision:?}");
    assert!(decision.words.starts_with("set "), "{decision:?}");
    for (name, value) in &decision.set {
        let said = format!("{name}={value}");
        assert!(decision.words.contains(&said), "{decision:?}");
    }
    decision.set
}

/// Reason to leave a framework alone.
fn left(framework: Framework, pairs: &[(&str, &str)]) -> String {
    let decision = decided(framework, pairs);
    assert!(!decision.taken, "{decision:?}");
    let why = decision.words.strip_prefix("left alone: ");
    why.expect("a reason").to_string()
}

fn both(value: &str) -> Vec<(&'static str, String)> {
    vec![(CUDA, value.to_string()), (ANY, value.to_string())]
}

#[test]
fn nothing_is_decided_unless_it_was_asked_for() {
    assert_eq!(decide(Takeover::default(), |_| None), []);
    let all = Takeover {
        torch: true,
        jax: true,
        tf: true,
    };
    let frameworks: Vec<_> = decide(all, |_| None)
        .iter()
        .map(|decision| decision.framework)
        .collect();
    assert_eq!(frameworks, Framework::ALL);
}

#[test]
fn torch_gets_both_variables_if_it_has_none() {
    let wanted = both("backend:cudaMallocAsync");
    assert_eq!(torch_sets(&[]), wanted);
    // The variables are set, but empty.
    assert_eq!(torch_sets(&[(CUDA, "")]), wanted);
    assert_eq!(torch_sets(&[(CUDA, " "), (ANY, "")]), wanted);
    assert_eq!(torch_sets(&[(CUDA, ","), (ANY, ",")]), wanted);
}

#[test]
fn torch_options_that_are_there_stay() {
    for (before, after) in [
        (
            "expandable_segments:True",
            "expandable_segments:True,backend:cudaMallocAsync",
        ),
        (
            "max_split_size_mb:100, ",
            "max_split_size_mb:100,backend:cudaMallocAsync",
        ),
        (" a : b ,c:d", " a : b ,c:d,backend:cudaMallocAsync"),
        (
            "roundup_power2_divisions:[256:1,512:2,>:4],garbage_collection_threshold:0.8",
            "roundup_power2_divisions:[256:1,512:2,>:4],garbage_collection_threshold:0.8,backend:cudaMallocAsync",
        ),
        // These are not options of that name.
        (
            "my_backend:native,x:[backend:native]",
            "my_backend:native,x:[backend:native],backend:cudaMallocAsync",
        ),
    ] {
        assert_eq!(torch_sets(&[(CUDA, before)]), [(CUDA, after.to_string())]);
        assert_eq!(torch_sets(&[(ANY, before)]), [(ANY, after.to_string())]);
        let set = torch_sets(&[(CUDA, before), (ANY, "x:y")]);
        let other = "x:y,backend:cudaMallocAsync".to_string();
        assert_eq!(set, [(CUDA, after.to_string()), (ANY, other)]);
        // A blank variable is like one that is not set.
        assert_eq!(
            torch_sets(&[(CUDA, before), (ANY, " ")]),
            [(CUDA, after.to_string())]
        );
    }
}

#[test]
fn torch_is_left_alone_where_the_user_chose() {
    for (pairs, why) in [
        (
            &[(CUDA, "backend:native")][..],
            "PYTORCH_CUDA_ALLOC_CONF chooses backend:native",
        ),
        (
            &[(ANY, "x:[1:2,3:4], Back end : native,y:z")],
            "PYTORCH_ALLOC_CONF chooses backend:native",
        ),
        (
            &[(CUDA, "x:y"), (ANY, "backend:native")],
            "PYTORCH_ALLOC_CONF chooses backend:native",
        ),
        // The first variable counts.
        (
            &[(CUDA, "backend:native"), (ANY, "backend:cudaMallocAsync")],
            "PYTORCH_CUDA_ALLOC_CONF chooses backend:native",
        ),
        // PyTorch will refuse this choice.
        (
            &[(CUDA, "BACKEND:CUDAMALLOCASYNC")],
            "PYTORCH_CUDA_ALLOC_CONF chooses backend:CUDAMALLOCASYNC",
        ),
        (
            &[(CUDA, "x:[1:2")],
            "the brackets in PYTORCH_CUDA_ALLOC_CONF=x:[1:2 do not match",
        ),
        (
            &[(ANY, "x:1]")],
            "the brackets in PYTORCH_ALLOC_CONF=x:1] do not match",
        ),
    ] {
        assert_eq!(left(Framework::Torch, pairs), why);
    }
}

#[test]
fn torch_that_is_there_already_counts_as_taken() {
    for pairs in [
        &[(CUDA, "backend:cudaMallocAsync")][..],
        &[(ANY, "x:y, backend: cudaMallocAsync")],
        &[(CUDA, "backend:cudaMallocAsync"), (ANY, "backend:native")],
    ] {
        let decision = decided(Framework::Torch, pairs);
        assert!(decision.taken && decision.set.is_empty(), "{decision:?}");
        assert!(decision.words.ends_with(" already"), "{decision:?}");
    }
}

#[test]
fn jax() {
    let decision = |pairs: &[(&str, &str)]| {
        let decision = decided(Framework::Jax, pairs);
        assert!(decision.taken);
        (assigned(&decision.set), decision.words)
    };
    let full = "XLA_PYTHON_CLIENT_ALLOCATOR=cuda_async XLA_PYTHON_CLIENT_PREALLOCATE=false";
    assert_eq!(decision(&[]), (full.to_string(), format!("set {full}")));
    assert_eq!(decision(&[(JAX_ALLOCATOR, " ")]).0, full);
    assert_eq!(
        decision(&[(JAX_PREALLOCATE, "true")]),
        (
            "XLA_PYTHON_CLIENT_ALLOCATOR=cuda_async".to_string(),
            "set XLA_PYTHON_CLIENT_ALLOCATOR=cuda_async; XLA_PYTHON_CLIENT_PREALLOCATE=true was left as it is"
                .to_string()
        )
    );
    assert_eq!(
        decision(&[(JAX_PREALLOCATE, "0")]).1,
        "set XLA_PYTHON_CLIENT_ALLOCATOR=cuda_async"
    );
    assert_eq!(
        decision(&[(JAX_ALLOCATOR, "CUDA_async")]),
        (
            "XLA_PYTHON_CLIENT_PREALLOCATE=false".to_string(),
            "set XLA_PYTHON_CLIENT_PREALLOCATE=false; XLA_PYTHON_CLIENT_ALLOCATOR is CUDA_async already"
                .to_string()
        )
    );
    assert_eq!(
        decision(&[(JAX_ALLOCATOR, "cuda_async"), (JAX_PREALLOCATE, "1")]).1,
        "XLA_PYTHON_CLIENT_ALLOCATOR is cuda_async already; XLA_PYTHON_CLIENT_PREALLOCATE=1 was left as it is"
    );
    for chosen in ["platform", "default", "BFC", "cuda async"] {
        assert_eq!(
            left(Framework::Jax, &[(JAX_ALLOCATOR, chosen)]),
            format!("XLA_PYTHON_CLIENT_ALLOCATOR chooses {chosen}")
        );
    }
}

#[test]
fn tensorflow() {
    let set = vec![(TF_ALLOCATOR, "cuda_malloc_async".to_string())];
    assert_eq!(decided(Framework::Tf, &[]).set, set);
    assert_eq!(decided(Framework::Tf, &[(TF_ALLOCATOR, "")]).set, set);
    let there = decided(Framework::Tf, &[(TF_ALLOCATOR, "cuda_malloc_async")]);
    assert_eq!((there.set, there.taken), (Vec::new(), true));
    assert_eq!(
        left(Framework::Tf, &[(TF_ALLOCATOR, "cuda_malloc")]),
        "TF_GPU_ALLOCATOR chooses cuda_malloc"
    );
}

#[test]
fn bytes_that_are_no_text_are_left_alone() {
    use std::os::unix::ffi::OsStringExt;
    for (framework, variable) in [
        (Framework::Torch, CUDA),
        (Framework::Torch, ANY),
        (Framework::Jax, JAX_ALLOCATOR),
        (Framework::Jax, JAX_PREALLOCATE),
        (Framework::Tf, TF_ALLOCATOR),
    ] {
        let odd = |name: &str| (name == variable).then(|| OsString::from_vec(vec![b'a', 0xff]));
        let decision = decide(takeover(framework), odd).remove(0);
        assert_eq!(decision.set, []);
        assert_eq!(
            (decision.words, decision.taken),
            (format!("left alone: {variable} is not UTF-8"), false)
        );
    }
}

#[test]
fn every_framework_has_limits_and_the_page_has_them() {
    let page = include_str!("../../../../docs/frameworks.md");
    // Other tables of the page begin with a framework's name, too.
    let (_, page) = page.split_once("<!-- The table of").expect("the table");
    for limit in &LIMITS {
        let row = format!(
            "| {} | {} | {} |\n",
            limit.framework.name(),
            limit.what,
            limit.instead
        );
        assert!(page.contains(&row), "docs/frameworks.md has no {row}");
        assert!(!row[2..row.len() - 2].contains('\n'));
    }
    let rows = page.lines().filter(|line| {
        Framework::ALL
            .iter()
            .any(|f| line.starts_with(&format!("| {} |", f.name())))
    });
    assert_eq!(rows.count(), LIMITS.len());
    for framework in Framework::ALL {
        assert!(!limits_of(framework).is_empty());
    }
    assert!(limits_of(Framework::Torch).contains("reduce-overhead"));
    assert!(!limits_of(Framework::Torch).contains("cuda_malloc_async"));
}

#[test]
fn pytorch_gets_expandable_segments_unless_the_user_chose() {
    let words = |pairs: &[(&str, &str)]| {
        let decision = expand(lookup(pairs));
        (decision.set, decision.words)
    };
    let set = |pairs, expected: &[(&'static str, &str)]| {
        let expected = expected
            .iter()
            .map(|(name, value)| (*name, value.to_string()));
        assert_eq!(words(pairs).0, expected.collect::<Vec<_>>());
    };
    let added = "expandable_segments:True";
    set(&[], &[(CUDA, added), (ANY, added)]);
    set(
        &[(ANY, "roundup_power2_divisions:[256:1,>:4],")],
        &[(
            ANY,
            "roundup_power2_divisions:[256:1,>:4],expandable_segments:True",
        )],
    );
    for (value, said) in [
        (
            "backend:native",
            "left alone: PYTORCH_CUDA_ALLOC_CONF chooses backend:native",
        ),
        (
            "expandable_segments: False",
            "left alone: PYTORCH_CUDA_ALLOC_CONF chooses expandable_segments:False",
        ),
        (
            "expandable_segments:true",
            "PYTORCH_CUDA_ALLOC_CONF says expandable_segments:true already",
        ),
    ] {
        assert_eq!(words(&[(CUDA, value)]), (Vec::new(), said.to_string()));
    }
}
