//! The one way in: validates, normalises and deduplicates messages, then makes them durable. An accepted
//! message is on disk. Sends nothing and resolves no host name.

mod addresses;
mod admit;
mod audience;
mod dedup;
mod hashes;
mod quota;
mod refusal;
mod request;
mod room;
mod template;
mod unstored;

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use aws_lc_rs::hmac;
use bytes::Bytes;
use postrider_core::model::content::{Content, ContentSchema};
use postrider_core::model::message::Envelope;
use postrider_core::model::trace::TraceParent;
use postrider_core::ports::store::{NewAddress, NewDelivery, NewMessage, Store, StoreResult};
use postrider_core::{
    Address, AddressStatus, ChannelIntake, ChannelKind, CheckedAddress, Class, Clock, FieldError,
    LaneKey, RegionNumber, Target, TenantId, Timestamp, model::json_fields,
};
use serde::Deserialize;

use crate::policies::{Policies, Policy};
use crate::template::{CurrentTemplates, RenderPool};
use addresses::targets;
pub use admit::IntakeAnswer;
use admit::RefusedMessage;
pub use audience::WithheldMember;
use dedup::DedupSubject;
pub use quota::{IntakeQuotas, QuotaExcess, QuotaTurn, TenantOverQuota};
pub use refusal::{IntakeRefusal, RefusalKind};
use request::{Audience, SubmittedMessage, is_short_text, shorten};
use room::IntakeRoom;

/// The most addresses that one message is expanded to at the intake.
const ADDRESSES_MAX: usize = 10_000;
const LANES_CACHED_MAX: usize = 10_000;
const LINK_MAX: usize = 2_048;
/// The name of the class that a message gets if it names none.
pub const DEFAULT_CLASS: &str = "transactional";

/// One message as it came in: JSON, and headers.
#[derive(Debug, Clone)]
pub struct Submission {
    pub body: Bytes,
    /// From the `Idempotency-Key` header.
    pub idempotency_key: Option<String>,
    pub traceparent: Option<String>,
}

pub struct MessageIntake {
    store: Arc<dyn Store>,
    /// In the order in which texts list them.
    intakes: Vec<(ChannelKind, Arc<dyn ChannelIntake>)>,
    schema: ContentSchema,
    policies: Arc<Policies>,
    /// The newest first.
    hash_keys: RwLock<Arc<[hmac::Key]>>,
    clock: Arc<dyn Clock>,
    lanes: Mutex<HashMap<LaneKey, Arc<LaneKey>>>,
    room: IntakeRoom,
    quotas: Arc<IntakeQuotas>,
    templates: Arc<CurrentTemplates>,
    renders: RenderPool,
}

impl MessageIntake {
    /// `hash_keys` are for the hashes of endpoints, the newest first.
    pub fn new(
        store: Arc<dyn Store>,
        intakes: Vec<Arc<dyn ChannelIntake>>,
        policies: Arc<Policies>,
        hash_keys: &[Vec<u8>],
    ) -> Self {
        let newest = hash_keys.first().map_or(&[][..], Vec::as_slice);
        Self {
            clock: store.clock(),
            store,
            schema: intakes.iter().map(|intake| (intake.kind(), intake.part_check())).collect(),
            intakes: intakes.into_iter().map(|intake| (intake.kind(), intake)).collect(),
            policies,
            hash_keys: RwLock::new(hashes::hmac_keys(hash_keys)),
            lanes: Mutex::default(),
            room: IntakeRoom::new(seed(newest)),
            quotas: Arc::default(),
            templates: Arc::default(),
            renders: RenderPool::default(),
        }
    }

    /// The tenants that may not add messages.
    pub fn quotas(&self) -> &IntakeQuotas {
        &self.quotas
    }

    /// Reads and checks an address for the registry: an inline address plus `recipient`.
    pub async fn check_address(
        &self,
        tenant: &TenantId,
        json: &[u8],
    ) -> Result<NewAddress, IntakeRefusal> {
        let text =
            std::str::from_utf8(json).map_err(|e| IntakeRefusal::invalid_json(e.to_string()))?;
        let mut value: serde_json::Value =
            serde_json::from_str(text).map_err(|e| IntakeRefusal::invalid_json(e.to_string()))?;
        let recipient = match value.as_object_mut().and_then(|o| o.remove("recipient")) {
            None | Some(serde_json::Value::Null) => None,
            Some(serde_json::Value::String(s)) if is_short_text(&s) => Some(s.into()),
            Some(_) => {
                let allowed = "a string of 1 to 256 bytes without control characters";
                return Err(IntakeRefusal::field("recipient", "something else", allowed));
            }
        };
        let recipient: Option<Arc<str>> = recipient;
        let recipient = match recipient {
            Some(id) => Some(self.policies.audience().canonical(tenant, &id).await?),
            None => None,
        };
        let address = self.address(tenant, &value.to_string()).map_err(IntakeRefusal::invalid)?;
        let hash = self.hash(tenant, &address.locator).await?;
        Ok(NewAddress { tenant: tenant.clone(), recipient, target: address.target, hash })
    }

    async fn prepare(
        &self,
        policy: &Policy,
        tenant: &TenantId,
        submission: &Submission,
    ) -> Result<NewMessage, RefusedMessage> {
        let request = SubmittedMessage::parse(&submission.body, self.clock.wall())?;
        let key = own_key(&request, submission)?;
        let composed = self.compose(policy, tenant, submission, request, key.as_deref()).await;
        composed.map_err(|refusal| {
            let invalid = refusal.kind.is_invalid();
            let key = key.filter(|_| invalid).map(|key| dedup::own_key(tenant, &key, submission));
            RefusedMessage { refusal, key }
        })
    }

    /// Our time for a time of the system's clock.
    fn by_our_time(&self, at: Timestamp) -> Timestamp {
        Timestamp(at.0.saturating_sub(self.clock.wall_offset_ms()))
    }

    async fn compose(
        &self,
        policy: &Policy,
        tenant: &TenantId,
        submission: &Submission,
        request: SubmittedMessage<'_>,
        key: Option<&str>,
    ) -> Result<NewMessage, IntakeRefusal> {
        let class = class(policy, request.class.as_deref())?;
        let text = self.content_text(tenant, &request).await?;
        let content = self.parse_content(&text)?;
        let category = self.category(tenant, &class, request.category.as_deref())?;
        let deliveries = self.deliveries(tenant, &request.to, &class).await?;
        let ttl_s = self.ttl(&request, &class, &deliveries)?;
        self.check_content(tenant, &content, &deliveries)?;
        let subject = DedupSubject {
            tenant,
            own_key: key,
            request: &request,
            submission,
            text: &text,
            content: &content,
            deliveries: &deliveries,
            ttl_s,
            window: policy.limits.dedup_window,
        };
        let keys = subject.keys(|kind| self.channel(kind));
        Ok(NewMessage {
            tenant: tenant.clone(),
            class: class.name.clone(),
            ttl_s,
            now_or_never: policy.limits.now_or_never,
            send_at: request.send_at.map(|at| self.by_our_time(at)),
            content: (&*text).into(),
            dedup: keys.message,
            member_keys: keys.members,
            deliveries,
            envelope: Envelope {
                collapse_key: request.collapse_key,
                idempotency_key: key.map(Into::into),
                priority: request.priority,
                tags: request.tags,
                campaign: request.campaign,
                campaign_run: request.campaign_run,
                category,
                compliance: request.compliance,
                retry: request.retry,
                traceparent: request.traceparent.or_else(|| {
                    let of_call = submission.traceparent.as_deref();
                    of_call.filter(|text| TraceParent::parse(text).is_some()).map(Into::into)
                }),
            },
        })
    }

    async fn deliveries(
        &self,
        tenant: &TenantId,
        to: &Audience<'_>,
        class: &Class,
    ) -> Result<Vec<NewDelivery>, IntakeRefusal> {
        match to {
            Audience::Address { address, fallback } => {
                let mut delivery = self.delivery_to(tenant, address, class, "to.address").await?;
                delivery.alternatives = self.alternatives(tenant, fallback, class).await?;
                Ok(vec![delivery])
            }
            Audience::Recipients(names) => self.recipients(tenant, names, class).await,
        }
    }

    async fn recipients(
        &self,
        tenant: &TenantId,
        names: &[Cow<'_, str>],
        class: &Class,
    ) -> Result<Vec<NewDelivery>, IntakeRefusal> {
        let allowed = || format!("at most {ADDRESSES_MAX} addresses per message");
        if names.len() > ADDRESSES_MAX {
            let found = format!("{} recipients", names.len());
            return Err(IntakeRefusal::field("to.recipients", found, allowed()));
        }
        let mut deliveries = Vec::new();
        let (mut seen, mut canonical) = (HashSet::new(), HashSet::new());
        for name in names.iter().filter(|name| seen.insert(&***name)) {
            let name = self.policies.audience().canonical(tenant, name).await?;
            if !canonical.insert(name.clone()) {
                continue;
            }
            let mut cursor = None;
            loop {
                let page = self.store.addresses(tenant, Some(&name), cursor, 1_000).await?;
                deliveries.extend(page.items.into_iter().filter_map(|a| self.registered(a, class)));
                if deliveries.len() > ADDRESSES_MAX {
                    let found = "too many addresses";
                    return Err(IntakeRefusal::field("to.recipients", found, allowed()));
                }
                cursor = page.next;
                if cursor.is_none() {
                    break;
                }
            }
        }
        if deliveries.is_empty() {
            let allowed = "recipients with at least one active address; register one first";
            return Err(IntakeRefusal::field("to", "no active address", allowed));
        }
        Ok(deliveries)
    }

    fn registered(&self, address: Address, class: &Class) -> Option<NewDelivery> {
        let usable = matches!(address.status, AddressStatus::Active | AddressStatus::Suspect);
        let target = address.target.filter(|_| usable)?;
        let channel = target.channel();
        let provider = self.channel(channel).map_or_else(|| "".into(), |c| c.provider(&target));
        Some(NewDelivery {
            is_wide: self.is_wide(channel, &provider),
            region: self.region(&address.tenant),
            lane: self.lane(&address.tenant, channel, provider, class),
            target: Arc::new(target),
            hash: address.hash,
            recipient: address.recipient,
            address: Some(address.id),
            address_since: Some(address.created_at),
            alternatives: Vec::new(),
        })
    }

    async fn inline(
        &self,
        tenant: &TenantId,
        address: CheckedAddress,
        class: &Class,
    ) -> StoreResult<NewDelivery> {
        let CheckedAddress { target, locator, provider } = address;
        Ok(NewDelivery {
            is_wide: self.is_wide(target.channel(), &provider),
            region: self.region(tenant),
            lane: self.lane(tenant, target.channel(), provider, class),
            hash: self.hash(tenant, &locator).await?,
            target: Arc::new(target),
            recipient: None,
            address: None,
            address_since: None,
            alternatives: Vec::new(),
        })
    }

    fn is_wide(&self, channel: ChannelKind, provider: &str) -> bool {
        self.channel(channel).is_some_and(|intake| intake.traits().is_wide(provider))
    }

    /// The region that the tenant is pinned to.
    fn region(&self, tenant: &TenantId) -> Option<RegionNumber> {
        self.policies.now().limits.tenant_regions.get(tenant).copied()
    }

    fn address(&self, tenant: &TenantId, json: &str) -> Result<CheckedAddress, Vec<FieldError>> {
        #[derive(Deserialize)]
        struct NamedChannel<'a> {
            #[serde(borrow)]
            channel: Option<Cow<'a, str>>,
        }
        let wrong = |found: &str| vec![FieldError::new("channel", found, self.configured(tenant))];
        let allowed = "an object, or the id of an address, adr_…";
        let named: NamedChannel<'_> =
            json_fields::read(json, allowed).map_err(|error| vec![error])?;
        let name = named.channel.ok_or_else(|| wrong("nothing"))?;
        let channel = ChannelKind::parse(&name).and_then(|kind| self.channel(kind));
        let channel = channel.ok_or_else(|| wrong(&shorten(&name)))?;
        match channel.serves(tenant) {
            true => channel.address_for(tenant, json),
            false => Err(wrong(&format!("{name}, which is not configured"))),
        }
    }

    fn channel(&self, kind: ChannelKind) -> Option<&dyn ChannelIntake> {
        self.intakes.iter().find(|(known, _)| *known == kind).map(|(_, intake)| &**intake)
    }

    fn intake(&self, tenant: &TenantId, kind: ChannelKind) -> Option<&dyn ChannelIntake> {
        self.channel(kind).filter(|intake| intake.serves(tenant))
    }

    /// The channels of a tenant, and how to get the others.
    fn configured(&self, tenant: &TenantId) -> String {
        let (ready, mut rest): (Vec<_>, Vec<_>) =
            self.intakes.iter().partition(|(_, intake)| intake.serves(tenant));
        rest.retain(|(_, intake)| intake.traits().has_accounts);
        let names = |intakes: Vec<&(ChannelKind, Arc<dyn ChannelIntake>)>| {
            intakes.iter().map(|(kind, _)| kind.name()).collect::<Vec<_>>().join(", ")
        };
        let ready = format!("one of {}", names(ready));
        match rest.is_empty() {
            true => ready,
            false => format!("{ready}; for {} configure [accounts.NAME]", names(rest)),
        }
    }

    /// The key of a lane, allocated once: lanes are few and messages many.
    fn lane(
        &self,
        tenant: &TenantId,
        channel: ChannelKind,
        provider: Arc<str>,
        class: &Class,
    ) -> Arc<LaneKey> {
        let key = LaneKey { tenant: tenant.clone(), channel, provider, class: class.name.clone() };
        let mut lanes = self.lanes.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(lane) = lanes.get(&key) {
            return lane.clone();
        }
        if lanes.len() >= LANES_CACHED_MAX {
            lanes.clear();
        }
        let lane = Arc::new(key.clone());
        lanes.insert(key, lane.clone());
        lane
    }

    fn ttl(
        &self,
        request: &SubmittedMessage<'_>,
        class: &Class,
        deliveries: &[NewDelivery],
    ) -> Result<u32, IntakeRefusal> {
        let longest =
            |target: &Target| self.channel(target.channel()).map_or(0, |c| c.traits().ttl_s_max);
        let max = targets(deliveries).map(longest).min().unwrap_or(0);
        let Some(asked) = request.ttl_s else { return Ok(class.ttl_s.min(max)) };
        u32::try_from(asked).ok().filter(|ttl| *ttl <= max).ok_or_else(|| {
            let allowed = format!("0 to {max}; 0 means now or never");
            IntakeRefusal::field("ttl_s", asked.to_string(), allowed)
        })
    }

    fn parse_content<'a>(&self, text: &'a str) -> Result<Content<'a>, IntakeRefusal> {
        if json_fields::is_deep(text) {
            let allowed = format!("at most {} levels of objects and lists", json_fields::DEPTH_MAX);
            return Err(IntakeRefusal::field("content", "more levels than anybody reads", allowed));
        }
        let unfit = |error| IntakeRefusal::invalid(below("content", vec![error]));
        let content = self.schema.read(text).map_err(unfit)?;
        match content.url.as_deref().and_then(link_flaw) {
            Some(found) => {
                let allowed =
                    "a link in one line of at most 2048 bytes, such as https://… or /orders/91";
                Err(unfit(FieldError::new("url", found, allowed)))
            }
            None => Ok(content),
        }
    }

    fn check_content(
        &self,
        tenant: &TenantId,
        content: &Content<'_>,
        deliveries: &[NewDelivery],
    ) -> Result<(), IntakeRefusal> {
        let unfit = |errors| IntakeRefusal::invalid(below("content", errors));
        let mut checked: Vec<ChannelKind> = Vec::new();
        for target in targets(deliveries) {
            let kind = target.channel();
            let intake = self.intake(tenant, kind).ok_or_else(|| {
                let found = format!("an address of {kind}, which is not configured");
                IntakeRefusal::field("to", found, self.configured(tenant))
            })?;
            if !checked.contains(&kind) {
                checked.push(kind);
                intake.check(content).map_err(unfit)?;
            }
            intake.check_for(target, content).map_err(unfit)?;
        }
        Ok(())
    }
}

/// A seed that differs from server to server.
fn seed(hash_key: &[u8]) -> u64 {
    hash_key.iter().fold(7, |seed, byte| seed.wrapping_mul(31).wrapping_add(u64::from(*byte)))
}

fn class(policy: &Policy, name: Option<&str>) -> Result<Arc<Class>, IntakeRefusal> {
    let name = name.unwrap_or(DEFAULT_CLASS);
    policy.class(name).cloned().ok_or_else(|| {
        let known = policy.class_names().join(", ");
        IntakeRefusal::field("class", shorten(name), format!("a configured class: {known}"))
    })
}

/// Why nobody should click on this link. Any other scheme is allowed, and so is a path.
fn link_flaw(url: &str) -> Option<&'static str> {
    if url.len() > LINK_MAX {
        return Some("more than 2048 bytes");
    }
    if url.chars().any(|c| c.is_control() || c == ' ') {
        return Some("a blank or line break");
    }
    let scheme = url.split_once(':').map_or("", |(scheme, _)| scheme);
    let runs = ["javascript", "data", "vbscript"].iter().any(|s| scheme.eq_ignore_ascii_case(s));
    runs.then_some("a link that runs code")
}

/// The caller's key, from the header or the body.
fn own_key<'a>(
    request: &'a SubmittedMessage<'_>,
    submission: &'a Submission,
) -> Result<Option<String>, IntakeRefusal> {
    let header = submission.idempotency_key.as_deref();
    match (header, request.idempotency_key.as_deref()) {
        (Some(a), Some(b)) if a != b => Err(IntakeRefusal::field(
            "idempotency_key",
            shorten(b),
            "the same as the Idempotency-Key header, or only one of the two",
        )),
        (Some(key), _) if !is_short_text(key) => {
            let found = format!("{} bytes", key.len());
            Err(IntakeRefusal::field("Idempotency-Key", found, "1 to 256 printable characters"))
        }
        (key, other) => Ok(key.or(other).map(str::to_owned)),
    }
}

fn below(prefix: &str, errors: Vec<FieldError>) -> Vec<FieldError> {
    errors.into_iter().map(|error| error.below(prefix)).collect()
}
