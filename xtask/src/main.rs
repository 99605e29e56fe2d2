//! Development tasks: `cargo xtask test`, `channels`, `conformance`, `deny`, `prove`, `fresh`. Ships nothing.

mod channels;
mod conformance;
mod deny;
mod fresh;
mod licence;
mod prove;
mod sdk;
mod shell;
mod supply;
mod test;
mod tools;

use std::process::ExitCode;

const HELP: &str = "\
cargo xtask test             formatting, lints and every test; CI runs the same
cargo xtask channels         write docs/channels.md: every answer of every provider, and its test
cargo xtask conformance      run the suite of all stores: which engine keeps which promise
cargo xtask deny             licences, sources, bans and known vulnerabilities of the dependencies
cargo xtask supply           licences, bans and sources of the dependencies, without network; part of the tests
cargo xtask sbom             print what the program is made of (CycloneDX)
cargo xtask prove NAME       one of the longer proofs; `cargo xtask prove list` names them
cargo xtask fresh            clone into an empty folder and run the README's two commands
";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let result = match args.as_slice() {
        ["test"] => test::run(),
        ["channels", rest @ ..] => channels::run(rest),
        ["conformance"] => conformance::run(),
        ["deny"] => deny::run(),
        ["supply"] => supply::check(),
        ["sbom"] => supply::sbom(),
        ["prove", name, rest @ ..] => prove::run(name, rest),
        ["fresh"] => fresh::run(),
        ["help" | "--help" | "-h"] => {
            print!("{HELP}");
            return ExitCode::SUCCESS;
        }
        _ => {
            eprint!("{HELP}");
            return ExitCode::from(2);
        }
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("\nxtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}
