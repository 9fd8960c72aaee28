//! Contents of blocks: fills, reads, copies, kernels.

use super::*;

impl Generator {
    pub(super) fn fill(&mut self) {
        if let Some(block) = self.some_block() {
            self.fill_block(block);
        }
    }

    fn stream_for(&mut self, block: u8) -> Option<Last> {
        let found = self.blocks[usize::from(block)].clone()?;
        let last = found
            .last
            .filter(|last| last.stream.slot().is_some() || last.thread == self.thread);
        let on = match last {
            Some(last) if self.random.chance(500) => last,
            _ => {
                let on = self.some_stream()?;
                if self.device_of(on.context) != found.device {
                    let (stream, per_thread) = (Stream::NULL, self.random.chance(500));
                    Last {
                        stream,
                        thread: self.thread,
                        context: found.context,
                        per_thread,
                    }
                } else {
                    on
                }
            }
        };
        self.contexts[usize::from(on.context)]?;
        self.order_before(block, on).then_some(on)
    }

    fn touched(&mut self, block: u8, on: Last) {
        if let Some(index) = self.capture_on(on) {
            self.captures[index].blocks.push(block);
        } else {
            self.used(block, on);
        }
    }

    pub(super) fn fill_block(&mut self, block: u8) {
        let Some(on) = self.stream_for(block) else {
            return;
        };
        let (value, whole) = (1 + self.random.below(255) as u8, self.random.chance(60));
        self.push(
            on.context,
            on.per_thread,
            Op::Fill {
                block,
                value,
                stream: on.stream,
                whole,
            },
        );
        self.touched(block, on);
        if let Some(block) = &mut self.blocks[usize::from(block)] {
            block.filled = true;
        }
    }

    pub(super) fn read(&mut self) {
        if let Some(block) = self.some_block() {
            self.read_block(block);
        }
    }

    pub(super) fn read_block(&mut self, block: u8) {
        let Some(found) = self.blocks[usize::from(block)]
            .clone()
            .filter(|block| block.filled)
        else {
            return;
        };
        let on = Last {
            stream: Stream::LEGACY,
            thread: self.thread,
            context: found.context,
            per_thread: false,
        };
        if self.contexts[usize::from(found.context)].is_some() && self.order_before(block, on) {
            self.push(found.context, false, Op::Read { block });
            // The copy is complete when the call returns.
            if found.last.is_some_and(|last| !Self::is_same(last, on)) && self.random.chance(500) {
                self.used(block, on);
            }
        }
    }

    pub(super) fn copy(&mut self) {
        let (Some(from), Some(to)) = (self.some_block(), self.some_block()) else {
            return;
        };
        let known = |generator: &Self, slot: u8| generator.blocks[usize::from(slot)].clone();
        let (Some(source), Some(target)) = (known(self, from), known(self, to)) else {
            return;
        };
        if from == to || !source.filled {
            return;
        }
        let Some(on) = self.stream_for(to) else {
            return;
        };
        if !self.order_before(from, on) {
            return;
        }
        if source.device != target.device {
            let (from_context, to_context) = (source.context, target.context);
            self.push(
                on.context,
                false,
                Op::CopyPeer {
                    from,
                    to,
                    from_context,
                    to_context,
                    stream: on.stream,
                },
            );
            let on = Last {
                per_thread: false,
                ..on
            };
            self.touched(from, on);
            self.touched(to, on);
        } else {
            self.push(
                on.context,
                on.per_thread,
                Op::Copy {
                    from,
                    to,
                    stream: on.stream,
                },
            );
            self.touched(from, on);
            self.touched(to, on);
        }
    }

    pub(super) fn upload(&mut self) {
        let Some(block) = self.some_block() else {
            return;
        };
        let hosts: Vec<u8> = (0..HOSTS as u8)
            .filter(|slot| self.hosts[usize::from(*slot)])
            .collect();
        let Some(host) = self.random.pick(&hosts) else {
            return self.host();
        };
        if self.is_capturing() {
            return;
        }
        let Some(on) = self.stream_for(block) else {
            return;
        };
        // The host's bytes are used by one copy at a time.
        self.push(on.context, false, Op::SyncContext);
        let value = 1 + self.random.below(255) as u8;
        let on = Last {
            per_thread: false,
            ..on
        };
        self.push(
            on.context,
            false,
            Op::Upload {
                block,
                value,
                host,
                stream: on.stream,
            },
        );
        self.push(on.context, false, Op::SyncContext);
        self.used(block, on);
    }

    pub(super) fn kernel(&mut self) {
        let Some(block) = self.some_block() else {
            return;
        };
        let Some(on) = self.stream_for(block) else {
            return;
        };
        // The stand-in's own door knows no per-thread default stream.
        if on.stream == Stream::NULL && on.per_thread {
            return;
        }
        let writes = self.random.chance(500);
        self.push(
            on.context,
            false,
            Op::Kernel {
                block,
                stream: on.stream,
                writes,
            },
        );
        self.touched(block, on);
    }

    pub(super) fn host(&mut self) {
        let host = self.random.below(HOSTS as u64) as u8;
        let Some(context) = self.some_context() else {
            return;
        };
        // It ends with its context: only a primary one's is of use.
        let context = self.device_of(context);
        if self.contexts[usize::from(context)].is_none() {
            return;
        }
        if self.hosts[usize::from(host)] {
            if !self.is_capturing() {
                self.push(context, false, Op::SyncContext);
            }
            self.push(context, false, Op::HostFree { host });
        } else {
            let bytes = 1 + self.random.below(100_000) as u32;
            self.push(context, false, Op::HostAllocate { host, bytes });
        }
        self.hosts[usize::from(host)] ^= true;
    }
}
