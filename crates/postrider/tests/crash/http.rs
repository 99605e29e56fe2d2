//! A blocking HTTP/1.1 client of sixty lines: a proof shares no code with what it proves.

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::{Context, Result, bail};

pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) body: String,
}

pub(crate) fn get(address: SocketAddr, path: &str, key: &str) -> Result<Answer> {
    call(address, "GET", path, key, "")
}

pub(crate) fn call(
    address: SocketAddr,
    method: &str,
    path: &str,
    key: &str,
    body: &str,
) -> Result<Answer> {
    let mut stream = TcpStream::connect_timeout(&address, Duration::from_secs(2))?;
    stream.set_read_timeout(Some(Duration::from_secs(30)))?;
    write!(
        stream,
        "{method} {path} HTTP/1.1\r\nhost: {address}\r\nauthorization: Bearer {key}\r\ncontent-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
        body.len()
    )?;
    read_answer(&mut BufReader::new(stream))
}

fn read_answer(reader: &mut impl BufRead) -> Result<Answer> {
    let mut line = String::new();
    reader.read_line(&mut line)?;
    let status = line.split(' ').nth(1).and_then(|s| s.parse().ok()).context("no answer")?;
    let (mut length, mut chunked) = (None, false);
    loop {
        line.clear();
        if reader.read_line(&mut line)? == 0 || line == "\r\n" {
            break;
        }
        let header = line.to_ascii_lowercase();
        if let Some(value) = header.strip_prefix("content-length:") {
            length = value.trim().parse().ok();
        }
        chunked |= header.starts_with("transfer-encoding:") && header.contains("chunked");
    }
    let mut body = Vec::new();
    match length {
        Some(length) => {
            body.resize(length, 0);
            reader.read_exact(&mut body)?;
        }
        None if chunked => while read_chunk(reader, &mut body)? {},
        None => {
            reader.read_to_end(&mut body)?;
        }
    }
    Ok(Answer { status, body: String::from_utf8(body)? })
}

fn read_chunk(reader: &mut impl BufRead, body: &mut Vec<u8>) -> Result<bool> {
    let mut line = String::new();
    if reader.read_line(&mut line)? == 0 {
        bail!("the answer ended in the middle");
    }
    let size = usize::from_str_radix(line.trim(), 16).context("not a chunk")?;
    let from = body.len();
    body.resize(from + size, 0);
    reader.read_exact(&mut body[from..])?;
    line.clear();
    reader.read_line(&mut line)?;
    Ok(size > 0)
}
