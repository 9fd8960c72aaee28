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
