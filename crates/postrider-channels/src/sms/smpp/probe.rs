//! Whether a message centre lets us in: bind and unbind, and no message.

use tokio::time::Instant;

use super::{Smsc, SmscOutcome, pdu};
use crate::accounts::Material;
use crate::accounts::health::{self, Finding, Probe};

impl Smsc {
    pub(in crate::sms) fn password(&self) -> &Material<String> {
        &self.password
    }

    async fn visit(&self, deadline: Instant) -> Result<(), SmscOutcome> {
        let link = self.bind().await?;
        // Whether it says good-bye, too, does not matter.
        let _ = link.ask(pdu::UNBIND, Vec::new(), deadline).await;
        link.close();
        Ok(())
    }
}

pub(in crate::sms) async fn examine(smsc: &Smsc, probe: &Probe) -> Vec<Finding> {
    let remedy = "put the message centre's present password where the credential says";
    let (known, finding) = health::read("credential", &smsc.password, remedy).await;
    let mut findings = vec![finding];
    if known.is_none() {
        return findings;
    }
    if probe.offline {
        findings.push(Finding::skipped("smsc", "the message centre is not visited: --offline"));
        return findings;
    }
    let place = format!("{}:{}", smsc.config.host, smsc.config.port);
    findings.push(judge(&place, smsc.visit(probe.deadline()).await.err().as_ref()));
    findings
}

fn judge(place: &str, end: Option<&SmscOutcome>) -> Finding {
    let fail = |found: &str, remedy| Finding::fail("smsc", format!("{place}: {found}"), remedy);
    match end {
        None => Finding::ok("smsc", format!("{place} lets us bind")),
        // ESME_RBINDFAIL, ESME_RINVPASWD, ESME_RINVSYSID
        Some(SmscOutcome::Refused(status @ (0x0d..=0x0f))) => fail(
            &format!("refuses system id and password (0x{status:02x})"),
            "compare `user`, the password and system_type with what its operator says",
        ),
        // ESME_RALYBND
        Some(SmscOutcome::Refused(0x05)) => Finding::warn(
            "smsc",
            format!("{place}: already bound, by the running server perhaps"),
            "nothing, if that is so: it allows one connection at a time",
        ),
        Some(SmscOutcome::Refused(status)) => {
            fail(&format!("refuses the bind (0x{status:02x})"), "ask its operator")
        }
        Some(SmscOutcome::NotSent { detail, .. }) => fail(
            &format!("unreachable: {detail}"),
            "is it up, are `host` and `port` right, and is this machine's address let in?",
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
