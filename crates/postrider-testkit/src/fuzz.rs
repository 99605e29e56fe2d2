//! A fuzzer for tests: changes known inputs at random and calls a parser with them, for a bounded time. A parser that
//! panics fails the test, and its input is kept as a file. Needs no special compiler, and is not guided by coverage.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::random::SimRng;

/// How long each parser is called, in milliseconds.
pub const TIME: &str = "POSTRIDER_FUZZ_MS";
/// The seed of the random numbers; printed with a failure.
pub const SEED: &str = "POSTRIDER_FUZZ_SEED";
const TIME_MS: u64 = 200;
const INPUT_MAX: usize = 64 * 1024;
/// No single input may take longer.
const SLOW: Duration = Duration::from_secs(5);

/// Texts at which parsers often fail.
const WORDS: [&str; 40] = [
    "{",
    "}",
    "[",
    "]",
    "\"",
    ":",
    ",",
    "null",
    "true",
    "1e999",
    "-0",
    "18446744073709551616",
    "-9223372036854775809",
    "\\u0000",
    "\\ud800",
    "\u{0}",
    "\u{feff}",
    "\u{202e}",
    "é",
    "\u{1f980}",
    "\r\n",
    "\n",
    "%",
    "%00",
    "%ff",
    "{{",
    "}}",
    "{%",
    "%}",
    "://",
    "@",
    "..",
    "0x",
    "NaN",
    "Infinity",
    "[::1]",
    "=",
    "&",
    "  ",
    "~1:",
];

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// Calls `parse` with the seeds, with all files of `corpus`, and then with changed ones. Panics if `parse` does, or if
/// it takes very long.
pub fn fuzz(target: &str, corpus: &Path, seeds: &[&[u8]], parse: impl Fn(&[u8])) {
    let mut known: Vec<Vec<u8>> = seeds.iter().map(|seed| seed.to_vec()).collect();
    known.extend(files(&corpus.join(target)).iter().filter_map(|file| std::fs::read(file).ok()));
    let seed = number(SEED).unwrap_or(1);
    let mut random = SimRng::new(seed);
    let time = Duration::from_millis(number(TIME).unwrap_or(TIME_MS));
    let (begin, mut calls) = (Instant::now(), 0u64);
    for input in &known {
        call(target, corpus, seed, input, &parse);
    }
    while begin.elapsed() < time {
        let input = changed(&known, &mut random);
        call(target, corpus, seed, &input, &parse);
        calls += 1;
    }
    eprintln!("{target}: {calls} changed inputs of {} known ones, seed {seed}", known.len());
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let mut files: Vec<_> = entries.map(|entry| entry.path()).collect();
    files.sort();
    files
}

fn call(target: &str, corpus: &Path, seed: u64, input: &[u8], parse: &impl Fn(&[u8])) {
    let begin = Instant::now();
    let is_fine = catch_unwind(AssertUnwindSafe(|| parse(input))).is_ok();
    if is_fine && begin.elapsed() < SLOW {
        return;
    }
    let name =
        input.iter().fold(7u64, |hash, byte| hash.wrapping_mul(31).wrapping_add(u64::from(*byte)));
    let file = corpus.join(target).join(format!("found-{name:016x}"));
    let kept =
        std::fs::create_dir_all(corpus.join(target)).and_then(|()| std::fs::write(&file, input));
    let what = if is_fine { "is very slow with" } else { "panics at" };
    panic!("{target} {what} {} (seed {seed}, kept: {})", file.display(), kept.is_ok());
}

/// A known input after one to eight changes.
fn changed(known: &[Vec<u8>], random: &mut SimRng) -> Vec<u8> {
    let pick = |random: &mut SimRng| known.get(random.index(known.len().max(1))).cloned();
    let mut input = pick(random).unwrap_or_default();
    for _ in 0..random.within(1, 8) {
        let at = random.index(input.len() + 1);
        match random.below(7) {
            0 if at < input.len() => input[at] ^= 1 << random.below(8),
            1 if at < input.len() => input[at] = random.below(256) as u8,
            2 => drop(input.drain(at..(at + random.index(16)).min(input.len()))),
            3 => input.truncate(at),
            4 => {
                let word = WORDS[random.index(WORDS.len())];
                let times = if random.chance(0.05) { 200 } else { 1 };
                input.splice(at..at, word.repeat(times).into_bytes());
            }
            5 => {
                let other = pick(random).unwrap_or_default();
                let from = random.index(other.len() + 1);
                input.truncate(at);
                input.extend_from_slice(&other[from..]);
            }
            _ => {
                let end = (at + random.index(32)).min(input.len());
                let part = input[at..end].to_vec();
                input.splice(at..at, part);
            }
        }
        input.truncate(INPUT_MAX);
    }
    input
}
