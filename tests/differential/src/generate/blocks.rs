//! Allocations and frees, and the known state of the blocks.

use super::*;

impl Generator {
    /// Orders the last work on a block before new work on a stream. False if this is impossible.
    pub(super) fn order_before(&mut self, block: u8, on: Last) -> bool {
        let Some(last) = self.blocks[usize::from(block)]
            .as_ref()
            .and_then(|block| block.last)
        else {
            return true;
        };
        if Self::is_same(last, on) {
            return true;
        }
        if self.capture_on(last).is_some() {
            return false;
        }
        let into_capture = self.capture_on(on).is_some();
        let is_mine = last.stream.slot().is_some() || last.thread == self.thread;
        let is_capturing = self.is_capturing();
        if is_mine
            && !into_capture
            && last.per_thread == on.per_thread
            && (is_capturing || self.random.chance(400))
        {
            let (from, to, context) = (last.stream, on.stream, on.context);
            self.push(
                last.context,
                last.per_thread,
                Op::Order { from, to, context },
            );
            return true;
        }
        // A wait of the host may be refused while a stream captures.
        if is_capturing && !self.random.chance(30) {
            return false;
        }
        if last.stream.slot().is_some() {
            self.push(
                last.context,
                false,
                Op::SyncStream {
                    stream: last.stream,
                },
            );
        } else if self.contexts[usize::from(last.context)].is_some() {
            self.push(last.context, false, Op::SyncContext);
        }
        true
    }

    pub(super) fn used(&mut self, block: u8, on: Last) {
        if let Some(block) = &mut self.blocks[usize::from(block)] {
            block.last = Some(on);
        }
    }

    fn free_slot(&mut self) -> Option<u8> {
        let most = if self.shape.profile == Profile::Scarce {
            24
        } else {
            BLOCKS
        };
        let empty: Vec<u8> = (0..most as u8)
            .filter(|slot| self.blocks[usize::from(*slot)].is_none())
            .collect();
        self.random.pick(&empty)
    }

    pub(super) fn some_block(&mut self) -> Option<u8> {
        let live: Vec<u8> = (0..BLOCKS as u8)
            .filter(|slot| self.blocks[usize::from(*slot)].is_some())
            .collect();
        self.random.pick(&live)
    }

    fn size(&mut self) -> u64 {
        let scarce = self.shape.profile == Profile::Scarce;
        match self.random.below(20) {
            0 => 0,
            1..=5 => 1 + self.random.below(4096),
            6 => 1 << self.random.below(24),
            7..=11 => 1 + self.random.below(1 << 20),
            12..=17 => 1 + self.random.below(6 << 20),
            _ if scarce => 1 + self.random.below(self.shape.memory / 4),
            18 => 1 + self.random.below(64 << 20),
            _ => (1 + self.random.below(16)) << 21,
        }
    }

    fn enter(&mut self, slot: u8, block: Block) {
        self.held[usize::from(block.device)] += block.bytes;
        self.freed.retain(|freed| *freed != slot);
        self.blocks[usize::from(slot)] = Some(block);
    }

    pub(super) fn leave(&mut self, slot: u8) {
        if let Some(block) = self.blocks[usize::from(slot)].take() {
            self.held[usize::from(block.device)] -= block.bytes;
            self.freed.push(slot);
        }
        let writes = |blocks: &[u8]| blocks.contains(&slot);
        for graph in self
            .graphs
            .iter_mut()
            .flatten()
            .filter(|graph| writes(&graph.blocks))
        {
            graph.is_fresh = false;
        }
    }

    fn is_in_graph(&self, slot: u8) -> bool {
        self.captures
            .iter()
            .any(|capture| capture.blocks.contains(&slot))
            || self
                .graphs
                .iter()
                .flatten()
                .any(|graph| graph.is_fresh && graph.blocks.contains(&slot))
    }

    /// True if there is room for a request. Only the profile `Scarce` may run out of memory.
    fn has_room(&mut self, device: u8, bytes: u64) -> bool {
        let most = match self.shape.profile {
            Profile::Scarce => self.shape.memory * 12 / 10,
            _ => self.shape.memory / 8,
        };
        self.held[usize::from(device)] + bytes <= most
    }

    pub(super) fn allocate(&mut self) {
        let (Some(block), Some(context)) = (self.free_slot(), self.some_context()) else {
            return;
        };
        let bytes = self.size();
        let device = self.device_of(context);
        if !self.has_room(device, bytes) {
            return self.free();
        }
        let from = match self.random.below(8) {
            0 => From::Pitched(1 + self.random.below(5000) as u32),
            _ => From::Plain,
        };
        let at = self.at(context);
        self.push(at, false, Op::Allocate { block, bytes, from });
        self.enter(
            block,
            Block {
                device,
                context,
                bytes,
                is_async: false,
                filled: false,
                last: None,
            },
        );
        if self.random.chance(600) {
            self.fill_block(block);
        }
    }

    pub(super) fn allocate_async(&mut self) {
        let (Some(block), Some(on)) = (self.free_slot(), self.some_stream()) else {
            return self.create_stream();
        };
        let bytes = self.size();
        let device = self.device_of(on.context);
        if !self.has_room(device, bytes) {
            return self.free_async();
        }
        let of_device: Vec<u8> = (0..POOLS as u8)
            .filter(|slot| self.pools[usize::from(*slot)] == Some(device))
            .collect();
        let from = match self.random.pick(&of_device) {
            Some(pool) if self.random.chance(400) => From::Pool(pool, on.stream),
            _ => From::Stream(on.stream),
        };
        let at = if on.stream.slot().is_some() {
            self.at(on.context)
        } else {
            on.context
        };
        self.push(at, on.per_thread, Op::Allocate { block, bytes, from });
        self.enter(
            block,
            Block {
                device,
                context: on.context,
                bytes,
                is_async: true,
                filled: false,
                last: Some(on),
            },
        );
        if self.random.chance(600) {
            self.fill_block(block);
        }
    }

    pub(super) fn free(&mut self) {
        let Some(block) = self.some_block() else {
            return;
        };
        self.free_block(block);
    }

    fn free_block(&mut self, block: u8) {
        if self.is_in_graph(block) && !self.random.chance(100) {
            return;
        }
        let Some(found) = self.blocks[usize::from(block)].clone() else {
            return;
        };
        if found.filled && self.random.chance(400) {
            self.read_block(block);
        }
        // The free of a pool's block waits for nothing.
        if let Some(last) = found
            .last
            .filter(|last| found.is_async || last.context != found.context)
        {
            if self.is_capturing() && self.capture_on(last).is_some() {
                return;
            }
            self.wait_for(last);
        }
        let context = match self.random.below(10) {
            0 => self.some_context().unwrap_or(AS_IS),
            1 => AS_IS,
            _ => found.context,
        };
        self.push(context, false, Op::Free { block });
        self.leave(block);
    }

    pub(super) fn free_async(&mut self) {
        let Some(block) = self.some_block() else {
            return;
        };
        let Some(found) = self.blocks[usize::from(block)].clone() else {
            return;
        };
        if !found.is_async && !self.random.chance(150)
            || self.is_in_graph(block) && !self.random.chance(100)
        {
            return;
        }
        if found.filled && self.random.chance(400) {
            self.read_block(block);
        }
        let mut on = match found.last {
            Some(last) if self.random.chance(600) => last,
            _ => match self.some_stream() {
                Some(on) => on,
                None => return,
            },
        };
        if on.stream.slot().is_none() {
            on.thread = self.thread;
        }
        if self.capture_on(on).is_some() && !self.random.chance(100)
            || !self.order_before(block, on)
        {
            return;
        }
        let at = if on.stream.slot().is_some() {
            self.at(on.context)
        } else {
            on.context
        };
        self.push(
            at,
            on.per_thread,
            Op::FreeAsync {
                block,
                stream: on.stream,
            },
        );
        self.leave(block);
    }

    pub(super) fn free_wrongly(&mut self) {
        let stream = match self.random.below(3) {
            0 => None,
            _ => match self.some_stream() {
                Some(on) if self.capture_on(on).is_none() => Some(on.stream),
                _ => None,
            },
        };
        let context = self.some_context().unwrap_or(AS_IS);
        let (block, place) = if self.random.chance(500) {
            (self.random.pick(&self.freed.clone()), Place::Offset(0))
        } else {
            let offset = self.random.pick(&[1, 256, 512, 4096, 1 << 20]).unwrap_or(1);
            let place = match self.random.chance(200) {
                true => Place::End,
                false => Place::Offset(offset),
            };
            (self.some_block(), place)
        };
        let Some(block) = block else { return };
        self.push(
            context,
            false,
            Op::FreeWrongly {
                block,
                place,
                stream,
            },
        );
    }

    pub(super) fn probe(&mut self) {
        let Some(context) = self.some_context() else {
            return;
        };
        let async_ = self.random.chance(300);
        self.push(context, false, Op::Probe { async_ });
    }
}
