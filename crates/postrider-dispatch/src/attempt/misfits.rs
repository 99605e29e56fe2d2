//! Deliveries that the account of their permit cannot send: they go through another account that fits and works,
//! or wait for it.

use std::sync::Arc;
use std::time::Duration;

use postrider_core::policy::fairness::WeightPart;
use postrider_core::{Channel, LaneState};
use tokio::task::JoinSet;

use super::{DeliveryJob, LaneWork, put_off};
use crate::lanes::{LanePermit, LaneRoute};
use crate::open_breaker::{leaves, settle_as_class_says};

/// How long a delivery waits at least for an account without a free place.
const FULL_PAUSE: Duration = Duration::from_secs(1);

impl LaneWork {
    /// Sends those that the permit's account does not fit through others. Returns the rest; also those that no
    /// account fits, because the channel tells what is missing.
    pub(super) fn send_misfits(
        &self,
        mut jobs: Vec<DeliveryJob>,
        permit: &LanePermit,
        channel: &Arc<dyn Channel>,
        tasks: &mut JoinSet<()>,
    ) -> Vec<DeliveryJob> {
        let lanes = &self.context.lanes;
        let Some(account) = permit.account() else { return jobs };
        if lanes.origins(&self.lane).len() < 2 {
            return jobs;
        }
        let fits = |account: &str, job: &DeliveryJob| {
            channel.fits(account, &job.leased.target, &job.leased.message)
        };
        let misfits: Vec<_> = jobs.extract_if(.., |job| !fits(account, job)).collect();
        let mut groups: Vec<(LaneRoute, Vec<DeliveryJob>)> = Vec::new();
        for job in misfits {
            let Some(route) = lanes.route_of(&self.lane, |offer| fits(&offer.name, &job)) else {
                jobs.push(job);
                continue;
            };
            match groups.iter_mut().find(|(known, _)| known.provider == route.provider) {
                Some((_, group)) => group.push(job),
                None => groups.push((route, vec![job])),
            }
        }
        for (route, mut group) in groups {
            let (priority, part) = (permit.priority(), WeightPart::WHOLE);
            match lanes.admit(&self.lane, &route, priority, group.len(), part) {
                Ok(permit) => {
                    let rest = group.split_off(permit.calls().min(group.len()));
                    self.clone().send_under(group, permit, channel, tasks);
                    self.let_wait(rest, LaneState::Ready);
                }
                Err(refusal) => self.let_wait(group, refusal.state),
            }
        }
        jobs
    }

    /// Puts them off until their account may be used, unless their class says otherwise.
    fn let_wait(&self, jobs: Vec<DeliveryJob>, held: LaneState) {
        if leaves(&self.class, held) {
            let leased = jobs.into_iter().map(|job| job.leased).collect();
            return settle_as_class_says(self, leased, held);
        }
        let now = self.context.clock.now();
        for mut job in jobs {
            let until = match held {
                LaneState::Waiting { until, .. } => until,
                _ => now + FULL_PAUSE.mul_f64(1.0 + self.context.random.next()),
            };
            self.settle(&mut job, put_off(until, now));
        }
    }
}
