//! Questions to the driver, and calls that are wrong where they are made.

use super::*;

/// Attributes have numbers below this; the last few are of later drivers.
const ATTRIBUTES: u64 = 25;

impl Generator {
    /// Tells whether questions are about addresses in no block, too. While streams capture, the
    /// shim has memory of its own.
    fn asks_anywhere(&self) -> bool {
        self.shape.profile == Profile::Addresses
    }

    fn place(&mut self) -> Place {
        match self.random.below(8) {
            0 if self.asks_anywhere() => Place::End,
            1 if self.asks_anywhere() => {
                Place::Offset(self.random.pick(&[1, 256, 4096]).unwrap_or(1))
            }
            _ => Place::Permille(self.random.pick(&[0, 0, 1, 500, 999]).unwrap_or(0)),
        }
    }

    /// A live block, or one that was freed.
    fn known_block(&mut self) -> Option<u8> {
        match self.asks_anywhere() && self.random.chance(150) {
            true => self.random.pick(&self.freed.clone()),
            false => self.some_block(),
        }
    }

    fn push_ask(&mut self, block: u8, place: Place, question: Question) {
        let context = self.blocks[usize::from(block)]
            .as_ref()
            .map(|block| block.context);
        let context = context.or_else(|| self.some_context()).unwrap_or(AS_IS);
        let at = self.at(context);
        let freed = self.blocks[usize::from(block)].is_none();
        self.push(
            at,
            false,
            Op::Ask {
                block,
                freed,
                place,
                question,
            },
        );
    }

    /// A question that programs ask about addresses.
    pub(super) fn ask(&mut self) {
        let Some(block) = self.known_block() else {
            return;
        };
        let place = self.place();
        let question = match self.random.below(10) {
            0..=3 => Question::Range,
            4 | 5 => Question::Attributes(self.random.index(ATTRIBUTE_LISTS.len()) as u8),
            _ => Question::Attribute(self.random.below(ATTRIBUTES) as u8),
        };
        self.push_ask(block, place, question);
    }

    /// A handle of a block for other processes.
    pub(super) fn export(&mut self) {
        // The stand-in copies shared blocks.
        const MOST: u64 = 12 << 20;
        let Some(block) = self.known_block() else {
            return;
        };
        let known = self.blocks[usize::from(block)].as_ref();
        if known.is_some_and(|block| block.bytes > MOST) {
            return;
        }
        let place = self.place();
        self.push_ask(block, place, Question::IpcHandle);
    }

    /// A rare question, or a wrong call.
    pub(super) fn ask_strangely(&mut self) {
        let Some(block) = self.known_block() else {
            return;
        };
        let place = self.place();
        let question = match self.random.below(15) {
            0 => Question::Retain,
            1 => Question::SetSyncMemops(self.random.chance(500)),
            2 => Question::Exported(1 << self.random.pick(&[12, 21, 22, 23]).unwrap_or(12)),
            3 => Question::PoolExport,
            4 => Question::Register,
            5 => Question::Unregister,
            6 => Question::AsHost,
            7 => Question::FreeHost,
            8 => Question::Advise,
            9 => Question::Prefetch,
            10 => Question::RangeAttribute(1 + self.random.below(8) as u8),
            11 => Question::IpcClose,
            12 => Question::Access,
            13 => Question::Attach,
            _ => return self.change_mapping(block),
        };
        self.push_ask(block, place, question);
    }

    /// A change of a block's mapping, as if it were the program's own. All blocks with known
    /// contents are read after it.
    fn change_mapping(&mut self, block: u8) {
        let bytes = self.blocks[usize::from(block)]
            .as_ref()
            .map_or(0, |block| block.bytes);
        let pages = bytes.div_ceil(2 << 20).clamp(1, 200) as u8;
        let place = Place::Page(self.random.below(u64::from(pages) + 2) as u8);
        let some = self.random.pick(&[1, pages]).unwrap_or(1);
        let question = match self.random.below(4) {
            0 => Question::Unmap(some),
            1 => Question::SetAccess(self.random.pick(&[0, 1, 3]).unwrap_or(0), some),
            2 => Question::Map,
            _ => Question::FreeAddresses(some),
        };
        self.push_ask(block, place, question);
        for block in 0..BLOCKS as u8 {
            if self.blocks[usize::from(block)].is_some() {
                self.read_block(block);
            }
        }
    }

    pub(super) fn map_own(&mut self) {
        if let Some(context) = self.some_context() {
            let pages = 1 + self.random.below(4) as u8;
            self.push(context, false, Op::MapOwn { pages });
        }
    }

    pub(super) fn ask_memory(&mut self) {
        if let Some(context) = self.some_context() {
            self.push(context, false, Op::AskMemory);
        }
    }
}
