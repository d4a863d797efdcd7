//! A checksum over columns. Parquet's own page checksums are optional and cover
//! no metadata, so a flipped bit could pass as another page number.

/// 64-bit multiply-and-fold over a stream of words; not against malice.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Checksum(u64);

impl Checksum {
    pub(crate) const fn new() -> Self {
        Self(0x243f_6a88_85a3_08d3)
    }
    #[inline]
    pub(crate) fn word(&mut self, v: u64) {
        // Multiplication by an odd constant and xor of the high half are both
        // bijective, so no single changed word can leave the sum as it was.
        let x = (self.0 ^ v).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 = x ^ (x >> 29);
    }
    pub(crate) fn bytes(&mut self, b: &[u8]) {
        self.word(b.len() as u64);
        for c in b.chunks(8) {
            let mut w = [0; 8];
            w[..c.len()].copy_from_slice(c);
            self.word(u64::from_le_bytes(w));
        }
    }
    pub(crate) const fn value(self) -> u64 {
        self.0
    }
}
