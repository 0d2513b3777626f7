//! Seeded numbers, the same on every machine.

/// A generator whose numbers depend on a name, too.
pub(super) fn named(seed: u64, name: &str) -> fastrand::Rng {
    // FNV-1a, whose value no release of the standard library changes.
    let mut hash: u64 = 0xCBF2_9CE4_8422_2325;
    for byte in name.bytes() {
        hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01B3);
    }
    fastrand::Rng::with_seed(seed ^ hash)
}
