//! Quiet hours: times of the local week in which a person is left alone. Knows the rules of time zones, and what
//! becomes of a boundary that an hour skips or repeats.

use std::fmt;
use std::time::Duration;

use jiff::civil::{Date, DateTime, Weekday};
use jiff::tz::{AmbiguousOffset, Offset, TimeZone};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::model::time::Timestamp;

/// What is released at the end of quiet hours is spread over so long.
pub const QUIET_SPREAD: Duration = Duration::from_secs(600);
/// Intervals of one person or tenant.
pub const QUIET_INTERVALS_MAX: usize = 28;
const DAY_MINUTES: u16 = 24 * 60;
/// Ends of intervals that follow each other are followed so often: a week of nothing but quiet has no end.
const CHAIN_MAX: usize = 64;

/// A time zone of the IANA database.
#[derive(Clone, PartialEq, Eq)]
pub struct ZoneName {
    name: Box<str>,
    zone: TimeZone,
}

impl ZoneName {
    /// `None` if there is no such zone. A fixed offset is none: people move their clocks.
    pub fn parse(name: &str) -> Option<Self> {
        let zone = TimeZone::get(name).ok()?;
        let name = zone.iana_name()?.into();
        Some(Self { name, zone })
    }

    pub fn name(&self) -> &str {
        &self.name
    }
}

impl fmt::Debug for ZoneName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

impl Serialize for ZoneName {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&self.name)
    }
}

impl<'de> Deserialize<'de> for ZoneName {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let name = std::borrow::Cow::<'de, str>::deserialize(from)?;
        let allowed = "a time zone such as \"Europe/Berlin\"";
        Self::parse(&name)
            .ok_or_else(|| serde::de::Error::custom(format!("no zone, expected {allowed}")))
    }
}

/// A time of day in minutes, up to 24:00.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct DayMinute(u16);

impl DayMinute {
    /// From `hh:mm`.
    pub fn parse(text: &str) -> Option<Self> {
        let (hours, minutes) = text.split_once(':')?;
        let number = |part: &str| match part.len() == 2 && part.bytes().all(|b| b.is_ascii_digit())
        {
            true => part.parse::<u16>().ok(),
            false => None,
        };
        let (hours, minutes) = (number(hours)?, number(minutes)?);
        let all = hours * 60 + minutes;
        (minutes < 60 && all <= DAY_MINUTES).then_some(Self(all))
    }
}

impl fmt::Display for DayMinute {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:02}:{:02}", self.0 / 60, self.0 % 60)
    }
}

impl Serialize for DayMinute {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for DayMinute {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(from)?;
        let wrong =
            || serde::de::Error::custom("no time of day, expected \"hh:mm\", 00:00 to 24:00");
        Self::parse(&text).ok_or_else(wrong)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LocalDay {
    Mon,
    Tue,
    Wed,
    Thu,
    Fri,
    Sat,
    Sun,
}

impl LocalDay {
    pub const ALL: [Self; 7] =
        [Self::Mon, Self::Tue, Self::Wed, Self::Thu, Self::Fri, Self::Sat, Self::Sun];

    fn of(day: Weekday) -> Self {
        Self::ALL[day.to_monday_zero_offset() as usize % 7]
    }
}

/// From a local time up to another one, which is not part of it. Where the end is not later, it is on the next day.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct QuietInterval {
    /// The days on which it begins; every day if absent.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub days: Vec<LocalDay>,
    pub from: DayMinute,
    pub to: DayMinute,
}

/// What becomes of a message of a class in quiet hours.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OnQuiet {
    /// It waits for their end; it expires if that is too late.
    #[default]
    Defer,
    /// It is not sent: state `suppressed`.
    Drop,
    /// It is sent.
    Ignore,
}

/// The end of the quiet hours that a time is in; `None` if it is in none. Intervals that touch are one.
pub fn quiet_until(
    intervals: &[QuietInterval],
    zone: &ZoneName,
    now: Timestamp,
) -> Option<Timestamp> {
    let mut end = end_at(intervals, zone, now)?;
    for _ in 0..CHAIN_MAX {
        match end_at(intervals, zone, end) {
            Some(later) if later > end => end = later,
            _ => break,
        }
    }
    Some(end)
}

/// When a message that waits for the end of quiet hours is sent: spread, so that not all are at once. `random` is from
/// 0 up to 1.
pub fn release_at(end: Timestamp, random: f64) -> Timestamp {
    end + QUIET_SPREAD.mul_f64(random.clamp(0.0, 1.0))
}

/// The latest end of the intervals that a time is in.
fn end_at(intervals: &[QuietInterval], zone: &ZoneName, now: Timestamp) -> Option<Timestamp> {
    let instant = jiff::Timestamp::from_millisecond(now.0).ok()?;
    let today = zone.zone.to_datetime(instant).date();
    // What began yesterday may last until today. A day that a zone skips counts as one, too.
    let days = [today.yesterday().ok(), Some(today), today.tomorrow().ok()];
    let mut latest = None;
    for date in days.into_iter().flatten() {
        let day = LocalDay::of(date.weekday());
        for each in intervals.iter().filter(|each| each.days.is_empty() || each.days.contains(&day))
        {
            let ends_on = if each.to <= each.from { date.tomorrow().ok() } else { Some(date) };
            let (Some(begin), Some(end)) = (
                instant_of(&zone.zone, date, each.from, Boundary::Begin),
                ends_on.and_then(|on| instant_of(&zone.zone, on, each.to, Boundary::End)),
            ) else {
                continue;
            };
            if begin <= now && now < end {
                latest = latest.max(Some(end));
            }
        }
    }
    latest
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Boundary {
    Begin,
    End,
}

/// A local time as an instant. One that is skipped is the first instant after the gap; of one that is repeated, quiet
/// begins at the first and ends at the second.
fn instant_of(zone: &TimeZone, date: Date, at: DayMinute, which: Boundary) -> Option<Timestamp> {
    let date = if at.0 == DAY_MINUTES { date.tomorrow().ok()? } else { date };
    let minute = at.0 % DAY_MINUTES;
    let local = date.at((minute / 60) as i8, (minute % 60) as i8, 0, 0);
    let with = |offset: Offset, local: DateTime| offset.to_timestamp(local).ok();
    let found = match zone.to_ambiguous_timestamp(local).offset() {
        AmbiguousOffset::Unambiguous { offset } => with(offset, local)?,
        AmbiguousOffset::Fold { before, .. } if which == Boundary::Begin => with(before, local)?,
        AmbiguousOffset::Fold { after, .. } => with(after, local)?,
        AmbiguousOffset::Gap { after, .. } => {
            let before_gap = with(after, local)?;
            zone.following(before_gap).next()?.timestamp()
        }
    };
    Some(Timestamp(found.as_millisecond()))
}
