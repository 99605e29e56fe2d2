//! The channels that speak HTTP in one hand: what it takes to build one and to make it attempt something.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, LazyLock, Mutex};
use std::time::Duration;

use postrider_channels::chat::ChatTarget;
use postrider_channels::http::HttpTarget;
use postrider_channels::webhook::WebhookTarget;
use postrider_channels::webpush::WebpushTarget;
use postrider_channels::{
    ChannelTarget, ChatChannel, CredentialPart, Credentials, CurrentAnswerTable, HttpChannel, Pool,
    PoolConfig, VapidKey, VapidKeys, WebPushChannel, WebhookChannel, WebhookSecret, WebhookSecrets,
    Wiring, answers,
};
use postrider_core::model::message::Envelope;
use postrider_core::{
    Attempt, Channel, Class, Clock, DeliveryId, Finished, KeyId, Message, MessageId, Report,
    Target, TenantId, Timestamp,
};

use crate::column::Column;
use crate::hosted::PerOrigin;
use crate::provider::authority;

pub(crate) const START: Timestamp = Timestamp(1_800_000_000_000);
pub(crate) const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
pub(crate) const UA_PRIVATE: &str = "q1dXpw3UpT5VOmu_cf_v6ih07Aems3njxI-JWgLcM94";
pub(crate) const P256DH: &str =
    "BCVxsr7N_eNgVRqvHtD0zTZsEc6-VV-JvLexhqUzORcxaOzi6-AYWXvTBHm4bjyPjs7Vd8pZGH6SRpkNtoIAiw4";
pub(crate) const AUTH: &str = "BTBZMqHH6r4Tts7J_aSIgg";

/// Who is examined: a channel that speaks HTTP, by its provider where it has several.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Subject {
    Webpush,
    Webhook,
    Http,
    Chat,
    Fcm,
    Apns,
    Ses,
    SendGrid,
    /// Declared in a file of its own.
    Declared(&'static Column),
}

impl Subject {
    /// An account says where the provider is, not the address.
    pub(crate) fn has_accounts(self) -> bool {
        match self {
            Self::Webpush | Self::Webhook | Self::Http | Self::Chat => false,
            Self::Declared(column) => column.account.is_some(),
            _ => true,
        }
    }
}

/// A clock that is moved by hand.
#[derive(Clone)]
pub(crate) struct HandClock(Arc<AtomicI64>);

impl HandClock {
    pub(crate) fn advance(&self, by: Duration) {
        self.0.fetch_add(by.as_millis() as i64, Ordering::SeqCst);
    }
}

impl Clock for HandClock {
    fn now(&self) -> Timestamp {
        Timestamp(self.0.load(Ordering::SeqCst))
    }
}

pub(crate) struct Keys(pub(crate) Arc<VapidKey>);

impl Keys {
    pub(crate) fn generate() -> Self {
        Self(Arc::new(VapidKey::generate(KeyId(1)).unwrap()))
    }
}

impl VapidKeys for Keys {
    fn key(&self, _tenant: &TenantId, id: Option<KeyId>) -> Option<Arc<VapidKey>> {
        id.is_none_or(|id| id == self.0.id()).then(|| self.0.clone())
    }
}

pub(crate) struct Secrets;

impl WebhookSecrets for Secrets {
    fn secrets(&self, _tenant: &TenantId) -> Vec<Arc<WebhookSecret>> {
        vec![Arc::new(WebhookSecret::parse(SECRET).unwrap())]
    }
}

struct OneCredential;

impl Credentials for OneCredential {
    fn resolve(&self, tenant: &TenantId, reference: &str, origin: &str) -> Option<CredentialPart> {
        let value = http::HeaderValue::from_static("Bearer t0ken");
        self.allows(tenant, reference, origin)
            .then_some(CredentialPart::Header(http::header::AUTHORIZATION, value))
    }

    fn allows(&self, _: &TenantId, reference: &str, _: &str) -> bool {
        reference == "env:TOKEN"
    }
}

/// A target of the channel `http` that names a credential.
pub(crate) fn with_credential(url: &str) -> Target {
    let target = HttpTarget {
        method: "POST".into(),
        url: url.into(),
        headers: BTreeMap::new(),
        credential: Some("env:TOKEN".into()),
    };
    target.to_target()
}

/// A clock, a pool, and what it takes to make any channel attempt something.
pub(crate) struct ChannelFixture {
    pub(crate) clock: HandClock,
    pub(crate) wiring: Wiring,
}

impl ChannelFixture {
    pub(crate) fn new() -> Self {
        Self::with(network())
    }

    pub(crate) fn with(network: PoolConfig) -> Self {
        Self::within(network, Duration::from_secs(10))
    }

    pub(crate) fn within(network: PoolConfig, attempt_timeout: Duration) -> Self {
        let clock = HandClock(Arc::new(AtomicI64::new(START.0)));
        let pool = Pool::new(network).unwrap();
        let wiring = Wiring {
            pool,
            clock: Arc::new(clock.clone()),
            answers: answers(),
            attempt_timeout,
            share: Arc::default(),
        };
        Self { clock, wiring }
    }

    pub(crate) fn attempt(&self, target: Target) -> Attempt {
        attempt(self.clock.now(), target)
    }

    pub(crate) async fn deliver(&self, channel: &dyn Channel, batch: Vec<Attempt>) -> Vec<Report> {
        deliver(channel, batch).await
    }
}

pub(crate) struct SubjectFixture {
    pub(crate) subject: Subject,
    pub(crate) clock: HandClock,
    pub(crate) pool: Pool,
    channel: Built,
}

/// A channel with accounts is told by them where to send, so it is built when that is known.
enum Built {
    Ready(Box<dyn Channel>),
    PerOrigin(Box<PerOrigin>),
}

/// The built-in table. Its index takes a while without optimisation, and hundreds of tests need it.
fn answers() -> Arc<CurrentAnswerTable> {
    static TABLES: LazyLock<Arc<CurrentAnswerTable>> =
        LazyLock::new(|| CurrentAnswerTable::new(answers::built_in()));
    TABLES.clone()
}

/// Private targets allowed, our own authority trusted.
pub(crate) fn network() -> PoolConfig {
    PoolConfig {
        allow_private_targets: true,
        extra_ca_file: Some(authority().file().to_owned()),
        connections_max: 4,
        http1_connections_max: 32,
        ..PoolConfig::default()
    }
}

impl SubjectFixture {
    pub(crate) fn new(subject: Subject) -> Self {
        Self::with(subject, network(), Duration::from_secs(10))
    }

    pub(crate) fn with(subject: Subject, network: PoolConfig, attempt_timeout: Duration) -> Self {
        let ChannelFixture { clock, wiring } = ChannelFixture::within(network, attempt_timeout);
        let pool = wiring.pool.clone();
        let channel: Box<dyn Channel> = match subject {
            Subject::Webpush => {
                let keys = Arc::new(Keys::generate());
                Box::new(WebPushChannel::new(wiring, keys, "mailto:ops@example.com").unwrap())
            }
            Subject::Webhook => Box::new(WebhookChannel {
                wiring,
                secrets: Arc::new(Secrets),
                secret_per_address: false,
                ed25519: false,
            }),
            Subject::Http => Box::new(HttpChannel { wiring, credentials: Arc::new(OneCredential) }),
            Subject::Chat => Box::new(ChatChannel { wiring, hosts: Default::default() }),
            _ => {
                let channel = Built::PerOrigin(Box::new(PerOrigin::new(subject, wiring)));
                return Self { subject, clock, pool, channel };
            }
        };
        Self { subject, clock, pool, channel: Built::Ready(channel) }
    }

    pub(crate) fn target(&self, url: &str) -> Target {
        match self.subject {
            Subject::Webpush => WebpushTarget {
                endpoint: url.into(),
                p256dh: P256DH.into(),
                auth: AUTH.into(),
                vapid_key: None,
            }
            .to_target(),
            Subject::Webhook => WebhookTarget { url: url.into(), secrets: Vec::new() }.to_target(),
            Subject::Http => HttpTarget {
                method: "POST".into(),
                url: url.into(),
                headers: BTreeMap::new(),
                credential: None,
            }
            .to_target(),
            Subject::Chat => ChatTarget { url: url.into() }.to_target(),
            hosted => crate::hosted::target(hosted, url),
        }
    }

    /// The secret that the accounts read, where they read a file.
    pub(crate) fn put_secret(&self, secret: &str) {
        match &self.channel {
            Built::PerOrigin(channels) => channels.put_secret(secret),
            Built::Ready(_) => panic!("{:?} has no accounts", self.subject),
        }
    }

    /// An attempt with an hour to live.
    pub(crate) fn attempt(&self, url: &str) -> Attempt {
        if let Built::PerOrigin(channels) = &self.channel {
            channels.lead_to(url);
        }
        attempt(self.clock.now(), self.target(url))
    }

    /// All the ends of a batch, by slot. Fails if one is missing or comes twice.
    pub(crate) async fn deliver(&self, batch: Vec<Attempt>) -> Vec<Report> {
        match &self.channel {
            Built::Ready(channel) => deliver(&**channel, batch).await,
            Built::PerOrigin(channels) => deliver(&*channels.get().await, batch).await,
        }
    }

    pub(crate) async fn one(&self, attempt: Attempt) -> Report {
        self.deliver(vec![attempt]).await.remove(0)
    }

    pub(crate) async fn send(&self, url: &str) -> Report {
        self.one(self.attempt(url)).await
    }
}

/// An attempt with an hour to live.
fn attempt(now: Timestamp, target: Target) -> Attempt {
    let expires_at = now + Duration::from_secs(3600);
    let message = Message {
        id: MessageId(7),
        tenant: TenantId::new("acme"),
        class: "transactional".into(),
        created_at: START,
        expires_at,
        ttl_s: 3600,
        envelope: Envelope::default(),
        content: r#"{"title":"Shipped","body":"Order 91 is on its way"}"#.into(),
    };
    Attempt {
        delivery: DeliveryId(9),
        message: Arc::new(message),
        class: Arc::new(Class::default()),
        target: Arc::new(target),
        number: 1,
        now,
        expires_at,
        is_one_shot: false,
        address_since: None,
        resign: false,
        replays: 0,
        account: None,
        span: None,
        slot: 0,
    }
}

async fn deliver(channel: &dyn Channel, mut batch: Vec<Attempt>) -> Vec<Report> {
    for (slot, attempt) in batch.iter_mut().enumerate() {
        attempt.slot = slot;
    }
    let ends: Mutex<Vec<Option<Report>>> = Mutex::new(vec![None; batch.len()]);
    let done = |finished: Finished| {
        let before = ends.lock().unwrap()[finished.slot].replace(finished.report);
        assert!(before.is_none(), "slot {} ended twice", finished.slot);
    };
    channel.deliver(batch, &done).await;
    let ends = ends.into_inner().unwrap().into_iter();
    ends.map(|end| end.expect("every attempt has an end")).collect()
}
