//! Recordings of users in which nothing grows and nothing is left behind: forward passes, a few
//! whole steps.

use std::path::Path;

use super::{json, run, stdout};

#[test]
fn nothing_is_called_growth_or_a_leak_where_a_part_of_one_pass_repeats() {
    let data = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data"));
    let names = [
        "forward",
        "inference",
        "training",
        "layers32_forward",
        "backward_wide",
    ];
    for name in names {
        let file = format!("{name}.pickle.gz");
        for command in ["growth", "check"] {
            let output = run(data, &[command, &file]);
            assert_eq!(
                output.status.code(),
                Some(0),
                "{command} {name}: {}",
                stdout(&output)
            );
        }
    }
    for name in names {
        let file = format!("{name}.pickle.gz");
        let report = json(&run(data, &["report", "--format", "json", &file]));
        let findings = report["results"][0]["findings"].as_array().unwrap();
        let kinds: Vec<_> = findings
            .iter()
            .map(|one| one["kind"].as_str().unwrap())
            .collect();
        for fault in ["growth", "drops", "out-of-memory"] {
            assert!(!kinds.contains(&fault), "{name}: {kinds:?}");
        }
    }
    let output = run(data, &["growth", "layers32_forward.pickle.gz"]);
    let said = "is not seen: all that comes again is inside one call of";
    assert!(stdout(&output).contains(said), "{}", stdout(&output));
}
