//! Reads `Retry-After`: seconds, or a date in any of HTTP's three forms. Decides nothing: the
//! caller says what the wait is for, and how long is too long.

use std::time::Duration;

use crate::model::time::{Timestamp, civil_from_days, days_from_civil};

/// The longest wait that is told apart from "for ever": a hundred years.
pub const LONGEST: Duration = Duration::from_secs(100 * 366 * 86_400);

/// How long to wait from `now` on. Zero if the time is past or negative, [`LONGEST`] at most;
/// `None` if the text is neither seconds nor a date.
pub fn parse(text: &str, now: Timestamp) -> Option<Duration> {
    let text = text.trim();
    seconds(text).or_else(|| Some(date(text, now)?.since(now))).map(|wait| wait.min(LONGEST))
}

/// Whole seconds; a fraction, which some peers send, is rounded up.
fn seconds(text: &str) -> Option<Duration> {
    let (negative, digits) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, "0"));
    if !all_digits(whole) || !all_digits(fraction) {
        return None;
    }
    if negative {
        return Some(Duration::ZERO);
    }
    let whole: u64 = whole.parse().unwrap_or(u64::MAX);
    let up = u64::from(fraction.bytes().any(|b| b != b'0'));
    Some(Duration::from_secs(whole.saturating_add(up)))
}

/// A date in any of HTTP's three forms; `now` tells the century of the oldest of them.
pub fn date(text: &str, now: Timestamp) -> Option<Timestamp> {
    imf_fixdate(text).or_else(|| rfc_850(text, now)).or_else(|| asctime(text))
}

/// `Sun, 06 Nov 1994 08:49:37 GMT`
fn imf_fixdate(text: &str) -> Option<Timestamp> {
    let (day_name, rest) = text.split_once(", ")?;
    let [day, month, year, time, zone] = fields(rest, ' ')?;
    (is_weekday(day_name, 3) && is_gmt(zone)).then_some(())?;
    at(number(year, 4)?, month, number(day, 2)?, time)
}

/// `Sunday, 06-Nov-94 08:49:37 GMT`: a year that seems more than 50 years ahead is of the past.
fn rfc_850(text: &str, now: Timestamp) -> Option<Timestamp> {
    let (day_name, rest) = text.split_once(", ")?;
    let [date, time, zone] = fields(rest, ' ')?;
    let [day, month, year] = fields(date, '-')?;
    (is_weekday(day_name, 6) && is_gmt(zone)).then_some(())?;
    let this_year = civil_from_days(now.0.div_euclid(86_400_000)).0;
    let mut year = this_year - this_year.rem_euclid(100) + number(year, 2)?;
    if year > this_year + 50 {
        year -= 100;
    } else if year <= this_year - 50 {
        year += 100;
    }
    at(year, month, number(day, 2)?, time)
}

/// `Sun Nov  6 08:49:37 1994`
fn asctime(text: &str) -> Option<Timestamp> {
    let mut parts = text.split_ascii_whitespace();
    let (day_name, month, day) = (parts.next()?, parts.next()?, parts.next()?);
    let (time, year) = (parts.next()?, parts.next()?);
    (parts.next().is_none() && is_weekday(day_name, 3)).then_some(())?;
    at(number(year, 4)?, month, number(day, day.len().clamp(1, 2))?, time)
}

fn at(year: i64, month: &str, day: i64, time: &str) -> Option<Timestamp> {
    const MONTHS: [&str; 12] =
        ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let month = MONTHS.iter().position(|m| m.eq_ignore_ascii_case(month))? as u32 + 1;
    let day = u32::try_from(day).ok()?;
    let days = days_from_civil(year, month, day);
    // The day exists in its month exactly if it comes back unchanged.
    (civil_from_days(days) == (year, month, day)).then_some(())?;
    let [h, m, s] = fields(time, ':')?;
    let (h, m, s) = (number(h, 2)?, number(m, 2)?, number(s, 2)?);
    (h < 24 && m < 60 && s <= 60).then_some(())?;
    Some(Timestamp::from_secs(days * 86_400 + h * 3600 + m * 60 + s))
}

fn fields<const N: usize>(text: &str, separator: char) -> Option<[&str; N]> {
    let mut parts = text.split(separator);
    let mut found = [""; N];
    for slot in &mut found {
        *slot = parts.next()?;
    }
    parts.next().is_none().then_some(found)
}

fn number(text: &str, digits: usize) -> Option<i64> {
    (text.len() == digits && all_digits(text)).then(|| text.parse().ok())?
}

fn all_digits(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit())
}

fn is_gmt(zone: &str) -> bool {
    zone.eq_ignore_ascii_case("GMT") || zone.eq_ignore_ascii_case("UTC")
}

/// Whether it is a name of a day, of at least that length. It need not be the right one: the date
/// counts.
fn is_weekday(name: &str, at_least: usize) -> bool {
    const DAYS: [&str; 7] =
        ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"];
    let fits = |day: &&str| day.get(..name.len()).is_some_and(|d| d.eq_ignore_ascii_case(name));
    name.len() >= at_least && DAYS.iter().any(fits)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 1994-11-06T08:49:37Z
    const THEN: Timestamp = Timestamp(784_111_777_000);

    fn parsed(text: &str) -> Option<u64> {
        parse(text, THEN).map(|d| d.as_secs())
    }

    #[test]
    fn seconds_are_read() {
        assert_eq!(parsed("120"), Some(120));
        assert_eq!(parsed("  7 "), Some(7));
        assert_eq!(parsed("0"), Some(0));
        assert_eq!(parsed("+3"), Some(3));
        assert_eq!(parsed("0.35"), Some(1));
        assert_eq!(parsed("2.0"), Some(2));
    }

    #[test]
    fn the_three_date_forms_mean_the_same() {
        for text in [
            "Sun, 06 Nov 1994 08:50:37 GMT",
            "Sunday, 06-Nov-94 08:50:37 GMT",
            "Sun Nov  6 08:50:37 1994",
            "Sun Nov 06 08:50:37 1994",
        ] {
            assert_eq!(parsed(text), Some(60), "{text}");
        }
    }

    #[test]
    fn the_past_is_now() {
        for text in ["-1", "-99999999999999999999999", "Sun, 06 Nov 1994 08:49:36 GMT"] {
            assert_eq!(parsed(text), Some(0), "{text}");
        }
    }

    #[test]
    fn absurd_waits_are_the_longest_wait() {
        for text in ["1000000000000000000000000000000", "Fri, 31 Dec 9999 23:59:59 GMT"] {
            assert_eq!(parse(text, THEN), Some(LONGEST), "{text}");
        }
    }

    #[test]
    fn two_digit_years_are_at_most_fifty_ahead() {
        let in_2026 = Timestamp(1_794_722_400_000);
        let wait = |text| parse(text, in_2026).map(|d| d.as_secs() / 31_556_952);
        assert_eq!(wait("Sunday, 15-Nov-26 06:00:00 GMT"), Some(0));
        assert_eq!(wait("Sunday, 15-Nov-76 06:00:01 GMT"), Some(50));
        assert_eq!(wait("Sunday, 15-Nov-77 06:00:00 GMT"), Some(0), "1977");
        let in_1994 = parsed("Thursday, 06-Nov-03 08:49:37 GMT").unwrap();
        assert_eq!(in_1994, 9 * 365 * 86_400 + 2 * 86_400, "2003");
        let years = |text| parsed(text).map(|secs| (secs + 86_400) / 31_556_952);
        assert_eq!(years("Sunday, 06-Nov-44 08:49:37 GMT"), Some(50), "2044");
        assert_eq!(years("Sunday, 06-Nov-45 08:49:37 GMT"), Some(0), "1945");
    }

    #[test]
    fn garbage_is_nothing() {
        for text in [
            "",
            "-",
            "soon",
            "1e30",
            "1.2.3",
            "12 s",
            "Sun, 06 Nov 1994 08:49:37",
            "Sun, 06 Nov 1994 08:49:37 CET",
            "Sun, 31 Feb 1994 08:49:37 GMT",
            "Sun, 06 Nov 1994 24:00:00 GMT",
            "Xyz, 06 Nov 1994 08:49:37 GMT",
            "06 Nov 1994 08:49:37 GMT",
            "Sun, 06-Nov-94 08:49:37 GMT",
            "Sun Nov 6 1994",
            "２０",
        ] {
            assert_eq!(parsed(text), None, "{text:?}");
        }
    }
}
