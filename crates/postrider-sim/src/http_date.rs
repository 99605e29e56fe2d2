//! A point in time as `Retry-After` writes it: `Sun, 06 Nov 1994 08:49:37 GMT`.

use postrider_core::Timestamp;
use postrider_core::model::time::civil_from_days;

const DAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
const MONTHS: [&str; 12] =
    ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

pub(crate) fn format(at: Timestamp) -> String {
    let secs = at.as_secs();
    let (days, rest) = (secs.div_euclid(86_400), secs.rem_euclid(86_400));
    let (year, month, day) = civil_from_days(days);
    let (weekday, month) = (DAYS[days.rem_euclid(7) as usize], MONTHS[month as usize - 1]);
    let (h, m, s) = (rest / 3600, rest / 60 % 60, rest % 60);
    format!("{weekday}, {day:02} {month} {year:04} {h:02}:{m:02}:{s:02} GMT")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_written_as_the_rfc_writes_it() {
        assert_eq!(format(Timestamp::from_secs(784_111_777)), "Sun, 06 Nov 1994 08:49:37 GMT");
    }
}
