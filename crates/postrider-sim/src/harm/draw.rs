//! Random numbers for one entity of a world: a hash of seed, entity and number. What the sick part of
//! a world draws therefore shifts nothing that the healthy part draws.

use crate::rng::SimRng;

/// The generator of the `n`-th of these entities.
pub(crate) fn draw(seed: u64, entity: &str, n: u64) -> SimRng {
    let mut hash = 0xcbf2_9ce4_8422_2325 ^ seed;
    for byte in entity.bytes().chain(n.to_le_bytes()) {
        hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    }
    let mut rng = SimRng::new(hash);
    rng.fork()
}

/// A number below `n` by Zipf's law: with exponent 0 all are equally likely.
pub(crate) fn zipf(rng: &mut SimRng, n: u64, exponent: f64) -> u64 {
    let (n, unit) = (n.max(1) as f64, rng.unit());
    let rank = if (exponent - 1.0).abs() < 0.01 {
        n.powf(unit)
    } else {
        let power = 1.0 - exponent;
        ((n.powf(power) - 1.0) * unit + 1.0).powf(1.0 / power)
    };
    (rank as u64).saturating_sub(1).min(n as u64 - 1)
}
