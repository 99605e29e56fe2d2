//! Checks a store in Redis: whether it can be reached and used, and what its settings promise.

use postrider_channels::accounts::health::Finding;
use postrider_store::redis::{RedisReport, examine as examine_servers};

use super::report::DoctorReport;
use crate::config::Config;
use crate::serve::parts::redis_options;

pub(super) async fn examine(config: &Config, report: &mut DoctorReport) {
    let options = match redis_options(&config.store).await {
        Ok(options) => options,
        Err(error) => {
            let remedy = "correct store.url or store.password; docs/redis.md has examples";
            report.add(Finding::fail("store", format!("{error:#}"), remedy));
            return;
        }
    };
    let name = options.shown();
    match examine_servers(options).await {
        Ok(found) => judge(&name, &found).into_iter().for_each(|finding| report.add(finding)),
        Err(error) => {
            let remedy =
                "start the server, or correct store.url, store.password or the rights of its user";
            report.add(Finding::fail("store", error.to_string(), remedy));
        }
    }
}

fn judge(name: &str, report: &RedisReport) -> Vec<Finding> {
    let settings = &report.settings;
    let mut findings = Vec::new();
    let layout = match report.layout {
        None => "it has no store yet".to_owned(),
        Some(layout) => format!("layout {layout}"),
    };
    let found = format!("Redis {} at {name}; {layout}", settings.version);
    findings.push(match (&report.refusal, report.layout) {
        (Some(why), _) => {
            Finding::fail("store", format!("{found}; {why}"), "docs/redis.md says what is needed")
        }
        (None, Some(layout)) if layout > report.layout_known => Finding::fail(
            "store",
            format!("{found}, and this program knows up to {}", report.layout_known),
            "use the version that wrote it, or a newer one",
        ),
        _ => Finding::ok("store", found),
    });
    findings.push(Finding::ok("store.promise", &report.promise));
    for gap in settings.gaps() {
        findings.push(Finding::warn(format!("store.{}", gap.code), gap.what, gap.remedy));
    }
    findings
}
