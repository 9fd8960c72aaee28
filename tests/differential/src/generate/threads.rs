//! Threads, forks and pauses.

use super::*;

impl Generator {
    pub(super) fn change_thread(&mut self) {
        self.thread = self.random.below(THREADS as u64) as u8;
        let fresh = !std::mem::replace(&mut self.threads[usize::from(self.thread)], true);
        if (fresh || self.random.chance(300))
            && let Some(context) = self.some_context()
        {
            self.push(context, false, Op::SetContext);
        }
    }

    pub(super) fn end_thread(&mut self) {
        let thread = 1 + self.random.below(THREADS as u64 - 1) as u8;
        if !self.threads[usize::from(thread)] {
            return;
        }
        let special = |capture: &Capture| {
            !capture.is_over && capture.on.thread == thread && capture.on.stream.slot().is_none()
        };
        if self.captures.iter().any(special) && !self.random.chance(20) {
            return;
        }
        self.threads[usize::from(thread)] = false;
        self.thread = 0;
        self.push(AS_IS, false, Op::EndThread { thread });
    }

    pub(super) fn fork(&mut self) {
        let calls = self.random.chance(500);
        if self.random.chance(300) {
            self.push(AS_IS, false, Op::Fork { calls });
        }
    }

    pub(super) fn pause(&mut self) {
        self.push(AS_IS, false, Op::Pause);
    }

    pub(super) fn threads_in_turn(&mut self) {
        if self.is_capturing() {
            return;
        }
        if let Some(context) = self.some_context() {
            let threads = 20 + self.random.below(40) as u8;
            self.push(context, false, Op::ThreadsInTurn { threads });
        }
    }

    pub(super) fn crowd(&mut self) {
        let Some(context) = self.some_context() else {
            return;
        };
        let endings = [
            Ending::None,
            Ending::Contexts,
            Ending::Green,
            Ending::Primary,
        ];
        let ending = self.random.pick(&endings).unwrap_or(Ending::None);
        // Where there is a green context, captures make pools keep memory for good.
        let any_green = self.contexts.iter().flatten().any(|context| context.green);
        let most = if any_green || ending == Ending::Green {
            0
        } else {
            3
        };
        let op = Op::Crowd {
            threads: 2 + self.random.below(2) as u8,
            capturing: self.random.pick(&[0, 0, most]).unwrap_or(0),
            ending,
            exports: self.random.chance(400),
            seed: self.random.below(1 << 16) as u16,
        };
        self.push(context, false, op);
    }

    pub(super) fn close_descriptors(&mut self) {
        self.push(AS_IS, false, Op::CloseDescriptors);
    }

    pub(super) fn storm(&mut self) {
        if !self.shape.storms || self.is_capturing() {
            return;
        }
        let Some(context) = self.some_context() else {
            return;
        };
        let (threads, bytes) = (
            2 + self.random.below(6) as u8,
            (1 + self.random.below(64) as u32) << 20,
        );
        self.push(context, false, Op::Storm { threads, bytes });
    }
}
