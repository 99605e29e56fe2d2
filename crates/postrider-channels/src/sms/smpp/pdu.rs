//! Writes and parses the PDUs of SMPP 3.4 that a sender needs. Checks every length.

use crate::sms::segments::{self, SmsEncoding};

pub(super) const GENERIC_NACK: u32 = 0x8000_0000;
pub(super) const SUBMIT_SM: u32 = 0x04;
pub(super) const DELIVER_SM: u32 = 0x05;
pub(super) const UNBIND: u32 = 0x06;
pub(super) const BIND_TRANSCEIVER: u32 = 0x09;
pub(super) const ENQUIRE_LINK: u32 = 0x15;
pub(super) const RESPONSE: u32 = 0x8000_0000;

const HEADER: usize = 16;
/// The largest PDU in bytes.
const PDU_MAX: usize = 64 * 1024;
const VERSION: u8 = 0x34;
/// Type and plan of an address: an E.164 number, a name, or a short code of the network.
const TON_INTERNATIONAL: (u8, u8) = (1, 1);
const TON_NAME: (u8, u8) = (5, 0);
const TON_NETWORK: (u8, u8) = (3, 0);
const SHORT_MESSAGE_MAX: usize = 254;
const MESSAGE_PAYLOAD: u16 = 0x0424;
const ON_FINAL_OUTCOME: u8 = 1;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Pdu {
    pub(super) id: u32,
    pub(super) status: u32,
    pub(super) sequence: u32,
    pub(super) body: Vec<u8>,
}

/// The peer does not speak SMPP.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct MalformedPdu;

impl Pdu {
    pub(super) fn new(id: u32, status: u32, sequence: u32, body: Vec<u8>) -> Self {
        Self { id, status, sequence, body }
    }

    pub(super) fn is_answer(&self) -> bool {
        self.id & RESPONSE != 0
    }

    pub(super) fn bytes(&self) -> Vec<u8> {
        let len = u32::try_from(HEADER + self.body.len()).unwrap_or(u32::MAX);
        let mut out = Vec::with_capacity(HEADER + self.body.len());
        for word in [len, self.id, self.status, self.sequence] {
            out.extend_from_slice(&word.to_be_bytes());
        }
        out.extend_from_slice(&self.body);
        out
    }

    /// The first complete PDU in the buffer and its length; `None` if it is incomplete.
    pub(super) fn parse(buffer: &[u8]) -> Result<Option<(Self, usize)>, MalformedPdu> {
        let word = |nth: usize| -> Option<u32> {
            let bytes = buffer.get(nth * 4..nth * 4 + 4)?;
            Some(u32::from_be_bytes(bytes.try_into().ok()?))
        };
        let Some(len) = word(0).map(|len| len as usize) else { return Ok(None) };
        if !(HEADER..=PDU_MAX).contains(&len) {
            return Err(MalformedPdu);
        }
        let (Some(body), Some(id), Some(status), Some(sequence)) =
            (buffer.get(HEADER..len), word(1), word(2), word(3))
        else {
            return Ok(None);
        };
        Ok(Some((Self::new(id, status, sequence, body.to_vec()), len)))
    }
}

pub(super) fn bind(system_id: &str, password: &str, system_type: &str) -> Vec<u8> {
    let mut body = Vec::new();
    [system_id, password, system_type].iter().for_each(|text| push_text(&mut body, text));
    body.extend_from_slice(&[VERSION, 0, 0, 0]);
    body
}

/// The body of a `submit_sm`. A long text is sent as a payload, which the message centre divides.
pub fn submit(from: &str, to: &str, text: &str, validity_s: u32) -> Vec<u8> {
    let (encoding, message) = segments::encode(text);
    let mut body = Vec::with_capacity(message.len() + 96);
    push_text(&mut body, "");
    push_address(&mut body, from);
    push_address(&mut body, to);
    body.extend_from_slice(&[0, 0, 0]);
    push_text(&mut body, "");
    push_text(&mut body, &validity(validity_s));
    let coding = if encoding == SmsEncoding::Gsm7 { 0 } else { 8 };
    body.extend_from_slice(&[ON_FINAL_OUTCOME, 0, coding, 0]);
    match u8::try_from(message.len()) {
        Ok(len) if message.len() <= SHORT_MESSAGE_MAX => {
            body.push(len);
            body.extend_from_slice(&message);
        }
        _ => {
            body.push(0);
            body.extend_from_slice(&MESSAGE_PAYLOAD.to_be_bytes());
            let len = u16::try_from(message.len()).unwrap_or(u16::MAX);
            body.extend_from_slice(&len.to_be_bytes());
            body.extend_from_slice(&message[..usize::from(len)]);
        }
    }
    body
}

fn push_text(out: &mut Vec<u8>, text: &str) {
    out.extend(text.bytes().filter(|byte| *byte != 0));
    out.push(0);
}

fn push_address(out: &mut Vec<u8>, address: &str) {
    let digits = address.strip_prefix('+');
    let (ton, npi) = match digits {
        Some(_) => TON_INTERNATIONAL,
        None if address.bytes().all(|b| b.is_ascii_digit()) => TON_NETWORK,
        None => TON_NAME,
    };
    out.extend_from_slice(&[ton, npi]);
    push_text(out, digits.unwrap_or(address));
}

/// Relative: `YYMMDDhhmmss000R`.
fn validity(seconds: u32) -> String {
    let (days, rest) = (seconds / 86_400, seconds % 86_400);
    format!("0000{:02}{:02}{:02}{:02}000R", days.min(30), rest / 3600, rest / 60 % 60, rest % 60)
}

/// The final state of a message, from a `deliver_sm`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SmppReceipt {
    pub id: String,
    /// `DELIVRD`, `EXPIRED`, `DELETED`, `UNDELIV`, `ACCEPTD`, `UNKNOWN` or `REJECTD`.
    pub stat: String,
    pub err: String,
}

impl SmppReceipt {
    /// From the text of a receipt: `id:… sub:… dlvrd:… stat:DELIVRD err:000 text:…`.
    pub(super) fn read(body: &[u8]) -> Option<Self> {
        let text = String::from_utf8_lossy(body);
        let value = |name: &str| {
            let rest = &text[text.find(name)? + name.len()..];
            let word = rest.split([' ', '\0']).next()?;
            Some(word.chars().take(64).collect::<String>())
        };
        let stat = value("stat:").filter(|stat| stat.bytes().all(|b| b.is_ascii_uppercase()))?;
        Some(Self { id: value("id:")?, stat, err: value("err:").unwrap_or_default() })
    }
}

/// A C string at the beginning of a response's body.
pub(super) fn text(body: &[u8]) -> Option<String> {
    let end = body.iter().position(|byte| *byte == 0)?;
    let text = String::from_utf8_lossy(&body[..end]).into_owned();
    (!text.is_empty()).then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pdu_survives_the_wire_and_half_of_one_waits() {
        let pdu = Pdu::new(SUBMIT_SM, 0, 7, b"abc".to_vec());
        let bytes = pdu.bytes();
        assert_eq!(bytes.len(), 19);
        assert_eq!(Pdu::parse(&bytes), Ok(Some((pdu, 19))));
        assert_eq!(Pdu::parse(&bytes[..18]), Ok(None));
        assert_eq!(Pdu::parse(&bytes[..3]), Ok(None));
        assert_eq!(Pdu::parse(b"HTTP/1.1 400 Bad"), Err(MalformedPdu));
        assert_eq!(Pdu::parse(&[0, 0, 0, 4]), Err(MalformedPdu));
    }

    #[test]
    fn a_message_has_its_addresses_coding_and_time() {
        let body = submit("Shop", "+4915112345678", "5 €", 3_723);
        let expected = [
            b"\0".as_slice(),
            b"\x05\x00Shop\0",
            b"\x01\x014915112345678\0",
            b"\0\0\0\0",
            b"000000010203000R\0",
            b"\x01\0\0\0\x045 \x1b\x65",
        ];
        assert_eq!(body, expected.concat());
        let other = submit("12345", "+15550100", "ń", 60);
        assert!(other.ends_with(b"\x01\0\x08\0\x02\x01\x44"), "{other:?}");
        let long = submit("12345", "+15550100", &"x".repeat(400), 60);
        let payload = [b"\0\x04\x24\x01\x90".as_slice(), "x".repeat(400).as_bytes()].concat();
        assert!(long.ends_with(&payload));
    }

    #[test]
    fn a_receipt_is_read_and_an_answer_of_a_person_is_none() {
        let text = b"\0\0\0id:abc-1 sub:001 dlvrd:001 submit date:2611150851 done date:2611150852 stat:DELIVRD err:000 text:hi";
        let receipt = SmppReceipt { id: "abc-1".into(), stat: "DELIVRD".into(), err: "000".into() };
        assert_eq!(SmppReceipt::read(text), Some(receipt));
        assert_eq!(SmppReceipt::read(b"\0\0STOP please"), None);
    }

    #[test]
    fn no_pdu_breaks_its_parser_when_it_is_fuzzed() {
        let corpus = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/corpus");
        let receipt = b"id:7 sub:001 dlvrd:001 submit date:2601010000 stat:DELIVRD err:000 text:";
        let deliver = Pdu::new(DELIVER_SM, 0, 1, [&[0; 17][..], receipt].concat()).bytes();
        let submit =
            Pdu::new(SUBMIT_SM, 0, 2, submit("Shop", "+4915112345678", "Hello", 60)).bytes();
        postrider_testkit::fuzz::fuzz("smpp_pdu", &corpus, &[&deliver, &submit], |bytes| {
            if let Ok(Some((pdu, length))) = Pdu::parse(bytes) {
                assert!(length <= bytes.len());
                let _ = (SmppReceipt::read(&pdu.body), text(&pdu.body), pdu.is_answer());
            }
        });
    }
}
