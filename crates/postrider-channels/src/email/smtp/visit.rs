//! A conversation with the relay that hands over nothing: greeting, TLS, log-in, good-bye. Says how far it
//! came; uses none of the conversations that mails go through.

use postrider_core::Timestamp;
use tokio::time::Instant;

use super::{End, Relay};

/// What the relay showed of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Visit {
    /// How long its certificate is good; none in the clear.
    pub certificate_until: Option<Timestamp>,
    pub logged_in: bool,
    /// It would have had TLS, had it been asked.
    pub offers_tls: bool,
}

impl Relay {
    pub async fn visit(&self, deadline: Instant) -> Result<Visit, End> {
        let session = self.open(deadline).await?;
        let visit = Visit {
            certificate_until: session.certificate_until,
            logged_in: self.secret.is_some(),
            offers_tls: session.server.starttls,
        };
        session.quit().await;
        Ok(visit)
    }

    /// What it logs in with, where it does.
    pub(crate) fn secret(&self) -> Option<&crate::accounts::Material<String>> {
        self.secret.as_ref()
    }
}
