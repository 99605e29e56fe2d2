//! Random numbers from one seed: the same draws in the same order on every machine. Knows no clock and no other
//! source of chance.

/// SplitMix64.
#[derive(Debug, Clone)]
pub struct SimRng(u64);

impl SimRng {
    pub fn new(seed: u64) -> Self {
        let mut rng = Self(seed ^ 0x5eed_0f90_5721_de00);
        rng.next();
        rng
    }

    /// An independent generator: draws from one do not change the other.
    pub fn fork(&mut self) -> Self {
        Self::new(self.next())
    }

    #[expect(clippy::should_implement_trait, reason = "it never ends, so it is no iterator")]
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `n`, which is not 0.
    pub fn below(&mut self, n: u64) -> u64 {
        self.next() % n.max(1)
    }

    pub fn index(&mut self, n: usize) -> usize {
        self.below(n as u64) as usize
    }

    /// Both ends included.
    pub fn within(&mut self, from: u64, to: u64) -> u64 {
        from + self.below(to.saturating_sub(from) + 1)
    }

    /// From 1 to `most`; every order of magnitude is equally likely.
    pub fn magnitude(&mut self, most: u64) -> u64 {
        let bits = u64::from(64 - most.max(1).leading_zeros());
        let below = 1_u64 << self.within(1, bits);
        self.within(1, (below - 1).clamp(1, most.max(1)))
    }

    pub fn chance(&mut self, share: f64) -> bool {
        ((self.next() >> 11) as f64) < share * (1_u64 << 53) as f64
    }

    /// From 0 up to 1.
    pub fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// Between two numbers above 0; every order of magnitude is equally likely.
    pub fn log_uniform(&mut self, from: f64, to: f64) -> f64 {
        (from.ln() + self.unit() * (to.ln() - from.ln())).exp()
    }

    /// A number around 0 with deviation 1.
    pub fn normal(&mut self) -> f64 {
        let (radius, angle) = (self.unit().max(1e-12), self.unit());
        (-2.0 * radius.ln()).sqrt() * (std::f64::consts::TAU * angle).cos()
    }

    pub fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[self.index(from.len())]
    }
}

/// The generator of the `n`-th of these entities of a world: a hash of seed, entity and number. What one entity
/// draws shifts nothing that another one draws.
pub fn draw(seed: u64, entity: &str, n: u64) -> SimRng {
    let mut hash = 0xcbf2_9ce4_8422_2325 ^ seed;
    for byte in entity.bytes().chain(n.to_le_bytes()) {
        hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    }
    let mut rng = SimRng::new(hash);
    rng.fork()
}

/// A number below `n` by Zipf's law: with exponent 0 all are equally likely.
pub fn zipf(rng: &mut SimRng, n: u64, exponent: f64) -> u64 {
    let (n, unit) = (n.max(1) as f64, rng.unit());
    let rank = if (exponent - 1.0).abs() < 0.01 {
        n.powf(unit)
    } else {
        let power = 1.0 - exponent;
        ((n.powf(power) - 1.0) * unit + 1.0).powf(1.0 / power)
    };
    (rank as u64).saturating_sub(1).min(n as u64 - 1)
}
