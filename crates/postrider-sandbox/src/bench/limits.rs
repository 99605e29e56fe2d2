//! The limits of this machine, for comparison: an fsync, an encryption, a POST over TLS and HTTP/2.

use std::io::Write as _;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use aws_lc_rs::agreement::{ECDH_P256, PrivateKey};
use bytes::Bytes;
use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use http::{HeaderMap, Method};
use postrider_channels::pool::{Pool, PoolConfig, Request};
use postrider_channels::webpush::{Padding, PlainPayload, encrypt_batch};

use super::process::{SandboxProcess, own_cpu};

const LASTING: Duration = Duration::from_secs(1);

/// Appends of 4 KiB, each made durable.
pub(super) fn fsyncs_per_s(dir: &Path) -> Result<f64> {
    let path = dir.join("fsync");
    let mut file = std::fs::File::create(&path)?;
    let block = [7; 4096];
    let start = Instant::now();
    let mut n = 0.0;
    while start.elapsed() < LASTING {
        file.write_all(&block)?;
        file.sync_data()?;
        n += 1.0;
    }
    let per_s = n / start.elapsed().as_secs_f64();
    std::fs::remove_file(path)?;
    Ok(per_s)
}

/// One encryption of 300 bytes on one core, as in the channel.
pub(super) fn encrypt_us() -> Result<f64> {
    let key = PrivateKey::generate(&ECDH_P256).ok().context("no key pair")?;
    let public = key.compute_public_key().ok().context("no public key")?;
    let plain = PlainPayload {
        ua_public: public.as_ref().try_into()?,
        auth: [1; 16],
        plaintext: vec![7; 300],
    };
    let batch = vec![plain; 16];
    let start = Instant::now();
    let mut n = 0;
    while start.elapsed() < LASTING {
        let made = encrypt_batch(&batch, Padding::default());
        ensure!(made.iter().all(Result::is_ok), "encryption failed");
        n += made.len();
    }
    Ok(start.elapsed().as_secs_f64() * 1e6 / n as f64)
}

const IN_FLIGHT: usize = 100;

/// POSTs/s, and µs of our own CPU for each.
pub(super) async fn loopback(sandbox: &SandboxProcess) -> Result<(f64, f64)> {
    let pool = Pool::new(PoolConfig {
        allow_private_targets: true,
        extra_ca_file: Some(sandbox.ca_file.clone()),
        ..PoolConfig::default()
    })?;
    let url = format!("https://127.0.0.1:{}/http/limit", sandbox.https.port());
    let (mut n, mut number) = (0.0, 0u64);
    let mut calls = FuturesUnordered::new();
    let (start, cpu) = (Instant::now(), own_cpu()?);
    while start.elapsed() < LASTING * 2 {
        while calls.len() < IN_FLIGHT {
            number += 1;
            let mut headers = HeaderMap::new();
            headers.insert("idempotency-key", format!("limit-{number}").parse()?);
            let request =
                Request { method: Method::POST, headers, body: Bytes::from_static(&[7; 400]) };
            calls.push(pool.send(
                &url,
                request,
                tokio::time::Instant::now() + Duration::from_secs(10),
            ));
        }
        if let Some(answer) = calls.next().await {
            let answer = answer.map_err(|e| anyhow::anyhow!("{e:?}"))?;
            ensure!(answer.status.is_success(), "the sandbox answered {}", answer.status);
            n += 1.0;
        }
    }
    let took = start.elapsed().as_secs_f64();
    Ok((n / took, (own_cpu()? - cpu).as_secs_f64() * 1e6 / n))
}
