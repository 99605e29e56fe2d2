//! Asks a name server for the TXT records of a name, by UDP, and again by TCP if the answer was truncated. Has no cache
//! and does not validate DNSSEC.

use std::net::{IpAddr, SocketAddr};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpStream, UdpSocket};
use tokio::time::{Instant, timeout_at};

const TXT: u16 = 16;
const HEADER: usize = 12;
/// The largest answer by UDP (EDNS).
const UDP_MAX: u16 = 1232;
const RECORDS_MAX: u16 = 64;
const NXDOMAIN: u8 = 3;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum TxtAnswer {
    /// The texts of all records; none if the name does not exist.
    Texts(Vec<String>),
    /// The answer did not fit.
    Truncated,
    Failed(u8),
}

/// The texts at `name`.
pub(super) async fn look_up(
    server: SocketAddr,
    name: &str,
    deadline: Instant,
) -> Result<Vec<String>, String> {
    let mut id = [0; 2];
    aws_lc_rs::rand::fill(&mut id).map_err(|_| "no random numbers")?;
    let id = u16::from_be_bytes(id);
    let question = question(id, name).ok_or("it is not a name")?;
    let ask = async {
        match by_udp(server, &question, id).await? {
            TxtAnswer::Truncated => by_tcp(server, &question, id).await,
            answer => Ok(answer),
        }
    };
    match timeout_at(deadline, ask).await {
        Ok(Ok(TxtAnswer::Texts(texts))) => Ok(texts),
        Ok(Ok(TxtAnswer::Truncated)) => {
            Err(format!("name server {server} gives no complete answer"))
        }
        Ok(Ok(TxtAnswer::Failed(code))) => {
            Err(format!("name server {server} failed (code {code})"))
        }
        Ok(Err(_)) | Err(_) => Err(format!("name server {server} does not answer")),
    }
}

/// The first name server of a `resolv.conf`.
pub(super) fn server_of(resolv_conf: &str) -> Option<SocketAddr> {
    let mut words = resolv_conf.lines().map(str::split_whitespace);
    let ip = words.find_map(|mut line| match line.next()? {
        "nameserver" => line.next()?.split('%').next()?.parse::<IpAddr>().ok(),
        _ => None,
    })?;
    Some(SocketAddr::new(ip, 53))
}

async fn by_udp(server: SocketAddr, question: &[u8], id: u16) -> std::io::Result<TxtAnswer> {
    let socket = UdpSocket::bind(if server.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" }).await?;
    socket.connect(server).await?;
    socket.send(question).await?;
    let mut buffer = vec![0; usize::from(UDP_MAX)];
    loop {
        let len = socket.recv(&mut buffer).await?;
        // Other packets are ignored.
        if let Some(answer) = read(buffer.get(..len).unwrap_or_default(), id) {
            return Ok(answer);
        }
    }
}

async fn by_tcp(server: SocketAddr, question: &[u8], id: u16) -> std::io::Result<TxtAnswer> {
    let mut stream = TcpStream::connect(server).await?;
    stream.write_u16(u16::try_from(question.len()).unwrap_or_default()).await?;
    stream.write_all(question).await?;
    let mut buffer = vec![0; usize::from(stream.read_u16().await?)];
    stream.read_exact(&mut buffer).await?;
    read(&buffer, id).ok_or_else(|| std::io::ErrorKind::InvalidData.into())
}

/// `None` if the name has a label that is empty or too long.
fn question(id: u16, name: &str) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(name.len() + 32);
    out.extend_from_slice(&id.to_be_bytes());
    // Recursion desired; one question, one additional record.
    out.extend_from_slice(&[0x01, 0x00, 0, 1, 0, 0, 0, 0, 0, 1]);
    for label in name.trim_end_matches('.').split('.') {
        let len = u8::try_from(label.len()).ok().filter(|len| (1..=63).contains(len))?;
        out.push(len);
        out.extend_from_slice(label.as_bytes());
    }
    out.push(0);
    out.extend_from_slice(&TXT.to_be_bytes());
    out.extend_from_slice(&[0, 1]);
    // OPT: root, type 41, our size, no flags, no data.
    out.extend_from_slice(&[0, 0, 41]);
    out.extend_from_slice(&UDP_MAX.to_be_bytes());
    out.extend_from_slice(&[0, 0, 0, 0, 0, 0]);
    (out.len() <= 300).then_some(out)
}

/// `None` if these bytes do not answer this question.
fn read(bytes: &[u8], id: u16) -> Option<TxtAnswer> {
    let number = |at: usize| Some(u16::from_be_bytes([*bytes.get(at)?, *bytes.get(at + 1)?]));
    let is_answer = bytes.get(2)? & 0x80 != 0;
    (number(0)? == id && is_answer).then_some(())?;
    match bytes.get(3)? & 0x0f {
        0 => {}
        NXDOMAIN => return Some(TxtAnswer::Texts(Vec::new())),
        code => return Some(TxtAnswer::Failed(code)),
    }
    if bytes.get(2)? & 0x02 != 0 {
        return Some(TxtAnswer::Truncated);
    }
    let (questions, answers) = (number(4)?.min(RECORDS_MAX), number(6)?.min(RECORDS_MAX));
    let mut at = HEADER;
    for _ in 0..questions {
        at = behind_name(bytes, at)? + 4;
    }
    let mut texts = Vec::new();
    for _ in 0..answers {
        at = behind_name(bytes, at)?;
        let (kind, len) = (number(at)?, usize::from(number(at + 8)?));
        let data = bytes.get(at + 10..at + 10 + len)?;
        at += 10 + len;
        if kind == TXT {
            texts.push(text(data)?);
        }
    }
    Some(TxtAnswer::Texts(texts))
}

/// The position after a name. A pointer ends the name.
fn behind_name(bytes: &[u8], mut at: usize) -> Option<usize> {
    loop {
        match *bytes.get(at)? {
            0 => return Some(at + 1),
            len @ 1..=63 => at += 1 + usize::from(len),
            0xc0.. => return Some(at + 2),
            _ => return None,
        }
    }
}

/// A record is one text in pieces of at most 255 bytes.
fn text(mut data: &[u8]) -> Option<String> {
    let mut whole = Vec::with_capacity(data.len());
    while let Some((len, rest)) = data.split_first() {
        let (piece, rest) = rest.split_at_checked(usize::from(*len))?;
        whole.extend_from_slice(piece);
        data = rest;
    }
    Some(String::from_utf8_lossy(&whole).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The question turned into an answer with these records.
    fn answered(flags: [u8; 2], records: &[(u16, &[u8])]) -> Vec<u8> {
        let asked = question(7, "s1._domainkey.shop.example").unwrap();
        let mut out = asked[..asked.len() - 11].to_vec();
        out[2..4].copy_from_slice(&flags);
        out[6..8].copy_from_slice(&u16::try_from(records.len()).unwrap().to_be_bytes());
        out[11] = 0;
        for (kind, data) in records {
            out.extend_from_slice(&[0xc0, 12]);
            out.extend_from_slice(&kind.to_be_bytes());
            out.extend_from_slice(&[0, 1, 0, 0, 0, 60]);
            out.extend_from_slice(&u16::try_from(data.len()).unwrap().to_be_bytes());
            out.extend_from_slice(data);
        }
        out
    }

    #[test]
    fn a_text_in_pieces_is_one_and_other_records_are_passed_over() {
        let bytes = answered([0x81, 0x80], &[(5, &[1, b'x', 0]), (TXT, b"\x03v=D\x03KIM")]);
        assert_eq!(read(&bytes, 7), Some(TxtAnswer::Texts(vec!["v=DKIM".into()])));
        assert_eq!(read(&bytes, 8), None, "an answer to another question");
        for len in 0..bytes.len() {
            let _ = read(&bytes[..len], 7);
        }
    }

    #[test]
    fn no_such_name_a_cut_answer_and_a_failure_are_told_apart() {
        assert_eq!(read(&answered([0x81, 0x83], &[]), 7), Some(TxtAnswer::Texts(vec![])));
        assert_eq!(read(&answered([0x83, 0x80], &[]), 7), Some(TxtAnswer::Truncated));
        assert_eq!(read(&answered([0x81, 0x82], &[]), 7), Some(TxtAnswer::Failed(2)));
    }

    #[test]
    fn what_is_no_name_is_not_asked_for() {
        assert!(question(1, "a..b").is_none());
        assert!(question(1, &"a".repeat(64)).is_none());
        assert!(question(1, &"a.".repeat(200)).is_none());
    }

    #[test]
    fn the_first_name_server_of_the_system_is_asked() {
        let text = "# comment\nsearch lan\nnameserver fe80::1%eth0\nnameserver 9.9.9.9\n";
        assert_eq!(server_of(text), Some("[fe80::1]:53".parse().unwrap()));
        assert_eq!(server_of("options ndots:5"), None);
    }

    #[test]
    fn no_answer_breaks_its_reader_when_it_is_fuzzed() {
        let seeds = ["\u{0}\u{7}\u{1}\u{0}\u{0}\u{1}\u{0}\u{1}"];
        crate::fuzzed_answers::fuzz_answers("dns_txt", &seeds, |answer| {
            drop(read(&answer.body, 7));
        });
    }
}
