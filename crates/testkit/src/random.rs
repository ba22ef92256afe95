//! Randomness that can be repeated.

/// A small generator (splitmix64): the same numbers for the same seed.
#[derive(Clone, Debug)]
pub struct Seeded(u64);

impl Seeded {
    /// Begins at `seed`.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next number.
    pub fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `limit`.
    ///
    /// # Panics
    /// When `limit` is zero.
    pub fn below(&mut self, limit: u64) -> u64 {
        self.number() % limit
    }

    /// One of `items`; none when there are none.
    pub fn pick<'a, T>(&mut self, items: &'a [T]) -> Option<&'a T> {
        let count = u64::try_from(items.len()).unwrap_or(u64::MAX);
        if count == 0 {
            return None;
        }
        items.get(usize::try_from(self.below(count)).unwrap_or(0))
    }

    /// Fills `bytes`.
    pub fn fill(&mut self, bytes: &mut [u8]) {
        for part in bytes.chunks_mut(8) {
            let number = self.number().to_le_bytes();
            part.copy_from_slice(&number[..part.len()]);
        }
    }
}
