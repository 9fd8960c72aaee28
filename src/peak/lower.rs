//! Advice that lowers a peak, by the use of most of it.

use super::composition::{Category, Composition};

/// Least share of a part for which there is advice: without it, the peak is not much lower.
const LEAST_SHARE: f64 = 1.0 / 3.0;

/// Returns advice that makes the largest part of a peak of `whole` bytes smaller, as a sentence
/// without its end. Returns `None` if no part is large enough, or its use is not certain.
pub fn to_lower(composition: Option<&Composition>, whole: u64) -> Option<&'static str> {
    let sure = composition.filter(|composition| composition.sure)?;
    let largest = sure.parts.iter().max_by_key(|part| part.bytes)?;
    if largest.share(whole) < LEAST_SHARE {
        return None;
    }
    match largest.category {
        Category::Activations => Some(
            "activations are kept for the backward pass: compute them again there (`torch.utils.checkpoint`), make them in \
             bfloat16 (`torch.autocast`), or take smaller batches and accumulate gradients",
        ),
        Category::Parameters => Some(
            "the largest part is parameters: load them in bfloat16 if they are float32, or shard them over devices \
             (`FullyShardedDataParallel`)",
        ),
        Category::Gradients => Some(
            "the largest part is gradients: shard them over devices (`FullyShardedDataParallel`)",
        ),
        Category::OptimizerState => Some(
            "the largest part is the optimizer's state: take an optimizer with less of it (SGD, Adafactor, 8-bit Adam), or shard it over \
             devices (`ZeroRedundancyOptimizer`)",
        ),
        Category::Temporary => Some(
            "the largest part is temporary: the operations in the list below need it while they run; do them in parts",
        ),
        Category::Named | Category::Workspaces | Category::Unknown => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::peak::Part;

    fn told(parts: &[(Category, u64)], sure: bool, whole: u64) -> String {
        let parts = parts.iter().map(|(category, bytes)| Part {
            category: *category,
            bytes: *bytes,
            blocks: 1,
        });
        let parts = parts.collect();
        let composition = Composition { parts, sure };
        to_lower(Some(&composition), whole)
            .unwrap_or_default()
            .to_string()
    }

    #[test]
    fn the_largest_part_that_stands_out_has_its_cure() {
        let training = [(Category::Parameters, 40), (Category::Activations, 60)];
        assert!(told(&training, true, 100).contains("torch.utils.checkpoint"));
        let large = [(Category::Parameters, 60), (Category::Activations, 40)];
        assert!(told(&large, true, 100).contains("parameters"));
    }

    #[test]
    fn what_is_not_known_has_none() {
        let training = [(Category::Parameters, 40), (Category::Activations, 60)];
        assert_eq!(told(&training, false, 100), "");
        // A peak of mostly unknown use.
        assert_eq!(told(&training, true, 1000), "");
        assert_eq!(told(&[(Category::Unknown, 100)], true, 100), "");
        assert_eq!(to_lower(None, 100), None);
    }
}
