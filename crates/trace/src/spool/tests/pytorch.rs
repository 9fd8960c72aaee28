//! Size of a spool for events like the ones of a training under PyTorch.

use std::collections::HashMap;

use super::*;
use crate::{Cost, flags};

/// Numbers that look random (xorshift64*, Vigna 2016).
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) % bound
    }
}

/// Returns events of the steps of a network with layers. Activations of the forward pass live until
/// the backward pass, work space is short-lived, lengths of sequences vary. Blocks are reused last
/// in, first out, by size.
fn training(events: usize) -> Vec<[u64; 7]> {
    let (mut random, mut made) = (Random(7), Vec::new());
    let mut free: HashMap<u64, Vec<u64>> = HashMap::new();
    let (mut top, mut ticks, mut allocated) = (0x7f30_0000_0000_u64, 1_000_000_u64, 0_u64);
    let mut record = |kind: Kind, address: u64, size: u64, site: u32, random: &mut Random| {
        // 8 µs of a host of 2 GHz, give or take half.
        ticks += 8_000 + random.below(16_000);
        let tensor = kind == Kind::TensorAlloc || kind == Kind::TensorFree;
        allocated = match kind {
            Kind::TensorAlloc => allocated + size,
            Kind::TensorFree => allocated - size,
            _ => allocated,
        };
        let event = Event {
            flags: if tensor { 0 } else { flags::HIT },
            device: 0,
            thread: if site.is_multiple_of(2) { 4711 } else { 4790 },
            stack: 100 + site * 17,
            address,
            size,
            extra: if tensor {
                [allocated, 12 << 30]
            } else {
                [0x5591_1234_0000, Cost::pack(0, size)]
            },
            ..Event::new(
                kind,
                if tensor {
                    Class::Tensor
                } else {
                    Class::PoolAsync
                },
            )
        };
        made.push(event.words(ticks));
        made.len()
    };
    let mut done = 0;
    while done < events {
        let length = 64 + random.below(192);
        let mut live = Vec::new();
        let mut take = |size: u64, site: u32, random: &mut Random| {
            let size = size.next_multiple_of(512);
            let address = free.get_mut(&size).and_then(Vec::pop).unwrap_or_else(|| {
                top += size;
                top - size
            });
            record(Kind::TensorAlloc, address, size, site, random);
            if site.is_multiple_of(3) {
                record(Kind::Alloc, address, size, site, random);
            }
            (address, size, site)
        };
        for layer in 0..48_u32 {
            for part in 0..4 {
                let size = [3072, 2304, 768, 12][part as usize] * length * 2;
                live.push(take(size, layer * 8 + part, &mut random));
            }
            // Work space of the layer, gone with the next one.
            let work = take(4096 * length, layer * 8 + 5, &mut random);
            live.insert(live.len() - 2, work);
        }
        for (address, size, site) in live.into_iter().rev() {
            if site.is_multiple_of(3) {
                record(Kind::Free, address, size, site + 1000, &mut random);
            }
            done = record(Kind::TensorFree, address, size, site + 1000, &mut random);
            free.entry(size).or_default().push(address);
        }
    }
    made
}

#[test]
fn an_event_takes_at_most_16_bytes() {
    let events: Vec<Tailed> = training(200_000)
        .into_iter()
        .enumerate()
        .map(|(index, words)| Tailed {
            words,
            number: (index as u64) % 16,
            chunk: (index / 16) as u32,
        })
        .collect();
    for level in 1..=3 {
        let mut frame = Frame::new(level).unwrap();
        let (begin, mut bytes) = (Instant::now(), 0);
        for (number, events) in (0..).zip(events.chunks(FRAME_EVENTS)) {
            frame
                .make(
                    Header {
                        number,
                        ..Header::default()
                    },
                    events,
                )
                .unwrap();
            bytes += frame.bytes.len();
        }
        let each = bytes as f64 / events.len() as f64;
        let rate = events.len() as f64 / begin.elapsed().as_secs_f64() / 1e6;
        println!("level {level}: {each:.2} bytes an event, {rate:.2} million events a second");
        assert!(each < 16.0);
    }
}
