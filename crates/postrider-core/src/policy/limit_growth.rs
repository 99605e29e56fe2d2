//! How the limit of an origin grows: doubling at first, then by one. Pure.

/// Where more was too much, more is tried after this many round trips, and calls, went well. The
/// number doubles each time that more was too much again, and halves each time that it was not.
const TRIPS_WELL: f64 = 16.0;
const CALLS_WELL: f64 = 64.0;
const PATIENCE_MAX: f64 = 16.0;

/// How the limit grows.
#[derive(Debug, Clone, Copy)]
pub(super) struct Growth {
    /// Below this, the limit doubles per cohort.
    pub(super) doubling_until: f64,
    /// Where it was too much, and how many calls went well since.
    too_much_at: f64,
    well: f64,
    /// Factor for the calls that have to go well before more is tried.
    pub(super) patience: f64,
}

impl Growth {
    pub(super) const SEARCH: Self =
        Self { doubling_until: f64::MAX, too_much_at: f64::MAX, well: 0.0, patience: 1.0 };

    pub(super) fn after_cut_at(limit: f64) -> Self {
        Self { doubling_until: 0.0, too_much_at: limit, well: 0.0, patience: 1.0 }
    }

    /// After a time without answers. A limit that was still doubling keeps its aim.
    pub(super) fn double_to_half_of(&mut self, limit: f64) {
        if self.doubling_until == f64::MAX || self.doubling_until <= limit {
            self.doubling_until = (limit * 0.5).floor();
        }
    }

    /// The patience after calls at this limit were refused.
    pub(super) fn patience_after_refusal(&self, limit: f64) -> f64 {
        let tried_more = limit > self.too_much_at - 1.0 && limit <= self.too_much_at;
        if tried_more { (self.patience * 2.0).min(PATIENCE_MAX) } else { 1.0 }
    }

    /// How much to add to the limit after a round trip with so many calls that went well.
    pub(super) fn step(&mut self, limit: f64, well: f64) -> f64 {
        self.well += well;
        let long_enough = self.well >= CALLS_WELL.max(TRIPS_WELL * limit) * self.patience;
        let more = limit + 1.0 < self.too_much_at || long_enough;
        if limit < self.doubling_until || !more {
            return 0.0;
        }
        if limit >= self.too_much_at {
            self.patience = (self.patience / 2.0).max(1.0 / TRIPS_WELL);
        }
        self.too_much_at = self.too_much_at.max(limit + 1.0);
        self.well = 0.0;
        1.0
    }
}
