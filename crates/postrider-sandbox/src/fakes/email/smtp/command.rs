//! Parses one line of a client.

/// One command with its arguments.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum FakeSmtpCommand<'a> {
    Ehlo,
    Helo,
    StartTls,
    /// Mechanism and initial response.
    Auth(&'a str, Option<&'a str>),
    Mail(SmtpPath<'a>),
    Rcpt(SmtpPath<'a>),
    Data,
    Rset,
    Noop,
    Quit,
    /// Known, but written wrongly.
    Malformed,
    Unknown,
}

/// An address with the parameters behind it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct SmtpPath<'a> {
    pub address: &'a str,
    parameters: &'a str,
}

impl<'a> SmtpPath<'a> {
    /// The value of `NAME=value`.
    pub(super) fn parameter(&self, name: &str) -> Option<&'a str> {
        let mut words = self.parameters.split(' ').filter_map(|word| word.split_once('='));
        words.find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.parameters.split(' ').any(|word| word.eq_ignore_ascii_case(name))
    }

    fn read(rest: &'a str, keyword: &str) -> Option<Self> {
        let (head, tail) = rest.split_at_checked(keyword.len())?;
        let tail = tail.trim_start().strip_prefix('<')?;
        let (address, parameters) = tail.split_once('>')?;
        let plain =
            !address.contains([' ', '<']) && (parameters.is_empty() || parameters.starts_with(' '));
        (head.eq_ignore_ascii_case(keyword) && plain)
            .then_some(Self { address, parameters: parameters.trim_start() })
    }
}

impl<'a> FakeSmtpCommand<'a> {
    pub(super) fn read(line: &'a str) -> Self {
        let (verb, rest) = line.split_once(' ').unwrap_or((line, ""));
        let path = |keyword, make: fn(SmtpPath<'a>) -> Self| {
            SmtpPath::read(rest.trim_start(), keyword).map_or(Self::Malformed, make)
        };
        match verb.to_ascii_uppercase().as_str() {
            "EHLO" if !rest.trim().is_empty() => Self::Ehlo,
            "HELO" if !rest.trim().is_empty() => Self::Helo,
            "EHLO" | "HELO" => Self::Malformed,
            "STARTTLS" => Self::StartTls,
            "AUTH" => {
                let (mechanism, initial) = rest.split_once(' ').unwrap_or((rest, ""));
                Self::Auth(mechanism, Some(initial).filter(|text| !text.is_empty()))
            }
            "MAIL" => path("FROM:", Self::Mail),
            "RCPT" => path("TO:", Self::Rcpt),
            "DATA" => Self::Data,
            "RSET" => Self::Rset,
            "NOOP" => Self::Noop,
            "QUIT" => Self::Quit,
            _ => Self::Unknown,
        }
    }
}

/// Whether a value of `BY=` is valid (RFC 2852): seconds, then what to do after them. A mail that is to be returned
/// needs at least `shortest_s`.
pub(super) fn is_deliver_by(value: &str, shortest_s: i64) -> bool {
    let Some((seconds, mode)) = value.split_once(';') else { return false };
    let digits = seconds.strip_prefix(['-', '+']).unwrap_or(seconds);
    let Ok(seconds) = seconds.parse::<i64>() else { return false };
    match mode.to_ascii_uppercase().as_str() {
        "R" | "RT" => digits.len() <= 9 && seconds >= shortest_s,
        "N" | "NT" => digits.len() <= 9,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_read_with_their_parameters() {
        let FakeSmtpCommand::Mail(path) =
            FakeSmtpCommand::read("mail from:<a@b.c> SIZE=12 ENVID=x SMTPUTF8")
        else {
            panic!()
        };
        assert_eq!((path.address, path.parameter("size")), ("a@b.c", Some("12")));
        assert_eq!(path.parameter("ENVID"), Some("x"));
        assert!(path.has("SMTPUTF8"));
        assert_eq!(
            FakeSmtpCommand::read("AUTH PLAIN abc="),
            FakeSmtpCommand::Auth("PLAIN", Some("abc="))
        );
        assert_eq!(FakeSmtpCommand::read("AUTH LOGIN"), FakeSmtpCommand::Auth("LOGIN", None));
    }

    #[test]
    fn what_is_written_wrongly_is_told_apart_from_what_is_unknown() {
        for line in ["MAIL FROM:a@b.c", "RCPT TO:<a b>", "EHLO", "MAIL FROM:<a>x"] {
            assert_eq!(FakeSmtpCommand::read(line), FakeSmtpCommand::Malformed, "{line}");
        }
        assert_eq!(FakeSmtpCommand::read("GET / HTTP/1.1"), FakeSmtpCommand::Unknown);
    }

    #[test]
    fn a_time_to_deliver_in_has_seconds_and_a_mode() {
        for good in ["600;R", "60;r", "+600;RT", "-120;N", "5;NT"] {
            assert!(is_deliver_by(good, 60), "{good}");
        }
        for bad in ["600", "59;R", "-600;R", "600;X", ";R", "1234567890;N", "x;N"] {
            assert!(!is_deliver_by(bad, 60), "{bad}");
        }
    }
}
