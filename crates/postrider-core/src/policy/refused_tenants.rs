//! Whether an origin refuses the calls of several tenants. One with too much to do refuses whoever comes; where one
//! tenant is refused far more often than all others together, it is about that tenant. Reads no clock.

use std::time::Duration;

use crate::model::time::Timestamp;

/// Tenants that share a slot are taken for one.
const SLOTS: usize = 8;
/// After this time, what was counted before counts half.
const HALVED_AFTER: Duration = Duration::from_secs(10);
/// So many answers of the others tell how often they are refused ...
const OTHERS_MIN: f32 = 8.0;
/// ... and this share of how often the one is refused is enough: they may call at other moments.
const OTHERS_SHARE: f32 = 0.2;

#[derive(Debug, Clone, Copy, Default)]
pub(super) struct RefusedTenants {
    slots: [TenantAnswers; SLOTS],
    halved_at: Timestamp,
}

#[derive(Debug, Clone, Copy, Default)]
struct TenantAnswers {
    all: f32,
    refused: f32,
}

impl RefusedTenants {
    /// A call of a tenant (a number that stands for it) was answered.
    pub(super) fn note(&mut self, tenant: u64, refused: bool, now: Timestamp) {
        if now < self.halved_at || now.since(self.halved_at) >= HALVED_AFTER {
            self.halved_at = now;
            for slot in &mut self.slots {
                (slot.all, slot.refused) = (slot.all / 2.0, slot.refused / 2.0);
            }
        }
        let slot = &mut self.slots[tenant as usize % SLOTS];
        slot.all += 1.0;
        slot.refused += f32::from(u8::from(refused));
    }

    pub(super) fn are_several(&self) -> bool {
        let Some(most) = self.slots.iter().max_by(|a, b| a.refused.total_cmp(&b.refused)) else {
            return false;
        };
        let all: f32 = self.slots.iter().map(|slot| slot.all).sum();
        let refused: f32 = self.slots.iter().map(|slot| slot.refused).sum();
        let others = TenantAnswers { all: all - most.all, refused: refused - most.refused };
        others.refused >= 0.5
            && (others.all < OTHERS_MIN || others.share() >= most.share() * OTHERS_SHARE)
    }
}

impl TenantAnswers {
    fn share(&self) -> f32 {
        self.refused / self.all.max(1.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp(1_800_000_000_000);

    /// Of each tenant's hundred calls, so many are refused.
    fn are_several(refused: [usize; 2]) -> bool {
        let mut tenants = RefusedTenants::default();
        for n in 0..100 {
            (0..2).for_each(|tenant| tenants.note(tenant as u64, n < refused[tenant], NOW));
        }
        tenants.are_several()
    }

    #[test]
    fn one_that_is_refused_far_more_often_speaks_for_itself() {
        assert!(!are_several([100, 7]));
        assert!(!are_several([30, 0]));
        assert!(are_several([30, 10]));
    }
}
