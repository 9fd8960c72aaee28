//! Settings of PyTorch's allocator that a snapshot names.

use crate::caching::Settings;
use crate::pickle::{Pickle, Value};

/// Number of settings, and of parts of one, that are read.
const MOST: usize = 255;

/// Reads the settings. Also returns all of them for people, each with its name.
pub(super) fn settings(pickle: &Pickle<'_>, all: Value) -> (Settings, Vec<(String, String)>) {
    let of = |key| pickle.get(all, key);
    let mut settings = Settings::default();
    if let Some(line) = of("PYTORCH_CUDA_ALLOC_CONF").and_then(|line| pickle.text(line)) {
        settings.read(&line);
    }
    let number = |key| of(key).and_then(|value| pickle.number(value));
    settings.max_split = number("max_split_size").or(settings.max_split);
    settings.collect_above = match of("garbage_collection_threshold") {
        Some(Value::Float(part)) => Some(part),
        Some(Value::Int(part)) => Some(part as f64),
        _ => None,
    };
    if let Some(divisions) = of("roundup_power2_divisions") {
        let parts = pickle
            .entries(divisions)
            .take(MOST)
            .filter_map(|(size, divisions)| {
                let size = pickle.text(size)?.parse().ok()?;
                Some((size, pickle.number(divisions)?))
            });
        settings.divisions = parts.collect();
    }
    if let Some(Value::Bool(expands)) = of("expandable_segments") {
        settings.is_expandable = Some(expands);
    }
    let named = pickle.entries(all).take(MOST);
    let named = named.filter_map(|(key, value)| Some((pickle.text(key)?, shown(pickle, value)?)));
    (settings, named.collect())
}

/// Returns a setting for people: of several, `key:value` with commas, without zeros.
fn shown(pickle: &Pickle<'_>, value: Value) -> Option<String> {
    let one = |value| match value {
        Value::Bool(is) => Some(is.to_string()),
        Value::Int(number) => Some(number.to_string()),
        Value::Float(number) => Some(number.to_string()),
        _ => pickle.text(value),
    };
    one(value).or_else(|| {
        let parts = pickle.entries(value).take(MOST);
        let parts = parts.filter_map(|(key, value)| Some((one(key)?, one(value)?)));
        let parts = parts.filter(|(_, value)| value != "0");
        let parts: Vec<String> = parts.map(|(key, value)| format!("{key}:{value}")).collect();
        Some(parts.join(","))
    })
}
