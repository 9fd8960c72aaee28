//! Options of PyTorch's allocator (`PYTORCH_CUDA_ALLOC_CONF`, and `allocator_settings` of a
//! snapshot).

use std::fmt;

use crate::replay::caching::multiple;
use gpushim_analysis::requests::Requests;
use gpushim_torch::allocator::{BLOCK, LARGE_BUFFER, block};

/// Number of size ranges with divisions of their own: from 1 MiB, each up to the next power of two.
const RANGES: usize = 16;

/// Options that decide how memory is allocated.
#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    /// `max_split_size_mb`: least size of blocks that are not split, bytes.
    pub max_split: u64,
    /// `max_non_split_rounding_mb`: bytes by which such a block may exceed its request.
    pub spare: u64,
    /// `roundup_power2_divisions`: steps from each power of two to the next; 0 for multiples of 512
    /// bytes.
    pub divisions: [u64; RANGES],
    /// `garbage_collection_threshold`: a share of the limit; 0 for never.
    pub collect_above: f64,
    /// `expandable_segments`: true if segments grow in place.
    pub is_expandable: bool,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            max_split: u64::MAX,
            spare: LARGE_BUFFER,
            divisions: [0; RANGES],
            collect_above: 0.0,
            is_expandable: false,
        }
    }
}

impl Options {
    /// Returns the options at the time of the recording. Snapshots of PyTorch before 2.2 name no
    /// options, but their segments show whether they expand.
    pub fn of(requests: &Requests) -> Options {
        let settings = &requests.allocator().settings;
        let default = Options::default();
        let mut options = Options {
            max_split: settings.max_split.unwrap_or(default.max_split),
            spare: settings.spare.unwrap_or(default.spare),
            collect_above: settings.collect_above.unwrap_or(default.collect_above),
            ..default
        };
        for (size, divisions) in settings.divisions.iter().filter(|(size, _)| **size > 0) {
            if let Some(place) = options.divisions.get_mut(size.ilog2() as usize) {
                *place = *divisions;
            }
        }
        let got = &requests.allocator().got;
        let mut recorded = requests.given().segments.iter().chain(got);
        options.is_expandable = settings.is_expandable.unwrap_or(false)
            || recorded.any(|segment| segment.of.is_expandable);
        options
    }

    /// Bytes of the block for a request.
    pub fn rounded(&self, bytes: u64) -> u64 {
        let power = bytes.max(1).ilog2();
        let range = (power.saturating_sub(20) as usize).min(RANGES - 1);
        let divisions = self.divisions.get(range).copied().unwrap_or(0);
        if divisions <= 1 || bytes <= BLOCK.saturating_mul(divisions) {
            return block(bytes);
        }
        // A power of two is itself a multiple of the step.
        let step = (1_u64 << power) >> divisions.ilog2();
        multiple(bytes, step.max(BLOCK))
    }
}

/// Formats the options that differ from their defaults, as the value of the variable.
impl fmt::Display for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut said = Vec::new();
        if self.is_expandable {
            said.push("expandable_segments:True".to_string());
        }
        if self.max_split != u64::MAX {
            said.push(format!("max_split_size_mb:{}", self.max_split >> 20));
        }
        if self.spare != LARGE_BUFFER {
            said.push(format!("max_non_split_rounding_mb:{}", self.spare >> 20));
        }
        if self.collect_above > 0.0 {
            said.push(format!(
                "garbage_collection_threshold:{}",
                self.collect_above
            ));
        }
        if let [first, rest @ ..] = &self.divisions
            && self.divisions.iter().any(|divisions| *divisions > 1)
        {
            said.push(if rest.iter().all(|other| other == first) {
                format!("roundup_power2_divisions:{first}")
            } else {
                let steps = self.divisions.iter().enumerate();
                let steps: Vec<String> = steps
                    .map(|(at, steps)| format!("{}:{steps}", 1 << at))
                    .collect();
                format!("roundup_power2_divisions:[{}]", steps.join(","))
            });
        }
        f.write_str(&said.join(","))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpushim_recording::Settings;

    #[test]
    fn sizes_between_powers_of_two() {
        let options = Options {
            divisions: [4; RANGES],
            ..Options::default()
        };
        const MIB: u64 = 1 << 20;
        // This example is from PyTorch's documentation: 1200 in 4 divisions are 1280.
        for (bytes, block) in [
            (1200 * MIB, 1280 * MIB),
            (1024 * MIB, 1024 * MIB),
            (1025 * MIB, 1280 * MIB),
            (2047 * MIB, 2048 * MIB),
            (1200 << 10, 1280 << 10),
            // These are too small for steps of at least 512 bytes.
            (2048, 2048),
            (1200, 1536),
            (1, 512),
        ] {
            assert_eq!(options.rounded(bytes), block, "{bytes}");
        }
        assert_eq!(Options::default().rounded(1200 * MIB + 1), 1200 * MIB + 512);
        assert_eq!(options.rounded(u64::MAX), u64::MAX);
        assert_eq!(options.to_string(), "roundup_power2_divisions:4");
    }

    #[test]
    fn a_line_is_read_and_written_alike() {
        let line = "expandable_segments:True,max_split_size_mb:64,max_non_split_rounding_mb:40";
        let mut settings = Settings::default();
        settings.read(line);
        let mut requests = Requests::default();
        requests.set_settings(settings);
        assert_eq!(Options::of(&requests).to_string(), line);
    }
}
