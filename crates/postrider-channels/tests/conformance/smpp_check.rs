//! A look at a message centre: bound, unbound, and nothing said in between.

use std::sync::Arc;

use postrider_channels::accounts::health::{Finding, HealthChecks as _, Probe, Verdict};
use postrider_channels::sms::SmsAccount;
use postrider_channels::{Pool, Wiring};
use postrider_core::{Clock, Timestamp};

use crate::fake_smsc::{Act, BIND, FakeSmsc, SUBMIT, UNBIND};
use crate::fixture::network;

struct Still;

impl Clock for Still {
    fn now(&self) -> Timestamp {
        Timestamp(1_800_000_000_000)
    }
}

async fn visited(smsc: &FakeSmsc) -> Vec<Finding> {
    let account: SmsAccount = serde_json::from_value(smsc.account()).unwrap();
    let pool = Pool::new(network()).unwrap();
    let wiring = Wiring::new(pool, Arc::new(Still));
    account.settings().examine(&Probe { wiring, offline: false, resolver: None }).await
}

#[tokio::test]
async fn a_look_binds_and_unbinds_and_sends_no_message() {
    let smsc = FakeSmsc::start().await;
    let findings = visited(&smsc).await;
    assert!(findings.iter().all(|finding| finding.verdict == Verdict::Ok), "{findings:?}");
    smsc.await_heard(UNBIND, 1).await;
    assert_eq!((smsc.heard(BIND).len(), smsc.heard(SUBMIT).len()), (1, 0));
    smsc.await_ended(1).await;
}

#[tokio::test]
async fn a_refused_password_is_a_failure_that_says_what_to_compare() {
    let smsc = FakeSmsc::with([Act::Status(0x0e)], []).await;
    let findings = visited(&smsc).await;
    let last = findings.last().unwrap();
    assert_eq!((last.check.as_str(), last.verdict), ("smsc", Verdict::Fail), "{findings:?}");
    assert!(last.remedy.as_ref().is_some_and(|remedy| remedy.contains("system_type")));
}
