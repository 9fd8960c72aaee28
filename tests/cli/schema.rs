//! JSON output of the command conforms to its schema in the documents.

use serde_json::json;

use super::*;

fn documents() -> Value {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/json.schema.json");
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

/// Violations of a schema by a value, each with its place. Unknown words in the schema fail the
/// test.
fn wrong(root: &Value, schema: &Value, value: &Value, place: &str) -> Vec<String> {
    let Some(words) = schema.as_object() else {
        let any = schema == &Value::Bool(true);
        return if any {
            vec![]
        } else {
            vec![format!("{place}: nothing is allowed")]
        };
    };
    let inner = |schema: &Value, value: &Value, place: &str| wrong(root, schema, value, place);
    let fits = |all: &Value| {
        let all = all.as_array().unwrap().iter();
        all.filter(|one| inner(one, value, place).is_empty())
            .count()
    };
    let says = |is_right: bool, what: String| {
        if is_right {
            vec![]
        } else {
            vec![format!("{place}: {what}")]
        }
    };
    let mut found = Vec::new();
    for (word, rule) in words {
        found.extend(match word.as_str() {
            "$schema" | "$defs" | "title" | "description" | "default" => vec![],
            "$ref" => {
                let pointer = rule.as_str().unwrap().strip_prefix('#').unwrap();
                inner(root.pointer(pointer).unwrap(), value, place)
            }
            "type" => {
                let is = |name: &Value| match name.as_str().unwrap() {
                    "object" => value.is_object(),
                    "array" => value.is_array(),
                    "string" => value.is_string(),
                    "integer" => value.is_u64() || value.is_i64(),
                    "number" => value.is_number(),
                    "boolean" => value.is_boolean(),
                    "null" => value.is_null(),
                    other => panic!("the type {other}"),
                };
                let is_right = rule
                    .as_array()
                    .map_or_else(|| is(rule), |all| all.iter().any(is));
                says(is_right, format!("{value} is no {rule}"))
            }
            "const" => says(value == rule, format!("{value} is not {rule}")),
            "enum" => says(
                rule.as_array().unwrap().contains(value),
                format!("{value} is not in {rule}"),
            ),
            "minimum" => says(
                value
                    .as_f64()
                    .is_none_or(|one| one >= rule.as_f64().unwrap()),
                format!("{value} < {rule}"),
            ),
            "maximum" => says(
                value
                    .as_f64()
                    .is_none_or(|one| one <= rule.as_f64().unwrap()),
                format!("{value} > {rule}"),
            ),
            "minItems" | "maxItems" => {
                let count = value.as_array().map(|all| all.len() as u64);
                let least = word == "minItems";
                let is_right = count.is_none_or(|count| {
                    if least {
                        count >= rule.as_u64().unwrap()
                    } else {
                        count <= rule.as_u64().unwrap()
                    }
                });
                says(is_right, format!("{word} {rule}"))
            }
            "oneOf" => says(
                fits(rule) == 1,
                format!("{value} is {} of {rule}", fits(rule)),
            ),
            "anyOf" => says(fits(rule) > 0, format!("{value} is none of {rule}")),
            "items" => {
                let skipped = words
                    .get("prefixItems")
                    .map_or(0, |all| all.as_array().unwrap().len());
                let all = value
                    .as_array()
                    .into_iter()
                    .flatten()
                    .enumerate()
                    .skip(skipped);
                all.flat_map(|(at, one)| inner(rule, one, &format!("{place}[{at}]")))
                    .collect()
            }
            "prefixItems" => {
                let all = value
                    .as_array()
                    .into_iter()
                    .flatten()
                    .zip(rule.as_array().unwrap());
                all.flat_map(|(one, rule)| inner(rule, one, place))
                    .collect()
            }
            "properties" => {
                let known = rule.as_object().unwrap().iter();
                let known = known.filter_map(|(name, rule)| Some((name, rule, value.get(name)?)));
                known
                    .flat_map(|(name, rule, one)| inner(rule, one, &format!("{place}.{name}")))
                    .collect()
            }
            "required" => {
                let all = rule
                    .as_array()
                    .unwrap()
                    .iter()
                    .map(|name| name.as_str().unwrap());
                let missing = all.filter(|name| value.is_object() && value.get(name).is_none());
                missing.map(|name| format!("{place}: no {name}")).collect()
            }
            "additionalProperties" => {
                let known = words.get("properties").and_then(Value::as_object);
                let others = value.as_object().into_iter().flatten();
                let others =
                    others.filter(|(name, _)| known.is_none_or(|known| !known.contains_key(*name)));
                others
                    .flat_map(|(name, one)| inner(rule, one, &format!("{place}.{name}")))
                    .collect()
            }
            other => panic!("{place}: the schema's word {other} is not known here"),
        });
    }
    found
}

/// Output of a subcommand, after a comparison with its schema.
fn checked(schema: &Value, dir: &Path, args: &[&str]) -> Value {
    let output = gpushim(dir, args)
        .args(["--format", "json"])
        .output()
        .unwrap();
    let code = output.status.code();
    assert!(matches!(code, Some(0 | 1)), "{args:?}: {}", stderr(&output));
    let answers = json(&output);
    assert_eq!(answers["command"], args[0]);
    if args[0] != "report" {
        assert_eq!(answers["found"], code == Some(1), "{args:?}");
    }
    let own = &schema["$defs"][format!("command-{}", args[0])];
    let found = wrong(schema, own, &answers, "");
    assert_eq!(found, Vec::<String>::new(), "{args:?}");
    answers
}

/// Snapshots and traces of runs that leak, fail, repeat and have phases.
fn recordings(dir: &Path) -> Vec<String> {
    sample(&dir.join("a.trace"));
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data");
    let mut files = vec!["a.trace".to_string()];
    for file in [
        "forward",
        "torch-expandable-late",
        "torch-graph",
        "layers32_forward",
    ] {
        files.push(data.join(format!("{file}.pickle.gz")).display().to_string());
    }
    let options = WriterOptions {
        rank: Some(1),
        ..WriterOptions::default()
    };
    let writer = Writer::create(&dir.join("b.trace"), &options).unwrap();
    let step = writer.intern("step");
    let range = |kind, name: u64| Event {
        address: name,
        ..event(kind, 0, 0)
    };
    for number in 0..40_u64 {
        writer.record(&range(Kind::RangePush, step.into()));
        let at = 0x1000_0000 + number * 0x100_0000;
        writer.record(&event(Kind::Reserve, at, 4 * MIB));
        writer.record(&event(Kind::Alloc, at, MIB));
        writer.record(&event(Kind::Alloc, at + MIB, 2 * MIB));
        writer.record(&event(Kind::Free, at + MIB, 2 * MIB));
        writer.record(&range(Kind::RangePop, 0));
    }
    writer.record(&event(Kind::OutOfMemory, 0, 64 * MIB));
    files.push("b.trace".to_string());
    files
}

#[test]
fn what_each_subcommand_prints_fits_its_schema() {
    let dir = tempfile::tempdir().unwrap();
    let (dir, schema) = (dir.path(), documents());
    let files = recordings(dir);
    let mut seen = std::collections::BTreeSet::new();
    let mut look = |args: &[&str]| {
        seen.insert(args[0].to_string());
        checked(&schema, dir, args)
    };
    for file in files.iter().map(String::as_str) {
        for command in [
            "report",
            "growth",
            "peak",
            "oom",
            "phases",
            "timeline",
            "fragmentation",
            "replay",
        ] {
            look(&[command, file]);
        }
        look(&["events", "--stacks", "--limit", "500", file]);
        look(&["check", "--max-peak", "1M", "--no-leaks", "--no-oom", file]);
        look(&["diff", file, &files[1]]);
    }
    let grows = look(&["growth", "b.trace"]);
    assert_eq!(
        (&grows["found"], &grows["schema"]),
        (&true.into(), &1.into())
    );
    let short = look(&["oom", "b.trace"]);
    assert_eq!(
        short["results"][0]["shortages"].as_array().unwrap().len(),
        1
    );
    let held = look(&["peak", &files[1]]);
    let named = held["results"][0]["holders"].as_array().unwrap().iter();
    assert!(
        named
            .filter(|holder| holder["function"]["line"].is_u64())
            .count()
            > 5
    );
    look(&["tune", "--seconds", "1", &files[1]]);
    let runs = look(&["report", "a.trace", "a.trace"]);
    assert_eq!(runs["results"].as_array().unwrap().len(), 2);
    let job = look(&["report", "a.trace", "b.trace"]);
    assert_eq!(job["jobs"][0]["ranks"].as_array().unwrap().len(), 2);
    assert_eq!(job["results"].as_array().unwrap().len(), 1);
    let job = look(&["report", "--job", "night"]);
    assert_eq!(job["jobs"].as_array().unwrap().len(), 1);
    look(&["top", "--once", "a.trace", "b.trace"]);
    look(&["config"]);
    look(&["doctor"]);
    look(&["doctor", "a.trace"]);
    let all = schema["oneOf"].as_array().unwrap().iter();
    let name = |one: &Value| {
        one["$ref"]
            .as_str()
            .unwrap()
            .replace("#/$defs/command-", "")
    };
    let known: Vec<String> = all.map(name).collect();
    assert_eq!(Vec::from_iter(seen), known);
}

#[test]
fn a_field_that_the_schema_does_not_know_is_noticed() {
    let dir = tempfile::tempdir().unwrap();
    let schema = documents();
    let file = &recordings(dir.path())[1];
    let answers = checked(&schema, dir.path(), &["peak", file]);
    let of = &schema["$defs"]["command-peak"];
    let change = |with: &dyn Fn(&mut Value)| {
        let mut answers = answers.clone();
        with(&mut answers);
        wrong(&schema, of, &answers, "")
    };
    assert_eq!(change(&|_| ()), Vec::<String>::new());
    assert_eq!(
        change(&|all| all["new"] = json!(1)),
        [".new: nothing is allowed"]
    );
    let holder = ".results[0].holders[0]";
    for (name, value, expected) in [
        ("new", json!(1), format!("{holder}.new: nothing is allowed")),
        ("bytes", json!(-1), format!("{holder}.bytes: -1 < 0")),
        (
            "blocks",
            json!("1"),
            format!("{holder}.blocks: \"1\" is no \"integer\""),
        ),
    ] {
        let found = change(&|all| all["results"][0]["holders"][0][name] = value.clone());
        assert_eq!(found, [expected]);
    }
    let found = change(&|all| {
        drop(
            all["results"][0]["holders"][0]
                .as_object_mut()
                .unwrap()
                .remove("share"),
        )
    });
    assert_eq!(found, [format!("{holder}: no share")]);
    assert_eq!(change(&|all| all["command"] = json!("growth")).len(), 1);
}
