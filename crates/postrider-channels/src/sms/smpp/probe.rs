//! Checks whether a message centre accepts our bind. Sends no message.

use tokio::time::Instant;

use super::{Smsc, SmscOutcome, pdu};
use crate::accounts::Material;
use crate::accounts::health::{AccountSecret, Finding, Probe};

impl Smsc {
    pub(in crate::sms) fn password(&self) -> &Material<String> {
        &self.password
    }

    async fn visit(&self, deadline: Instant) -> Result<(), SmscOutcome> {
        let link = self.bind().await?;
        // The answer to the unbind does not matter.
        let _ = link.ask(pdu::UNBIND, Vec::new(), deadline).await;
        link.close();
        Ok(())
    }
}

pub(in crate::sms) async fn examine(
    smsc: &Smsc,
    secrets: &[AccountSecret<'_>],
    probe: &Probe,
) -> Vec<Finding> {
    let remedy = "put the message centre's current password where the credential says";
    smsc.trust(|| probe.wiring.pool.tls_without_http());
    let place = format!("{}:{}", smsc.config.host, smsc.config.port);
    let bind = async { vec![judge(&place, smsc.visit(probe.deadline()).await.err().as_ref())] };
    probe.examine(secrets, remedy, ("smsc", "the message centre"), bind).await
}

fn judge(place: &str, end: Option<&SmscOutcome>) -> Finding {
    let fail = |found: &str, remedy| Finding::fail("smsc", format!("{place}: {found}"), remedy);
    match end {
        None => Finding::ok("smsc", format!("{place} accepts the bind")),
        // ESME_RBINDFAIL, ESME_RINVPASWD, ESME_RINVSYSID
        Some(SmscOutcome::Refused(status @ (0x0d..=0x0f))) => fail(
            &format!("refuses system id and password (0x{status:02x})"),
            "ask its operator for `user`, the password and system_type",
        ),
        // ESME_RALYBND
        Some(SmscOutcome::Refused(0x05)) => Finding::warn(
            "smsc",
            format!("{place}: already bound, by the running server perhaps"),
            "nothing, if that is so: the message centre allows one connection at a time",
        ),
        Some(SmscOutcome::Refused(status)) => {
            fail(&format!("refuses the bind (0x{status:02x})"), "ask its operator")
        }
        Some(SmscOutcome::NotSent { detail, .. } | SmscOutcome::Unopened { detail, .. }) => fail(
            &format!("unreachable: {detail}"),
            "check that it runs, that `host` and `port` are right, and that it allows this machine's address",
        ),
        Some(other) => fail(&format!("{other:?}"), "ask its operator"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::accounts::health::Verdict;

    #[test]
    fn a_bind_that_is_refused_names_what_to_compare() {
        let verdict = |end: SmscOutcome| judge("smsc:2775", Some(&end)).verdict;
        assert_eq!(judge("smsc:2775", None).verdict, Verdict::Ok);
        assert_eq!(verdict(SmscOutcome::Refused(0x0e)), Verdict::Fail);
        assert_eq!(verdict(SmscOutcome::Refused(0x05)), Verdict::Warn);
        let closed = SmscOutcome::NotSent { code: "connect", detail: "connection refused".into() };
        let found = judge("smsc:2775", Some(&closed));
        assert!(found.found.contains("unreachable"), "{found:?}");
    }
}
