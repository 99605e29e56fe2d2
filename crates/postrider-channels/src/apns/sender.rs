//! An account in use: its credential, its connections, and whether it works.

use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use postrider_core::Timestamp;

use super::key::ApnsCredential;
use super::token::{ApnsToken, ProviderTokens};
use super::{ApnsAccount, ApnsEnvironment};
use crate::Error;
use crate::accounts::Material;
use crate::deliver::{Ended, ended};
use crate::pool::{Endpoint, Pool};

/// This long after Apple accepted a notification, a refused device is not the account's fault.
const WORKS_FOR: Duration = Duration::from_secs(3600);

pub struct ApnsSender {
    pub(super) settings: ApnsAccount,
    /// None with a certificate.
    pub(super) tokens: Option<Arc<ProviderTokens>>,
    pub(super) credential: Material<ApnsCredential>,
    connections: RwLock<Option<Arc<ApnsConnections>>>,
    worked_at: AtomicI64,
}

/// The connections of one credential.
pub(super) struct ApnsConnections {
    credential: Arc<ApnsCredential>,
    production: Endpoint,
    sandbox: Endpoint,
}

impl ApnsSender {
    pub(super) fn new(settings: ApnsAccount, tokens: Option<Arc<ProviderTokens>>) -> Self {
        let credential = Material::new(settings.credential.clone(), ApnsCredential::parse);
        let (connections, worked_at) = (RwLock::new(None), AtomicI64::new(i64::MIN));
        Self { settings, tokens, credential, connections, worked_at }
    }

    pub(super) fn may_send_to(&self, topic: &str) -> bool {
        let topics = &self.settings.topics;
        topics.is_empty() || topics.iter().any(|own| own == topic)
    }

    pub(super) fn worked(&self, now: Timestamp) {
        self.worked_at.store(now.0, Ordering::Relaxed);
    }

    pub(super) fn works(&self, now: Timestamp) -> bool {
        let at = self.worked_at.load(Ordering::Relaxed);
        at != i64::MIN && now.since(Timestamp(at)) < WORKS_FOR
    }

    /// The connections with the current credential.
    pub(super) async fn connections(&self, pool: &Pool) -> Result<Arc<ApnsConnections>, String> {
        let credential = self.credential.get().await?;
        let known = self.connections.read().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some(connections) =
            known.filter(|connections| Arc::ptr_eq(&connections.credential, &credential))
        {
            return Ok(connections);
        }
        let connections = Arc::new(self.open(pool, credential)?);
        *self.connections.write().unwrap_or_else(PoisonError::into_inner) =
            Some(connections.clone());
        Ok(connections)
    }

    fn open(
        &self,
        pool: &Pool,
        credential: Arc<ApnsCredential>,
    ) -> Result<ApnsConnections, String> {
        let settings = &self.settings;
        let (name, identity) = match (&*credential, &settings.team_id, &settings.key_id) {
            (ApnsCredential::Key(_), Some(team), Some(key)) => (format!("{team} {key}"), None),
            (ApnsCredential::Key(_), ..) => {
                return Err("a signing key needs team_id and key_id beside it".to_owned());
            }
            (ApnsCredential::Certificate(own), None, None) => {
                // A renewed certificate must not use the connections of the old one.
                (format!("certificate {:p}", Arc::as_ptr(&credential)), Some(own))
            }
            (ApnsCredential::Certificate(_), ..) => {
                return Err(
                    "team_id and key_id belong to a signing key, not to a certificate".to_owned()
                );
            }
        };
        let endpoint = |url: &str| {
            pool.private_endpoint(url, &name, identity).map_err(|error| error.to_string())
        };
        let production = endpoint(&settings.endpoint)?;
        let sandbox = endpoint(&settings.sandbox_endpoint)?;
        Ok(ApnsConnections { credential, production, sandbox })
    }
}

impl ApnsConnections {
    pub(super) fn endpoint(
        &self,
        environment: ApnsEnvironment,
        device: &str,
    ) -> Result<Endpoint, Ended> {
        let host = match environment {
            ApnsEnvironment::Production => &self.production,
            ApnsEnvironment::Sandbox => &self.sandbox,
        };
        host.at(&format!("/3/device/{device}"))
            .map_err(|_| ended(postrider_core::Outcome::DropMessage, "bad_token"))
    }

    /// The provider token; none with a certificate.
    pub(super) fn token(
        &self,
        sender: &ApnsSender,
        now: Timestamp,
        resign: bool,
    ) -> Result<Option<Arc<ApnsToken>>, Error> {
        match (&*self.credential, &sender.tokens) {
            (ApnsCredential::Key(key), Some(tokens)) => tokens.get(key, now, resign).map(Some),
            _ => Ok(None),
        }
    }
}
