//! The dashboard in the documents asks for metrics that there are.

use std::collections::BTreeSet;

use serde_json::Value;

use super::openmetrics::names;

/// All texts below a key, wherever it is.
fn texts<'a>(value: &'a Value, key: &str, found: &mut Vec<&'a str>) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                if name == key {
                    found.extend(value.as_str());
                }
                texts(value, key, found);
            }
        }
        Value::Array(all) => all.iter().for_each(|value| texts(value, key, found)),
        _ => {}
    }
}

/// The metrics that an expression names.
fn metrics_in(expression: &str) -> Vec<&str> {
    let is_word = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
    let words = expression.split(|letter| !is_word(letter));
    words.filter(|word| word.starts_with("gpushim_")).collect()
}

fn is_balanced(expression: &str) -> bool {
    let mut open = Vec::new();
    for letter in expression.chars() {
        match letter {
            '(' => open.push(')'),
            '[' => open.push(']'),
            '{' => open.push('}'),
            ')' | ']' | '}' if open.pop() != Some(letter) => return false,
            _ => {}
        }
    }
    open.is_empty() && expression.matches('"').count().is_multiple_of(2)
}

#[test]
fn its_expressions_name_metrics_that_exist() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/grafana.json");
    let text = std::fs::read_to_string(path).expect("docs/grafana.json");
    let dashboard: Value = serde_json::from_str(&text).expect("JSON");
    let panels = dashboard["panels"].as_array().expect("panels");
    let mut ids = BTreeSet::new();
    for panel in panels {
        assert!(
            ids.insert(panel["id"].as_u64().expect("an id")),
            "{panel:#}"
        );
        for field in ["title", "type"] {
            assert!(panel[field].is_string(), "no {field}: {panel:#}");
        }
        for field in ["x", "y", "w", "h"] {
            assert!(
                panel["gridPos"][field].is_u64(),
                "no place {field}: {panel:#}"
            );
        }
        assert!(!panel["targets"].as_array().expect("targets").is_empty());
    }
    let (mut expressions, mut queries) = (Vec::new(), Vec::new());
    texts(&dashboard, "expr", &mut expressions);
    texts(&dashboard, "query", &mut queries);
    assert!(expressions.len() >= panels.len(), "{expressions:?}");
    let known = names();
    let mut named = BTreeSet::new();
    for expression in expressions.iter().chain(&queries) {
        assert!(is_balanced(expression), "{expression}");
        for name in metrics_in(expression) {
            assert!(
                known.iter().any(|one| one == name),
                "no metric {name}: {expression}"
            );
            named.insert(name);
        }
    }
    for expression in &expressions {
        assert!(!metrics_in(expression).is_empty(), "{expression}");
    }
    let missing: Vec<_> = known
        .iter()
        .filter(|name| !named.contains(&***name))
        .collect();
    assert!(missing.is_empty(), "not on the dashboard: {missing:?}");
}
