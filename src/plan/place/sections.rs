//! Time in as few sections as tell all meetings apart.

use super::Block;

/// Writes the lives of blocks in sections, of which a new one begins with the first block that comes after one went.
/// Two blocks share a section if and only if they meet. Returns how many sections there are.
pub fn in_sections(blocks: &mut [Block]) -> usize {
    let mut changes: Vec<(usize, bool, u32, u8)> = Vec::with_capacity(2 * blocks.len());
    for (at, block) in blocks.iter().enumerate() {
        for (which, life) in block.lives.iter().enumerate() {
            if life.from < life.to {
                changes.push((life.from, true, at as u32, which as u8));
                changes.push((life.to, false, at as u32, which as u8));
            }
        }
    }
    // At the same moment blocks go before others come.
    changes.sort_unstable();
    let (mut section, mut has_ended) = (0, false);
    for (_, comes, at, which) in changes {
        let life = &mut blocks[at as usize].lives[usize::from(which)];
        if comes {
            section += usize::from(has_ended);
            has_ended = false;
            life.from = section;
        } else {
            has_ended = true;
            life.to = section + 1;
        }
    }
    section + 1
}

/// The live bytes in each section.
pub fn live(blocks: &[Block], sections: usize) -> Vec<u64> {
    let mut changes = vec![0_i128; sections + 1];
    for block in blocks {
        for life in block.lives() {
            changes[life.from] += i128::from(block.bytes);
            changes[life.to] -= i128::from(block.bytes);
        }
    }
    let mut live = 0;
    changes.pop();
    changes
        .into_iter()
        .map(|change| {
            live += change;
            u64::try_from(live).unwrap_or(u64::MAX)
        })
        .collect()
}
