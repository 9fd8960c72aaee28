//! Sequences of requests as trainings make them, by a seed: for tests and benches.

use super::{Op, Request, Requests};
use gpushim_recording::Settings;

/// Parameters of a generated sequence.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// Seed of the sequence. Equal seeds give equal sequences.
    pub seed: u64,
    /// Layers of the model; each has parameters, gradients, optimizer state and an activation.
    pub layers: u32,
    /// Number of training iterations.
    pub steps: u32,
    /// True if the length of the input differs between iterations.
    pub varies: bool,
    /// Blocks of each iteration that are never freed.
    pub leaks: u32,
    /// Streams that work is spread over, at least 1.
    pub streams: u32,
}

impl Default for Shape {
    fn default() -> Shape {
        Shape {
            seed: 1,
            layers: 24,
            steps: 50,
            varies: true,
            leaks: 0,
            streams: 1,
        }
    }
}

impl Requests {
    /// Sets the settings of the allocator that served the run.
    pub fn set_settings(&mut self, settings: Settings) {
        self.allocator.settings = settings;
    }
}

/// Ns between two requests.
const PACE: u64 = 10_000;

struct Maker {
    requests: Requests,
    state: u64,
    blocks: u32,
    streams: u64,
    ns: u64,
}

/// A block that is live: its number, bytes and stream.
type Live = (u32, u64, u64);

impl Maker {
    fn new(seed: u64, streams: u32) -> Maker {
        Maker {
            requests: Requests::default(),
            state: seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1,
            blocks: 0,
            streams: streams.max(1).into(),
            ns: 0,
        }
    }

    /// A number below this one.
    fn below(&mut self, limit: u64) -> u64 {
        // Xorshift (Marsaglia).
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        self.state % limit.max(1)
    }

    fn push(&mut self, op: Op, (block, bytes, stream): Live) {
        self.ns += PACE;
        let request = Request {
            op,
            block,
            bytes,
            stream: Some(stream),
            thread: 1,
            ns: self.ns,
        };
        self.requests.push(request);
    }

    fn allocate(&mut self, bytes: u64) -> Live {
        let stream = self.below(self.streams);
        let live = (self.blocks, bytes.max(1), stream);
        self.blocks += 1;
        self.push(Op::Allocate, live);
        live
    }

    fn free(&mut self, live: Live) {
        self.push(Op::Free, live);
    }

    fn free_all(&mut self, all: impl IntoIterator<Item = Live>) {
        all.into_iter().for_each(|live| self.free(live));
    }
}

/// Requests of a training of this shape: parameters once, optimizer state with the first step,
/// gradients and activations in each, with short-lived memory between.
pub fn generate(shape: &Shape) -> Requests {
    let mut maker = Maker::new(shape.seed, shape.streams);
    // 4 KiB to 16 MiB, as layers have.
    let sizes: Vec<u64> = (0..shape.layers)
        .map(|_| (4096 << maker.below(13)) + 512 * maker.below(64))
        .collect();
    let parameters: Vec<Live> = sizes.iter().map(|bytes| maker.allocate(*bytes)).collect();
    let mut state = Vec::new();
    for _ in 0..shape.steps {
        let length = if shape.varies {
            25 + maker.below(76)
        } else {
            100
        };
        let mut activations = Vec::new();
        for bytes in &sizes {
            let short = maker.allocate(bytes / 4 * length / 100);
            activations.push(maker.allocate(bytes.saturating_mul(2 * length) / 100));
            maker.free(short);
        }
        let mut gradients = Vec::new();
        for (bytes, activation) in sizes.iter().zip(activations).rev() {
            let short = maker.allocate(*bytes);
            gradients.push(maker.allocate(*bytes));
            maker.free(short);
            maker.free(activation);
        }
        if state.is_empty() {
            state = sizes
                .iter()
                .flat_map(|bytes| [*bytes; 2])
                .map(|bytes| maker.allocate(bytes))
                .collect();
        }
        for _ in 0..shape.leaks {
            let bytes = 512 + 512 * maker.below(2048);
            maker.allocate(bytes);
        }
        maker.free_all(gradients);
    }
    maker.free_all(state.into_iter().chain(parameters));
    maker.requests
}

/// Makes requests over `live` live blocks, two per step.
///
/// Each step allocates a block of one of 200 sizes, and frees one of the `newest` newest blocks.
pub fn churn(seed: u64, live: u32, newest: u32, steps: u32) -> Requests {
    let mut maker = Maker::new(seed, 1);
    let mut blocks: Vec<Live> = Vec::with_capacity(live as usize);
    // 512 bytes to 64 MiB, small ones more often. Each size is requested repeatedly.
    let sizes: Vec<u64> = (0..200)
        .map(|_| (512 << maker.below(17)) + 512 * maker.below(8))
        .collect();
    let size = |maker: &mut Maker| {
        let at = maker.below(sizes.len() as u64) as usize;
        sizes.get(at).copied().unwrap_or(512)
    };
    for _ in 0..live.max(1) {
        let bytes = size(&mut maker);
        blocks.push(maker.allocate(bytes));
    }
    for _ in 0..steps {
        let old = blocks.len().saturating_sub(newest as usize);
        let at = old + maker.below((blocks.len() - old) as u64) as usize;
        let bytes = size(&mut maker);
        let new = maker.allocate(bytes);
        if let Some(block) = blocks.get_mut(at) {
            maker.free(std::mem::replace(block, new));
        }
    }
    maker.requests
}
