//! The findings, as a table for people or as JSON for scripts.

use std::fmt::Write as _;

use postrider_channels::accounts::health::{Finding, Verdict};
use serde_json::json;

#[derive(Debug, Default)]
pub(super) struct DoctorReport {
    findings: Vec<Finding>,
}

impl DoctorReport {
    pub(super) fn add(&mut self, finding: Finding) {
        self.findings.push(finding);
    }

    pub(super) fn is_well(&self, strict: bool) -> bool {
        let bad = if strict { Verdict::Warn } else { Verdict::Fail };
        self.findings.iter().all(|finding| finding.verdict < bad)
    }

    fn count(&self, verdict: Verdict) -> usize {
        self.findings.iter().filter(|finding| finding.verdict == verdict).count()
    }

    /// One line per finding, with its remedy below it.
    pub(super) fn text(&self) -> String {
        let width = self.findings.iter().map(|f| f.check.chars().count()).max().unwrap_or_default();
        let mut text = String::new();
        for finding in &self.findings {
            let word = match finding.verdict {
                Verdict::Ok => "ok",
                Verdict::Skipped => "skipped",
                Verdict::Warn => "WARN",
                Verdict::Fail => "FAIL",
            };
            // Writing to a string cannot fail.
            let _ = writeln!(text, "{word:<8} {:<width$}  {}", finding.check, finding.found);
            if let Some(remedy) = &finding.remedy {
                let _ = writeln!(text, "{:<8} {:<width$}  -> {remedy}", "", "");
            }
        }
        let (failed, warned) = (self.count(Verdict::Fail), self.count(Verdict::Warn));
        let _ =
            write!(text, "\n{} checks: {failed} failed, {warned} warnings", self.findings.len());
        text
    }

    pub(super) fn json(&self) -> String {
        let report = json!({
            "ok": self.is_well(false),
            "failed": self.count(Verdict::Fail),
            "warned": self.count(Verdict::Warn),
            "findings": self.findings,
        });
        format!("{report:#}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_says_verdict_check_finding_and_remedy() {
        let mut report = DoctorReport::default();
        report.add(Finding::ok("config", "postrider.toml is valid"));
        report.add(Finding::fail("clock", "10 min ahead", "run NTP"));
        report.add(Finding::skipped("accounts", "none"));
        insta::assert_snapshot!(report.text(), @r"
        ok       config    postrider.toml is valid
        FAIL     clock     10 min ahead
                           -> run NTP
        skipped  accounts  none

        3 checks: 1 failed, 0 warnings
        ");
        assert!(!report.is_well(false));
    }

    #[test]
    fn warnings_are_failures_only_if_strict() {
        let mut report = DoctorReport::default();
        report.add(Finding::warn("network", "private targets are allowed", "do not"));
        report.add(Finding::skipped("clock", "--offline"));
        assert_eq!((report.is_well(false), report.is_well(true)), (true, false));
    }
}
