//! Contexts, streams and their order.

use super::*;

impl Generator {
    pub(super) fn create_stream(&mut self) {
        let empty: Vec<u8> = (0..STREAMS as u8)
            .filter(|slot| self.streams[usize::from(*slot)].is_none())
            .collect();
        let (Some(slot), Some(context)) = (self.random.pick(&empty), self.some_context()) else {
            return;
        };
        let blocking = self.random.chance(300);
        self.push(context, false, Op::CreateStream { slot, blocking });
        self.streams[usize::from(slot)] = Some(Made { context });
    }

    pub(super) fn destroy_stream(&mut self) {
        let slot = self.random.index(STREAMS);
        let Some(made) = self.streams[slot] else {
            return;
        };
        let on = Last {
            stream: Stream(Stream::FIRST + slot as u8),
            thread: self.thread,
            context: made.context,
            per_thread: false,
        };
        let capturing = self.capture_on(on);
        if capturing.is_some() && !self.random.chance(50) {
            return;
        }
        if self.random.chance(700) && capturing.is_none() {
            self.push(made.context, false, Op::SyncStream { stream: on.stream });
        }
        let at = self.at(made.context);
        self.push(at, false, Op::DestroyStream { slot: slot as u8 });
        self.streams[slot] = None;
        if let Some(index) = capturing {
            self.captures[index].is_over = true;
        }
        // Its work is complete, or else ordered by the context alone.
        let legacy = Last {
            stream: Stream::LEGACY,
            ..on
        };
        for block in self.blocks.iter_mut().flatten() {
            if block.last.is_some_and(|last| last.stream == on.stream) {
                block.last = Some(legacy);
            }
        }
        if !self.is_capturing() {
            self.push(made.context, false, Op::SyncContext);
        }
    }

    pub(super) fn sync_stream(&mut self) {
        let Some(on) = self.some_stream() else { return };
        if self.capture_on(on).is_some() && !self.random.chance(40) {
            return;
        }
        let stream = on.stream;
        let op = if self.random.chance(800) {
            Op::SyncStream { stream }
        } else {
            Op::QueryStream { stream }
        };
        self.push(on.context, on.per_thread, op);
    }

    pub(super) fn order(&mut self) {
        let (Some(a), Some(b)) = (self.some_stream(), self.some_stream()) else {
            return;
        };
        // An event of a capture pulls the other stream in: that is for captures' own steps.
        if a.per_thread == b.per_thread
            && self.capture_on(a).is_none()
            && self.capture_on(b).is_none()
        {
            self.push(
                a.context,
                a.per_thread,
                Op::Order {
                    from: a.stream,
                    to: b.stream,
                    context: b.context,
                },
            );
        }
    }

    pub(super) fn sync_context(&mut self) {
        if self.is_capturing() && !self.random.chance(50) {
            return;
        }
        if let Some(context) = self.some_context() {
            self.push(context, false, Op::SyncContext);
        }
    }

    pub(super) fn create_context(&mut self) {
        let first = usize::from(self.shape.devices);
        let empty: Vec<usize> = (first..CONTEXTS)
            .filter(|slot| self.contexts[*slot].is_none())
            .collect();
        let Some(slot) = self.random.pick(&empty) else {
            return;
        };
        let device = self.some_device();
        let green = self.contexts[usize::from(device)].is_some() && self.random.chance(250);
        self.push(
            AS_IS,
            false,
            Op::CreateContext {
                slot: slot as u8,
                device,
                green,
            },
        );
        self.contexts[slot] = Some(Context { device, green });
    }

    /// Ends a context with its own memory and its streams.
    ///
    /// Blocks of pools and blocks of a green context move to another context of the device. Without
    /// such a context they end, too.
    fn context_ends(&mut self, slot: u8) {
        let device = self.device_of(slot);
        let green = self.contexts[usize::from(slot)].is_some_and(|context| context.green);
        self.contexts[usize::from(slot)] = None;
        for index in 0..STREAMS {
            if self.streams[index].is_some_and(|made| made.context == slot) {
                self.streams[index] = None;
            }
        }
        for capture in &mut self.captures {
            capture.is_over |= capture.on.context == slot;
        }
        let primary = (0..CONTEXTS as u8)
            .find(|other| self.contexts[usize::from(*other)].is_some_and(|c| c.device == device));
        for index in 0..BLOCKS as u8 {
            let Some(block) = &mut self.blocks[usize::from(index)] else {
                continue;
            };
            if block.last.is_some_and(|last| last.context == slot) {
                block.last = None;
            }
            if block.context != slot {
                continue;
            }
            match primary {
                Some(primary) if block.is_async || green => block.context = primary,
                _ => self.leave(index),
            }
        }
        for graph in self
            .graphs
            .iter_mut()
            .flatten()
            .filter(|graph| graph.context == slot)
        {
            graph.is_fresh = false;
        }
    }

    /// Waits for a context's work as far as a capture lets it.
    fn settle(&mut self, slot: u8) {
        self.push(slot, false, Op::SyncContext);
    }

    /// Makes the host wait for the last work on a block.
    pub(super) fn wait_for(&mut self, last: Last) {
        if last.stream.slot().is_some() {
            let stream = last.stream;
            self.push(last.context, false, Op::SyncStream { stream });
        } else {
            self.push(last.context, false, Op::SyncContext);
        }
    }

    /// Last work of other contexts on the blocks that end with a context.
    ///
    /// `None` if a capture prevents waiting for the work.
    fn work_on_blocks_of(&self, slot: u8) -> Option<Vec<Last>> {
        let goes = |block: &&Block| !block.is_async && block.context == slot;
        let others = |last: &Last| {
            last.context != slot && self.contexts[usize::from(last.context)].is_some()
        };
        let blocks = self.blocks.iter().flatten().filter(goes);
        let work: Vec<Last> = blocks
            .filter_map(|block| block.last)
            .filter(others)
            .collect();
        // One of the whole context, or of another thread, may forbid to wait, too.
        (work.is_empty() || !self.is_capturing()).then_some(work)
    }

    pub(super) fn destroy_context(&mut self) {
        let first = self.shape.devices;
        let alive: Vec<u8> = (first..CONTEXTS as u8)
            .filter(|slot| self.contexts[usize::from(*slot)].is_some())
            .collect();
        let Some(slot) = self.random.pick(&alive) else {
            return;
        };
        let captures = self
            .captures
            .iter()
            .any(|capture| !capture.is_over && capture.on.context == slot);
        if captures && !self.random.chance(100) {
            return;
        }
        let Some(work) = self.work_on_blocks_of(slot) else {
            return;
        };
        if !captures {
            self.settle(slot);
        }
        work.into_iter().for_each(|last| self.wait_for(last));
        let at = if self.random.chance(500) {
            slot
        } else {
            self.some_context().unwrap_or(AS_IS)
        };
        self.push(at, false, Op::DestroyContext { slot });
        self.context_ends(slot);
    }

    pub(super) fn retain(&mut self, device: u8) {
        self.push(AS_IS, false, Op::Retain { device });
        self.contexts[usize::from(device)] = Some(Context {
            device,
            green: false,
        });
        self.push(device, false, Op::SetContext);
    }

    /// The primary context is reset or released and made anew; pools' blocks of the device outlive
    /// it.
    pub(super) fn primary(&mut self) {
        let device = self.some_device();
        let open = self.captures.iter().any(|capture| !capture.is_over);
        let mut contexts = self.contexts.iter().flatten();
        let is_held = contexts.any(|context| context.green && context.device == device);
        if open || is_held {
            return;
        }
        if self.random.chance(200) {
            // A claim more, and one less: nothing ends.
            self.push(AS_IS, false, Op::Retain { device });
            self.push(AS_IS, false, Op::Release { device });
            return;
        }
        for context in 0..CONTEXTS as u8 {
            if self.contexts[usize::from(context)].is_some_and(|context| context.device == device) {
                self.settle(context);
            }
        }
        let work = self.work_on_blocks_of(device).unwrap_or_default();
        work.into_iter().for_each(|last| self.wait_for(last));
        if self.random.chance(500) {
            self.push(device, false, Op::Reset { device });
            self.context_ends(device);
            if self.random.chance(500) {
                // Wrong: the context is gone.
                self.push(device, false, Op::AskMemory);
            }
            self.push(AS_IS, false, Op::Release { device });
        } else {
            self.push(AS_IS, false, Op::Release { device });
            self.context_ends(device);
        }
        self.retain(device);
    }

    pub(super) fn context_misc(&mut self) {
        let Some(slot) = self.some_context() else {
            return;
        };
        let op = match self.random.below(3) {
            0 => Op::PushPop { slot },
            1 => Op::AskContext,
            _ => Op::SetContext,
        };
        let at = self.at(slot);
        self.push(at, false, op);
    }
}
