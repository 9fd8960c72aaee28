//! Generation of pools and peer access.

use super::*;

impl Generator {
    pub(super) fn make_pool(&mut self) {
        let Some(pool) = (0..POOLS).find(|slot| self.pools[*slot].is_none()) else {
            return;
        };
        let device = self.some_device();
        let max_size = if self.random.chance(200) {
            (1 + self.random.below(8)) << 25
        } else {
            0
        };
        self.push(
            AS_IS,
            false,
            Op::CreatePool {
                pool: pool as u8,
                device,
                max_size,
            },
        );
        self.pools[pool] = Some(device);
    }

    pub(super) fn destroy_pool(&mut self) {
        let pool = self.random.index(POOLS);
        if self.pools[pool].take().is_some() {
            self.push(AS_IS, false, Op::DestroyPool { pool: pool as u8 });
        }
    }

    fn some_pool(&mut self) -> Pool {
        let made: Vec<u8> = (0..POOLS as u8)
            .filter(|slot| self.pools[usize::from(*slot)].is_some())
            .collect();
        match self.random.pick(&made) {
            Some(pool) if self.random.chance(600) => Pool::Made(pool),
            _ => Pool::Default(self.some_device()),
        }
    }

    pub(super) fn pool_misc(&mut self) {
        let pool = self.some_pool();
        let op = match self.random.below(10) {
            0 | 1 => Op::TrimPool {
                pool,
                keep: self
                    .random
                    .pick(&[0, 0, 1 << 20, 64 << 20, u64::MAX])
                    .unwrap_or(0),
            },
            2 | 3 => {
                let value = self.random.pick(&[0, 0, u64::MAX, 64 << 20]).unwrap_or(0);
                Op::SetPool {
                    pool,
                    attribute: 4,
                    value,
                }
            }
            4 => {
                let (attribute, value) = (1 + self.random.below(3) as u8, self.random.below(2));
                Op::SetPool {
                    pool,
                    attribute,
                    value,
                }
            }
            5 => {
                let (attribute, value) =
                    (5 + self.random.below(5) as u8, self.random.below(10) / 9);
                Op::SetPool {
                    pool,
                    attribute,
                    value,
                }
            }
            6 => Op::ChoosePool {
                device: self.some_device(),
                pool,
            },
            7 => match pool {
                Pool::Made(pool) => Op::PoolAccess {
                    pool,
                    device: self.some_device(),
                    flags: self.random.pick(&[0, 1, 3]).unwrap_or(3),
                },
                Pool::Default(_) => return,
            },
            _ => Op::AskPool {
                pool,
                attribute: self.random.below(10) as u8,
            },
        };
        self.push(AS_IS, false, op);
    }

    pub(super) fn peer(&mut self) {
        let (Some(from), Some(context)) = (self.some_context(), self.some_context()) else {
            return;
        };
        let enable = self.random.chance(600);
        self.push(from, false, Op::Peer { context, enable });
    }
}
