//! Which account is chosen, held and brought back.

use std::time::Duration;

use postrider_core::{DeliveryId, Message, MessageId, Target};

use super::*;

const NOW: Timestamp = Timestamp(1_800_000_000_000);

struct FixedClock;

impl Clock for FixedClock {
    fn now(&self) -> Timestamp {
        NOW
    }
}

fn config(name: &'static str, tenant: Option<&str>, priority: u16) -> AccountConfig<&'static str> {
    let tenant = tenant.map(TenantId::new);
    let name_of = name.to_owned();
    let (is_far, cost, rate) = (false, 0.0, None);
    AccountConfig { name: name_of, tenant, is_far, priority, cost, rate, settings: name }
}

fn accounts(configs: Vec<AccountConfig<&'static str>>) -> Accounts<&'static str> {
    let (policy, clock) = (BreakerPolicy::default(), Arc::new(FixedClock));
    Accounts::new(crate::sms::KIND, configs, policy, clock, &Arc::default())
}

fn attempt(tenant: &str) -> Attempt {
    let message = Message {
        id: MessageId(1),
        tenant: TenantId::new(tenant),
        class: "transactional".into(),
        created_at: NOW,
        expires_at: NOW + Duration::from_secs(60),
        ttl_s: 60,
        envelope: Default::default(),
        content: "{}".into(),
    };
    Attempt {
        delivery: DeliveryId(1),
        message: Arc::new(message),
        class: Default::default(),
        target: Arc::new(Target::from_stored(r#"{"channel":"sms","phone":"+15550100"}"#).unwrap()),
        number: 1,
        now: NOW,
        expires_at: NOW + Duration::from_secs(60),
        is_one_shot: false,
        address_since: None,
        resign: false,
        replays: 0,
        account: None,
        span: None,
        slot: 0,
    }
}

/// Which account is used, and what becomes of the report if the call ends so.
async fn call(accounts: &Accounts<&'static str>, outcome: Outcome) -> (&'static str, Outcome) {
    let attempt = attempt("acme");
    match accounts.choose(&attempt, |_| true).await {
        Ok(chosen) => {
            let name = chosen.settings;
            let report = Report { status: Some(403), ..Report::new(outcome) };
            (name, chosen.settle(&attempt, report, |_| true).outcome)
        }
        Err(ended) => ("", ended.outcome),
    }
}

#[tokio::test]
async fn when_a_credential_is_refused_the_next_account_takes_over_at_once() {
    let accounts = accounts(vec![config("a", None, 0), config("b", None, 1)]);
    assert_eq!(call(&accounts, Outcome::Config).await, ("a", Outcome::SwitchAccount));
    assert_eq!(call(&accounts, Outcome::Accepted).await, ("b", Outcome::Accepted));
    let seen = accounts.accounts(NOW);
    assert_eq!(seen[0].held.map(|(by, _)| by), Some("credential"));
    assert_eq!((seen[0].failovers, seen[1].failovers, seen[1].calls), (1, 0, 1));
}

#[tokio::test]
async fn when_a_quota_is_spent_the_next_account_takes_over_and_at_the_end_the_tenant_waits() {
    let accounts = accounts(vec![config("a", None, 0), config("b", None, 1)]);
    let after = Duration::from_secs(30);
    let spent = Outcome::RetryAfter { after, scope: Scope::Credential };
    assert_eq!(call(&accounts, spent.clone()).await, ("a", Outcome::SwitchAccount));
    assert_eq!(call(&accounts, spent.clone()).await, ("b", spent));
    let hold = Outcome::Hold { after, scope: Scope::Credential };
    assert_eq!(call(&accounts, Outcome::Accepted).await, ("", hold));
}

#[tokio::test]
async fn a_message_that_only_a_held_account_fits_waits_without_the_others() {
    let accounts = accounts(vec![config("a", None, 0), config("b", None, 0)]);
    let attempt = attempt("acme");
    let only_a = |name: &&str| *name == "a";
    let chosen = accounts.choose(&attempt, only_a).await.ok().unwrap();
    let refused = chosen.settle(&attempt, Report::new(Outcome::Config), only_a);
    assert_eq!(refused.outcome, Outcome::Config, "b does not fit");
    let held = accounts.choose(&attempt, only_a).await.err().unwrap();
    assert!(matches!(held.outcome, Outcome::Hold { scope: Scope::Target, .. }), "{held:?}");
}

#[tokio::test]
async fn a_tenant_with_accounts_of_its_own_never_uses_the_shared_ones() {
    let accounts = accounts(vec![config("shared", None, 0), config("own", Some("acme"), 9)]);
    assert_eq!(call(&accounts, Outcome::Accepted).await.0, "own");
    let of = |tenant: &str| {
        let tenant = TenantId::new(tenant);
        accounts.of(&tenant).map(|a| a.settings).collect::<Vec<_>>()
    };
    assert_eq!((of("acme"), of("other")), (vec!["own"], vec!["shared"]));
}

#[tokio::test]
async fn a_token_refused_twice_is_a_credential_refused() {
    let accounts = accounts(vec![config("a", None, 0)]);
    let attempt = Attempt { resign: true, ..attempt("acme") };
    let chosen = accounts.choose(&attempt, |_| true).await.ok().unwrap();
    let report = chosen.settle(&attempt, Report::new(Outcome::ResignOnce), |_| true);
    assert_eq!(report.outcome, Outcome::Config);
}

#[tokio::test]
async fn without_an_account_a_person_is_told_what_to_add() {
    let accounts = accounts(vec![config("b", Some("b"), 0)]);
    let report = accounts.choose(&attempt("acme"), |_| true).await.err().unwrap();
    assert_eq!((report.outcome, report.code.as_deref()), (Outcome::Config, Some("no_account")));
    assert!(report.detail.unwrap().contains("channel = \"sms\""));
}

#[tokio::test]
async fn the_named_account_is_used_unless_it_is_held_or_does_not_fit() {
    let accounts = accounts(vec![config("a", None, 0), config("b", None, 1)]);
    let attempt = Attempt { account: Some("b".into()), ..attempt("acme") };
    let only_a = |name: &&str| *name == "a";
    let misfit = accounts.choose(&attempt, only_a).await.ok().unwrap();
    let report = misfit.settle(&attempt, Report::new(Outcome::Accepted), only_a);
    assert!(report.is_of_other_account);
    let chosen = accounts.choose(&attempt, |_| true).await.ok().unwrap();
    assert_eq!(chosen.settings, "b");
    let report = chosen.settle(&attempt, Report::new(Outcome::Config), |_| true);
    assert_eq!((report.outcome, report.is_of_other_account), (Outcome::SwitchAccount, false));
    let other = accounts.choose(&attempt, |_| true).await.ok().unwrap();
    assert_eq!(other.settings, "a");
}

#[tokio::test]
async fn accounts_are_offered_in_order_and_a_held_one_says_why() {
    let accounts = accounts(vec![config("b", None, 1), config("a", None, 0)]);
    call(&accounts, Outcome::Config).await;
    let offers = accounts.offers(&TenantId::new("acme"));
    let seen: Vec<_> = offers.iter().map(|o| (&*o.name, o.held.map(|held| held.by))).collect();
    assert_eq!(seen, [("a", Some(Gate::Credential)), ("b", None)]);
}

#[tokio::test]
async fn a_provider_that_fails_does_not_hold_its_account_in_the_channel() {
    let backoff = Outcome::RetryBackoff { at_least: Duration::ZERO };
    let accounts = accounts(vec![config("a", None, 0), config("b", None, 1)]);
    for _ in 0..100 {
        let attempt = attempt("acme");
        let chosen = accounts.choose(&attempt, |_| true).await.ok().unwrap();
        assert_eq!(chosen.settings, "a");
        let report = Report { status: Some(503), ..Report::new(backoff.clone()) };
        assert_eq!(chosen.settle(&attempt, report, |_| true).outcome, backoff);
    }
}
