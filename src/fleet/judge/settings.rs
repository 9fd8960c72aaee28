//! Finds ranks with other settings, versions, command lines or GPUs than the others.

use std::collections::{BTreeMap, BTreeSet};

use crate::fleet::outlier::{Kind, Outlier};
use crate::fleet::summary::RankSummary;
use crate::output::escape::shown;

/// Largest share of the ranks for an exceptional value.
const FEW: f64 = 0.1;
/// Share of the ranks above which a value is the usual one.
const USUAL: f64 = 0.5;
/// Most letters of a value in a sentence.
const LETTERS: usize = 80;

/// Returns the ranks with a rare value where most ranks have the same one.
pub fn others(ranks: &[&RankSummary]) -> Vec<Outlier> {
    let all: Vec<BTreeMap<String, String>> = ranks.iter().map(|rank| settings(rank)).collect();
    let keys: BTreeSet<&String> = all.iter().flat_map(BTreeMap::keys).collect();
    let mut differ: BTreeMap<usize, Vec<String>> = BTreeMap::new();
    for key in keys {
        let value = |of: &BTreeMap<String, String>| of.get(key).cloned().unwrap_or_default();
        let mut counts: BTreeMap<String, usize> = BTreeMap::new();
        for of in &all {
            *counts.entry(value(of)).or_default() += 1;
        }
        let Some((usual, many)) = counts.iter().max_by_key(|(_, count)| **count) else {
            continue;
        };
        if (*many as f64) <= USUAL * ranks.len() as f64 {
            continue;
        }
        for (index, of) in all.iter().enumerate() {
            let its = value(of);
            let count = counts.get(&its).copied().unwrap_or(0);
            if its != *usual && count <= ((FEW * ranks.len() as f64) as usize).max(1) {
                let said = |value: &str| match value {
                    "" => "not set".to_string(),
                    value => format!("`{}`", shown(&crate::cut::shortened(value, LETTERS))),
                };
                let text = format!("{key} is {}, elsewhere {}", said(&its), said(usual));
                differ.entry(index).or_default().push(text);
            }
        }
    }
    let outlier = |(index, texts): (usize, Vec<String>)| {
        let text = format!("Settings differ: {}.", texts.join("; "));
        Outlier::of(
            Kind::OtherSettings,
            index,
            text,
            (true, "the values are recorded"),
        )
    };
    differ.into_iter().map(outlier).collect()
}

fn settings(rank: &RankSummary) -> BTreeMap<String, String> {
    let mut all: BTreeMap<String, String> = rank.settings.iter().cloned().collect();
    if !rank.process.argv.is_empty() {
        all.insert("the command line".to_string(), rank.process.argv.clone());
    }
    if let Some(device) = rank.main_device()
        && let Some(gpu) = &device.gpu
    {
        all.insert("the GPU".to_string(), gpu.clone());
        if let Some(bytes) = device.bytes {
            all.insert(
                "the GPU's memory".to_string(),
                crate::output::units::bytes(bytes),
            );
        }
    }
    all
}
