//! Questions about addresses.

use super::*;

pub(super) fn ask(world: &mut World, step: &Step) -> bool {
    match step.op {
        Op::AskRange { block, permille } => {
            let Some(found) = live(world, block) else {
                return false;
            };
            let (mut base, mut size) = (0, 0);
            let code = call!(
                world,
                address_range,
                &mut base,
                &mut size,
                inside(&found, permille)
            );
            world
                .seen
                .extend([code, base.wrapping_sub(found.address), size as u64]);
            if code != 0 {
                world.seen.truncate(world.seen.len() - 2);
            }
        }
        Op::AskAttribute {
            block,
            permille,
            number,
        } => {
            let Some(found) = live(world, block).filter(|block| block.kind != Kind::Graph) else {
                return false;
            };
            let mut value = 0;
            let code = call!(
                world,
                pointer_attribute,
                &mut value,
                number.into(),
                inside(&found, permille)
            );
            let value = attribute(world, &found, number, value);
            world.seen.extend([code, if code == 0 { value } else { 0 }]);
        }
        Op::AskAttributes { block, permille } => {
            let Some(found) = live(world, block).filter(|block| block.kind != Kind::Graph) else {
                return false;
            };
            const NUMBERS: [i32; 6] = [2, 8, 9, 11, 12, 17];
            let mut values = [0u64; 6];
            let pointers = values.each_mut().map(std::ptr::from_mut);
            let code = call!(
                world,
                pointer_attributes,
                6,
                NUMBERS.as_ptr(),
                pointers.as_ptr(),
                inside(&found, permille)
            );
            world.seen.push(code);
            for (number, value) in NUMBERS.iter().zip(values) {
                let value = attribute(world, &found, *number as u8, value);
                world.seen.push(value);
            }
        }
        Op::AskMemory => {
            let (mut free, mut total) = (0, 0);
            let code = call!(world, mem_info, &mut free, &mut total);
            world.seen.extend([code, free as u64, total as u64]);
        }
        _ => return false,
    }
    true
}

/// An attribute in a form that both runs have in common: slots for handles, distances for addresses.
pub(super) fn attribute(world: &World, block: &Block, number: u8, value: u64) -> u64 {
    match number {
        1 => match value {
            0 => 0,
            handle => 1 + world.slot_of(handle).map_or(98, u64::from),
        },
        3 | 4 | 11 => value.wrapping_sub(block.address),
        7 => u64::from(value != 0),
        17 => {
            let made = world
                .pools
                .iter()
                .position(|pool| value != 0 && *pool == value);
            let default = world
                .defaults
                .iter()
                .position(|pool| value != 0 && *pool == value);
            match (value, made, default) {
                (0, _, _) => 0,
                (_, Some(slot), _) => 1 + slot as u64,
                (_, _, Some(device)) => 51 + device as u64,
                // Nothing says what the handle of a destroyed pool reads.
                _ => 0,
            }
        }
        _ => value,
    }
}
