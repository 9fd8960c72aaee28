//! Questions to the driver.

use super::*;

impl Generator {
    fn permille(&mut self) -> u16 {
        self.random.pick(&[0, 0, 1, 500, 999]).unwrap_or(0)
    }

    pub(super) fn ask_range(&mut self) {
        let Some(block) = self.some_block() else {
            return;
        };
        let context = self.blocks[usize::from(block)]
            .as_ref()
            .map_or(AS_IS, |block| block.context);
        let (at, permille) = (self.at(context), self.permille());
        self.push(at, false, Op::AskRange { block, permille });
    }

    pub(super) fn ask_attribute(&mut self) {
        let Some(block) = self.some_block() else {
            return;
        };
        let context = self.blocks[usize::from(block)]
            .as_ref()
            .map_or(AS_IS, |block| block.context);
        let (at, permille) = (self.at(context), self.permille());
        let number = 1 + self.random.below(20) as u8;
        let op = if self.random.chance(300) {
            Op::AskAttributes { block, permille }
        } else {
            Op::AskAttribute {
                block,
                permille,
                number,
            }
        };
        self.push(at, false, op);
    }

    pub(super) fn ask_memory(&mut self) {
        if let Some(context) = self.some_context() {
            self.push(context, false, Op::AskMemory);
        }
    }
}
