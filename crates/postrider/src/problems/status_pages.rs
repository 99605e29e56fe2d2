//! The status pages of known providers.

/// Parts of hosts and accounts' kinds, with the page.
const HOSTS: [(&str, &str); 12] = [
    ("fcm.googleapis.com", "https://status.firebase.google.com/"),
    ("push.services.mozilla.com", "https://status.mozilla.org/"),
    ("notify.windows.com", "https://status.azure.com/"),
    ("push.apple.com", "https://developer.apple.com/system-status/"),
    ("hooks.slack.com", "https://slack-status.com/"),
    ("discord.com", "https://discordstatus.com/"),
    ("webhook.office.com", "https://status.cloud.microsoft/"),
    ("api.sendgrid.com", "https://status.sendgrid.com/"),
    ("amazonaws.com", "https://health.aws.amazon.com/health/status"),
    ("api.twilio.com", "https://status.twilio.com/"),
    ("api.nexmo.com", "https://vonageapi.statuspage.io/"),
    ("events.pagerduty.com", "https://status.pagerduty.com/"),
];

const CHANNELS: [(&str, &str); 2] = [
    ("fcm", "https://status.firebase.google.com/"),
    ("apns", "https://developer.apple.com/system-status/"),
];

/// Where the provider says whether it works, if that is known.
pub(crate) fn status_page(channel: &str, provider: &str) -> Option<&'static str> {
    let host = provider.split("://").nth(1).unwrap_or(provider);
    let host = host.split([':', '/']).next().unwrap_or(host);
    let is_of = |known: &str| host == known || host.ends_with(&format!(".{known}"));
    let by_host = HOSTS.iter().find(|(known, _)| is_of(known));
    let found = by_host.or_else(|| CHANNELS.iter().find(|(known, _)| *known == channel));
    found.map(|(_, page)| *page)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_or_its_channel_leads_to_the_page() {
        let aws = "https://email.eu-west-1.amazonaws.com";
        assert_eq!(status_page("email", aws), Some("https://health.aws.amazon.com/health/status"));
        assert_eq!(status_page("fcm", "my-account"), Some("https://status.firebase.google.com/"));
        let mozilla = "https://updates.push.services.mozilla.com:443";
        assert_eq!(status_page("webpush", mozilla), Some("https://status.mozilla.org/"));
        assert_eq!(status_page("webhook", "https://notslack-status.com"), None);
        assert_eq!(status_page("webhook", "https://evil-hooks.slack.com"), None);
    }
}
