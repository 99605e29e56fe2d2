//! Quiet hours over two years of zone changes in ten zones, against a second way of finding out: walking through time
//! minute by minute and looking at the local clock.

use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use postrider_core::model::recipient::{AddressFacts, RecipientProfile};
use postrider_core::policy::audience::*;
use postrider_core::{ChannelKind, Timestamp};

/// A zone, and the first of the two years: half an hour of summer time, half-hour offsets, a skipped midnight, days
/// that do not exist or are repeated, changes twice a year and none.
const ZONES: [(&str, i16); 10] = [
    ("Europe/Berlin", 2025),
    ("America/New_York", 2025),
    ("Australia/Lord_Howe", 2025),
    ("Asia/Kolkata", 2025),
    ("Asia/Beirut", 2025),
    ("America/Havana", 2025),
    ("Pacific/Apia", 2011),
    ("Africa/Casablanca", 2025),
    ("America/St_Johns", 2025),
    ("Pacific/Kwajalein", 1993),
];

const INTERVALS: [&str; 6] = [
    r#"{"from":"22:00","to":"07:00"}"#,
    r#"{"from":"00:00","to":"00:30"}"#,
    r#"{"from":"02:15","to":"02:45"}"#,
    r#"{"from":"01:30","to":"03:00"}"#,
    r#"{"days":["sat","sun"],"from":"00:00","to":"24:00"}"#,
    r#"{"days":["fri"],"from":"23:45","to":"00:15"}"#,
];

fn intervals(texts: &[&str]) -> Vec<QuietInterval> {
    texts.iter().map(|text| serde_json::from_str(text).unwrap()).collect()
}

fn zone(name: &str) -> ZoneName {
    ZoneName::parse(name).unwrap()
}

fn at(text: &str) -> Timestamp {
    Timestamp(text.parse::<jiff::Timestamp>().unwrap().as_millisecond())
}

/// The instants of all changes of a zone's clock in two years.
fn changes(name: &str, year: i16) -> Vec<i64> {
    let zone = TimeZone::get(name).unwrap();
    let edge = |year| zone.to_timestamp(DateTime::new(year, 1, 1, 0, 0, 0, 0).unwrap()).unwrap();
    let (from, until) = (edge(year), edge(year + 2));
    let all = zone.following(from).map(|change| change.timestamp());
    all.take_while(|at| *at < until).map(|at| at.as_millisecond()).collect()
}

/// Whether the local clock shows a time of the interval, seen from nothing but the clock.
fn clock_is_in(interval: &QuietInterval, zone: &TimeZone, now: i64) -> bool {
    let local = zone.to_datetime(jiff::Timestamp::from_millisecond(now).unwrap());
    let minute = local.time().strftime("%H:%M").to_string();
    let minute = DayMinute::parse(&minute).unwrap();
    let is_on = |date: jiff::civil::Date| {
        let day = LocalDay::ALL[date.weekday().to_monday_zero_offset() as usize];
        interval.days.is_empty() || interval.days.contains(&day)
    };
    match interval.from < interval.to {
        true => is_on(local.date()) && interval.from <= minute && minute < interval.to,
        false => {
            is_on(local.date()) && interval.from <= minute
                || minute < interval.to && is_on(local.date().yesterday().unwrap())
        }
    }
}

/// Whether the local time is shown twice, or the clock jumped over something on this local day: there the rule for
/// boundaries decides, not the clock.
fn is_near_a_change(changes: &[i64], now: i64) -> bool {
    changes.iter().any(|change| (now - change).abs() <= 26 * 3_600_000)
}

#[test]
fn two_years_in_ten_zones_are_quiet_when_the_local_clock_says_so() {
    let mut compared = 0;
    for (name, year) in ZONES {
        let (clock, changes) = (TimeZone::get(name).unwrap(), changes(name, year));
        let first = clock.to_timestamp(DateTime::new(year, 1, 1, 0, 0, 0, 0).unwrap()).unwrap();
        for text in INTERVALS {
            let interval = intervals(&[text]);
            // 67 minutes are no part of a day: all times of day are met.
            for step in 0..(2 * 365 * 24 * 60 / 67) {
                let now = first.as_millisecond() + step * 67 * 60_000;
                if is_near_a_change(&changes, now) {
                    continue;
                }
                compared += 1;
                let found = quiet_until(&interval, &zone(name), Timestamp(now));
                let expected = clock_is_in(&interval[0], &clock, now);
                assert_eq!(found.is_some(), expected, "{name} {text} at {}", Timestamp(now));
            }
        }
    }
    assert!(compared > 500_000, "{compared} times compared");
}

#[test]
fn around_every_change_quiet_time_is_whole_and_ends_when_it_says() {
    let mut seen = 0;
    for (name, year) in ZONES {
        let (clock, zone) = (TimeZone::get(name).unwrap(), zone(name));
        for change in changes(name, year) {
            seen += 1;
            for text in INTERVALS {
                let interval = intervals(&[text]);
                let quiet = |now: i64| quiet_until(&interval, &zone, Timestamp(now));
                for minute in -30 * 60..30 * 60 {
                    let now = change + minute * 60_000;
                    let Some(end) = quiet(now) else {
                        // Nobody is disturbed at a time that their own clock calls quiet.
                        let shown = clock_is_in(&interval[0], &clock, now);
                        assert!(!shown, "{name} {text}: not quiet at {}", Timestamp(now));
                        continue;
                    };
                    assert!(
                        end.0 > now && quiet(end.0).is_none(),
                        "{name} {text} {}",
                        Timestamp(now)
                    );
                    assert!(end.0 - now <= 50 * 3_600_000, "{name} {text}: no end in sight");
                    assert_eq!(quiet(end.0 - 1).map(|end| end.0), Some(end.0), "{name} {text}");
                }
            }
        }
    }
    assert!(seen > 30, "only {seen} changes");
}

#[test]
fn boundaries_in_skipped_and_repeated_hours() {
    // Zone, interval, a time in it, its end.
    let table = [
        // 02:00 to 03:00 does not exist on 2026-03-29: an end in it is 03:00 summer time.
        (
            "Europe/Berlin",
            r#"{"from":"01:00","to":"02:30"}"#,
            "2026-03-29T00:30:00Z",
            Some("2026-03-29T01:00:00Z"),
        ),
        // Quiet that begins and ends in the gap is nothing.
        ("Europe/Berlin", r#"{"from":"02:10","to":"02:50"}"#, "2026-03-29T01:00:00Z", None),
        (
            "Europe/Berlin",
            r#"{"from":"02:30","to":"04:00"}"#,
            "2026-03-29T01:00:00Z",
            Some("2026-03-29T02:00:00Z"),
        ),
        // 02:00 to 03:00 comes twice on 2026-10-25: quiet from the first 02:30 ...
        (
            "Europe/Berlin",
            r#"{"from":"02:30","to":"05:00"}"#,
            "2026-10-25T00:30:00Z",
            Some("2026-10-25T04:00:00Z"),
        ),
        ("Europe/Berlin", r#"{"from":"02:30","to":"05:00"}"#, "2026-10-25T00:29:59Z", None),
        // ... and up to the second 02:30.
        (
            "Europe/Berlin",
            r#"{"from":"01:00","to":"02:30"}"#,
            "2026-10-25T01:29:59Z",
            Some("2026-10-25T01:30:00Z"),
        ),
        // Midnight of 2026-03-08 does not exist in Havana.
        (
            "America/Havana",
            r#"{"from":"00:00","to":"06:00"}"#,
            "2026-03-08T05:00:00Z",
            Some("2026-03-08T10:00:00Z"),
        ),
        (
            "America/Havana",
            r#"{"from":"20:00","to":"24:00"}"#,
            "2026-03-08T04:59:59Z",
            Some("2026-03-08T05:00:00Z"),
        ),
        // 30 minutes are skipped on Lord Howe, from 02:00 on 2025-10-05.
        (
            "Australia/Lord_Howe",
            r#"{"from":"01:00","to":"02:15"}"#,
            "2025-10-04T15:29:00Z",
            Some("2025-10-04T15:30:00Z"),
        ),
        // Samoa had no 2011-12-30: the night of the 29th ends on the 31st.
        (
            "Pacific/Apia",
            r#"{"from":"22:00","to":"07:00"}"#,
            "2011-12-30T09:00:00Z",
            Some("2011-12-30T17:00:00Z"),
        ),
    ];
    for (name, text, now, expected) in table {
        let found = quiet_until(&intervals(&[text]), &zone(name), at(now));
        assert_eq!(found, expected.map(at), "{name} {text} at {now}");
    }
}

#[test]
fn intervals_that_touch_are_one_and_the_end_is_spread() {
    let both = intervals(&[r#"{"from":"22:00","to":"24:00"}"#, r#"{"from":"00:00","to":"06:30"}"#]);
    let end = quiet_until(&both, &zone("Asia/Kolkata"), at("2026-05-01T17:00:00Z"));
    assert_eq!(end, Some(at("2026-05-02T01:00:00Z")));
    let end = end.unwrap();
    assert_eq!(release_at(end, 0.0), end);
    assert_eq!(release_at(end, 1.0), end + QUIET_SPREAD);
    let always = intervals(&[r#"{"from":"00:00","to":"24:00"}"#]);
    let now = at("2026-05-01T17:00:00Z");
    let end = quiet_until(&always, &zone("UTC"), now).unwrap();
    assert!(end.since(now).as_secs() > 7 * 86_400, "it ends, because somebody has to look again");
}

#[test]
fn the_zone_of_the_address_wins_then_that_of_the_recipient_then_that_of_the_tenant() {
    const EMAIL: ChannelKind = ChannelKind::new("email");
    let rules = AudienceRules {
        zone: Some(zone("UTC")),
        quiet_hours: intervals(&[r#"{"from":"22:00","to":"07:00"}"#]),
        ..AudienceRules::default()
    };
    let profile =
        RecipientProfile { zone: Some(zone("Asia/Tokyo")), ..RecipientProfile::default() };
    let facts = AddressFacts { zone: Some(zone("America/New_York")), ..AddressFacts::default() };
    let send = |now: &str, on_quiet, expires_at: &str| IntendedSend {
        category: None,
        channel: EMAIL,
        on_quiet,
        expires_at: at(expires_at),
        now: at(now),
        random: 0.5,
    };
    let of = |profile, facts| KnownPerson { suppression: None, profile, facts };
    let (late, day) = ("2026-06-01T23:00:00Z", "2026-06-03T00:00:00Z");
    let asked = |person, on_quiet| assess(&rules, person, send(late, on_quiet, day));
    let until = SendVerdict::Wait { until: at("2026-06-02T07:05:00Z") };
    let now = SendVerdict::Send(ConsentGrounds::NoCategory);
    assert_eq!(asked(of(None, None), OnQuiet::Defer), until, "UTC");
    assert_eq!(asked(of(Some(&profile), None), OnQuiet::Defer), now, "8 in the morning");
    assert_eq!(asked(of(Some(&profile), Some(&facts)), OnQuiet::Defer), now, "7 in the evening");
    assert_eq!(asked(of(None, None), OnQuiet::Ignore), now);
    let dropped = SendVerdict::Withhold(WithheldReason::QuietHours);
    assert_eq!(asked(of(None, None), OnQuiet::Drop), dropped);
    let early = send(late, OnQuiet::Defer, "2026-06-02T07:00:00Z");
    assert_eq!(assess(&rules, of(None, None), early), SendVerdict::Expire);
    let close = send(late, OnQuiet::Defer, "2026-06-02T07:00:30Z");
    let last = SendVerdict::Wait { until: at("2026-06-02T07:00:29Z") };
    assert_eq!(assess(&rules, of(None, None), close), last, "the spread lets nothing expire");
    let nobody_knows = AudienceRules { zone: None, ..rules.clone() };
    let unknown = SendVerdict::Withhold(WithheldReason::UnknownZone);
    assert_eq!(assess(&nobody_knows, of(None, None), send(late, OnQuiet::Defer, day)), unknown);
    let free = RecipientProfile { quiet_hours: Some(Vec::new()), ..RecipientProfile::default() };
    assert_eq!(asked(of(Some(&free), None), OnQuiet::Defer), now, "their own words: none");
}

#[test]
fn what_is_no_zone_or_time_is_refused() {
    for text in ["Mars/Base", "", "+02:00", "UTC+2", "../etc/passwd"] {
        assert!(ZoneName::parse(text).is_none(), "{text}");
    }
    for text in ["24:01", "7:00", "12:60", "ab:cd", "", "12", "-1:00", "+1:00"] {
        assert!(DayMinute::parse(text).is_none(), "{text}");
    }
    assert_eq!(DayMinute::parse("24:00").unwrap().to_string(), "24:00");
}
