//! 128-bit hashes that stand for keys while a log is compacted.
//!
//! Kafka takes MD5. `SipHash` with one compression and three finalisation rounds and 128 bits of output is several times
//! as fast; its key is drawn anew for every clean, so that nobody can prepare two keys that collide. Among n different
//! keys some two collide with a probability of at most n² / 2^129: 2^-84 for the 5 million keys that the default
//! buffer holds.
use std::hash::{BuildHasher, RandomState};

/// Hash of a key.
pub(super) type KeyHash = [u64; 2];

/// Hashes keys with a secret of its own.
#[derive(Clone, Copy, Debug)]
pub(super) struct KeyHasher {
    key: [u64; 2],
}

impl KeyHasher {
    /// A hasher with a random secret.
    #[expect(
        clippy::disallowed_methods,
        reason = "keys must not be chosen to collide; what is kept does not depend on it"
    )]
    pub(super) fn random() -> Self {
        let random = RandomState::new();
        Self { key: [random.hash_one(0_u64), random.hash_one(1_u64)] }
    }

    #[inline]
    pub(super) fn hash(&self, bytes: &[u8]) -> KeyHash {
        sip_hash::<1, 3>(self.key, bytes)
    }
}

struct State(u64, u64, u64, u64);

impl State {
    #[inline(always)]
    fn round(&mut self) {
        let Self(v0, v1, v2, v3) = self;
        *v0 = v0.wrapping_add(*v1);
        *v1 = v1.rotate_left(13) ^ *v0;
        *v0 = v0.rotate_left(32);
        *v2 = v2.wrapping_add(*v3);
        *v3 = v3.rotate_left(16) ^ *v2;
        *v0 = v0.wrapping_add(*v3);
        *v3 = v3.rotate_left(21) ^ *v0;
        *v2 = v2.wrapping_add(*v1);
        *v1 = v1.rotate_left(17) ^ *v2;
        *v2 = v2.rotate_left(32);
    }

    #[inline(always)]
    fn rounds<const N: usize>(&mut self) {
        for _ in 0..N {
            self.round();
        }
    }

    #[inline(always)]
    fn absorb<const C: usize>(&mut self, word: u64) {
        self.3 ^= word;
        self.rounds::<C>();
        self.0 ^= word;
    }

    #[inline(always)]
    fn fold(&self) -> u64 {
        self.0 ^ self.1 ^ self.2 ^ self.3
    }
}

/// `SipHash-C-D` with 128 bits of output, <https://github.com/veorq/SipHash>.
#[inline(always)]
fn sip_hash<const C: usize, const D: usize>(key: [u64; 2], bytes: &[u8]) -> KeyHash {
    let [k0, k1] = key;
    let mut state = State(
        k0 ^ 0x736f_6d65_7073_6575,
        k1 ^ 0x646f_7261_6e64_6f6d ^ 0xee,
        k0 ^ 0x6c79_6765_6e65_7261,
        k1 ^ 0x7465_6462_7974_6573,
    );
    let (words, rest) = bytes.as_chunks::<8>();
    for word in words {
        state.absorb::<C>(u64::from_le_bytes(*word));
    }
    let tail = rest.iter().rev().fold(0, |word: u64, byte| word << 8 | u64::from(*byte));
    state.absorb::<C>((bytes.len() as u64) << 56 | tail);
    state.2 ^= 0xee;
    state.rounds::<D>();
    let first = state.fold();
    state.1 ^= 0xdd;
    state.rounds::<D>();
    [first, state.fold()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equals_the_reference_vectors() {
        let key = [0x0706_0504_0302_0100, 0x0f0e_0d0c_0b0a_0908];
        let expected: [[u8; 16]; 3] = [
            [0xa3, 0x81, 0x7f, 0x04, 0xba, 0x25, 0xa8, 0xe6, 0x6d, 0xf6, 0x72, 0x14, 0xc7, 0x55, 0x02, 0x93],
            [0xda, 0x87, 0xc1, 0xd8, 0x6b, 0x99, 0xaf, 0x44, 0x34, 0x76, 0x59, 0x11, 0x9b, 0x22, 0xfc, 0x45],
            [0x81, 0x77, 0x22, 0x8d, 0xa4, 0xa4, 0x5d, 0xc7, 0xfc, 0xa3, 0x8b, 0xde, 0xf6, 0x0a, 0xff, 0xe4],
        ];
        for (length, expected) in expected.iter().enumerate() {
            let input: Vec<u8> = (0..length as u8).collect();
            let [first, second] = sip_hash::<2, 4>(key, &input);
            assert_eq!([first.to_le_bytes(), second.to_le_bytes()].concat(), expected);
        }
    }

    #[test]
    fn every_length_and_byte_counts() {
        let hasher = KeyHasher::random();
        let mut seen = std::collections::HashSet::new();
        for length in 0..40 {
            let mut bytes = vec![0; length];
            assert!(seen.insert(hasher.hash(&bytes)));
            for index in 0..length {
                bytes[index] = 1;
                assert!(seen.insert(hasher.hash(&bytes)));
                bytes[index] = 0;
            }
        }
    }
}
