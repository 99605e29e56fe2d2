//! The files of `deploy/`, checked without a cluster: every file parses, and every command, variable and setting in it
//! is one that the binary knows. Starts no container.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;

use anyhow::{Context as _, Result, bail, ensure};
use postrider_testkit::ADMIN_KEY;
use serde_json::Value;

const BINARY: &str = env!("CARGO_BIN_EXE_postrider");
/// Versions and hashes of the tools.
const REQUIREMENTS: &str =
    concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/requirements/deploy.txt");

/// Prints each document of a YAML file as a line of JSON.
const TO_JSON: &str = "import json, sys, yaml
for document in yaml.safe_load_all(sys.stdin):
    if document is not None:
        print(json.dumps(document))";

fn deploy(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy").join(path)
}

/// A Python environment with the tools that read the files. Made once per target folder.
static TOOLS: LazyLock<PathBuf> = LazyLock::new(|| match tools() {
    Ok(folder) => folder,
    Err(error) => panic!("{error:#}"),
});

fn tools() -> Result<PathBuf> {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("deploy-tools-2");
    if folder.join("ready").exists() {
        return Ok(folder);
    }
    let _ = fs::remove_dir_all(&folder);
    run(Command::new("python3").args(["-m", "venv"]).arg(&folder))?;
    run(Command::new(folder.join("bin/pip")).args([
        "install",
        "--quiet",
        "--require-hashes",
        "-r",
        REQUIREMENTS,
    ]))?;
    fs::write(folder.join("ready"), "")?;
    Ok(folder)
}

fn run(command: &mut Command) -> Result<String> {
    let done = command.output().with_context(|| format!("{command:?}"))?;
    let said = String::from_utf8_lossy(&done.stderr);
    ensure!(done.status.success(), "{command:?} failed: {said}");
    Ok(String::from_utf8_lossy(&done.stdout).into_owned())
}

fn documents(yaml: &str) -> Result<Vec<Value>> {
    use std::io::Write as _;
    let mut python = Command::new(TOOLS.join("bin/python"));
    let mut python = python
        .args(["-c", TO_JSON])
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .spawn()?;
    python.stdin.take().context("no input")?.write_all(yaml.as_bytes())?;
    let done = python.wait_with_output()?;
    ensure!(done.status.success(), "not YAML:\n{yaml}");
    let text = String::from_utf8(done.stdout)?;
    text.lines().map(|line| Ok(serde_json::from_str(line)?)).collect()
}

fn texts(value: &Value) -> Vec<String> {
    let list = value.as_array().cloned().unwrap_or_default();
    list.iter().filter_map(Value::as_str).map(str::to_owned).collect()
}

/// Fails unless the binary knows the command, each of its options, and each role.
fn ensure_known_command(words: &[String]) -> Result<()> {
    let [command, rest @ ..] = words else { bail!("no command") };
    let help = run(Command::new(BINARY).args([command.as_str(), "--help"]))?;
    for option in rest.iter().filter(|word| word.starts_with("--")) {
        ensure!(help.contains(option.as_str()), "{command} has no {option}");
    }
    let role = rest.iter().skip_while(|word| *word != "--role").nth(1);
    if let Some(role) = role {
        ensure!(["all", "api", "worker"].contains(&role.as_str()), "{role} is no role");
    }
    Ok(())
}

/// Fails unless the binary takes these variables and this file.
fn ensure_known_settings(variables: &BTreeMap<String, String>, config: &str) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("postrider.toml");
    fs::write(&file, config)?;
    let secret = folder.path().join("secret");
    fs::write(&secret, ADMIN_KEY)?;
    let mut command = Command::new(BINARY);
    command.args(["config", "check", "--config"]).arg(&file);
    for (name, value) in variables {
        let value = match value.contains("/run/secrets/") && name.ends_with("_FILE") {
            true => secret.display().to_string(),
            false => value.clone(),
        };
        command.env(name, value);
    }
    run(&mut command)?;
    // A mistake would be noticed.
    let wrong = command.env("POSTRIDER_SERVER__NO_SUCH_FIELD", "1").output()?;
    ensure!(!wrong.status.success(), "unknown variables are not noticed");
    Ok(())
}

fn compose_files() -> Result<Vec<PathBuf>> {
    let entries = fs::read_dir(deploy("compose"))?;
    let paths = entries.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>>>()?;
    Ok(paths.into_iter().filter(|path| path.extension().is_some_and(|e| e == "yaml")).collect())
}

#[test]
fn compose_files_use_only_what_the_binary_knows() -> Result<()> {
    let files = compose_files()?;
    assert_eq!(files.len(), 4, "{files:?}");
    for file in files {
        let name = file.display().to_string();
        let document = documents(&fs::read_to_string(&file)?)?.remove(0);
        let services = document["services"].as_object().context(name.clone())?;
        let ours = services.iter().filter(|(_, service)| service["image"] == "postrider");
        let mut nodes = 0;
        for (service, settings) in ours {
            nodes += 1;
            let about = format!("{name}: {service}");
            ensure_known_command(&texts(&settings["command"])).context(about.clone())?;
            let variables = settings["environment"].as_object().context(about.clone())?;
            let variables: BTreeMap<_, _> = variables
                .iter()
                .filter_map(|(name, value)| Some((name.clone(), value.as_str()?.to_owned())))
                .collect();
            ensure_known_settings(&variables, "").context(about.clone())?;
            let context = settings["build"]["dockerfile"].as_str().unwrap_or_default();
            ensure!(deploy("..").join(context).exists(), "{about}: no {context}");
            ensure!(settings["read_only"] == true, "{about}: may write its image");
            for dependency in settings["depends_on"].as_object().into_iter().flatten() {
                ensure!(services.contains_key(dependency.0), "{about}: no {}", dependency.0);
            }
        }
        assert!(nodes > 0, "{name} starts no server");
    }
    Ok(())
}

/// A replica that has not got a write yet can be promoted.
#[test]
fn with_replicas_of_redis_a_write_is_acknowledged_when_they_have_it_on_disk() -> Result<()> {
    let mut clusters = 0;
    for file in compose_files()? {
        let name = file.display().to_string();
        let document = documents(&fs::read_to_string(&file)?)?.remove(0);
        let services = document["services"].as_object().context(name.clone())?;
        let command = |service: &Value| texts(&service["command"]).join(" ");
        let all: Vec<_> = services.values().map(command).collect();
        let made = all.iter().find_map(|words| words.split_once("--cluster-replicas "));
        let Some((_, rest)) = made else { continue };
        clusters += 1;
        let replicas = rest.split_whitespace().next().unwrap_or_default();
        ensure!(replicas != "0", "{name}: no replica");
        for service in services.values().filter(|service| service["image"] == "postrider") {
            let url = service["environment"]["POSTRIDER_STORE__URL"].as_str().unwrap_or_default();
            let wanted = format!("replicas={replicas}");
            let (_, query) = url.split_once('?').with_context(|| format!("{name}: {url}"))?;
            ensure!(query.split('&').any(|pair| pair == wanted), "{name}: {url}, not {wanted}");
        }
        for words in all.iter().filter(|words| words.starts_with("redis-server ")) {
            let is_on_disk = ["--appendonly yes", "--appendfsync always"];
            ensure!(is_on_disk.iter().all(|option| words.contains(option)), "{name}: {words}");
        }
    }
    assert_eq!(clusters, 1);
    Ok(())
}

fn helm(arguments: &[&str]) -> Result<String> {
    run(Command::new(TOOLS.join("bin/helm")).args(arguments).arg(deploy("helm/postrider")))
}

const VALUES: [&str; 8] = [
    "--set",
    "store.url=postgres://postrider@database:5432/postrider",
    "--set",
    "adminSecret.name=postrider-admin",
    "--set",
    "store.passwordSecret.name=database",
    "--set",
    "worker.autoscaling.enabled=true,serviceMonitor.enabled=true",
];

#[test]
fn the_chart_has_every_part_and_names_only_what_the_binary_knows() -> Result<()> {
    helm(&[&["lint"], VALUES.as_slice()].concat())?;
    let all = documents(&helm(&[&["template", "release"], VALUES.as_slice()].concat())?)?;
    let kinds: Vec<_> = all.iter().filter_map(|object| object["kind"].as_str()).collect();
    for kind in
        ["Deployment", "StatefulSet", "HorizontalPodAutoscaler", "ServiceMonitor", "ConfigMap"]
    {
        assert_eq!(kinds.iter().filter(|found| **found == kind).count(), 1, "{kind}");
    }
    assert_eq!(kinds.iter().filter(|kind| **kind == "PodDisruptionBudget").count(), 2);
    let config = all.iter().find(|object| object["kind"] == "ConfigMap").context("no config")?;
    let config = config["data"]["postrider.toml"].as_str().context("no postrider.toml")?;
    for kind in ["Deployment", "StatefulSet"] {
        let pods = all.iter().find(|object| object["kind"] == kind).context(kind)?;
        let pod = &pods["spec"]["template"]["spec"];
        let container = &pod["containers"][0];
        ensure_known_command(&texts(&container["args"]))?;
        ensure_known_settings(&variables_of(container), config)?;
        for (probe, path) in [("livenessProbe", "/healthz"), ("readinessProbe", "/readyz")] {
            assert_eq!(container[probe]["httpGet"]["path"], path);
        }
        assert_eq!(pod["securityContext"]["runAsNonRoot"], true);
        assert_eq!(container["securityContext"]["readOnlyRootFilesystem"], true);
        let selector = &pods["spec"]["selector"]["matchLabels"];
        assert_eq!(*selector, pods["spec"]["template"]["metadata"]["labels"]);
    }
    let scaler = all.iter().find(|object| object["kind"] == "HorizontalPodAutoscaler");
    let metric = &scaler.context("no scaler")?["spec"]["metrics"][0]["pods"]["metric"]["name"];
    assert_eq!(*metric, "postrider_lag_seconds");
    Ok(())
}

fn variables_of(container: &Value) -> BTreeMap<String, String> {
    let list = container["env"].as_array().cloned().unwrap_or_default();
    let variable = |entry: &Value| {
        let value = entry["value"].as_str().unwrap_or(ADMIN_KEY);
        Some((entry["name"].as_str()?.to_owned(), value.to_owned()))
    };
    list.iter().filter_map(variable).collect()
}

#[test]
fn a_chart_without_a_store_or_with_too_many_workers_is_refused() -> Result<()> {
    let missing = helm(&["template", "release"]).expect_err("no store").to_string();
    assert!(missing.contains("store.url must be set"), "{missing}");
    let many = [&["template", "release"], VALUES.as_slice(), &["--set", "worker.replicas=49"]];
    assert!(helm(&many.concat()).is_err(), "there are 64 shards");
    Ok(())
}

#[test]
fn systemd_takes_the_units() -> Result<()> {
    let folder = tempfile::tempdir()?;
    for name in ["postrider.service", "postrider-worker@.service"] {
        let unit = fs::read_to_string(deploy("systemd").join(name))?;
        let start = unit.lines().find_map(|line| line.strip_prefix("ExecStart=")).context(name)?;
        let words: Vec<_> = start.split_whitespace().skip(1).map(str::to_owned).collect();
        ensure_known_command(&words)?;
        let path = folder.path().join(name);
        fs::write(&path, unit.replace("/usr/local/bin/postrider", BINARY))?;
        let mut verify = Command::new("systemd-analyze");
        let done = verify.args(["verify", "--man=no"]).arg(&path).output();
        let done = done.context("systemd-analyze, of the Debian package systemd")?;
        let said = String::from_utf8_lossy(&done.stderr);
        ensure!(done.status.success() && !said.contains(name), "{name}: {said}");
    }
    // The socket, beside the service that it names.
    let name = "postrider.socket";
    let unit = fs::read_to_string(deploy("systemd").join(name))?;
    let service = unit.lines().find_map(|line| line.strip_prefix("Service=")).context(name)?;
    ensure!(folder.path().join(service).exists(), "{name} names {service}");
    let path = folder.path().join(name);
    fs::write(&path, &unit)?;
    let mut verify = Command::new("systemd-analyze");
    let done = verify.args(["verify", "--man=no"]).arg(&path).output()?;
    let said = String::from_utf8_lossy(&done.stderr);
    ensure!(done.status.success() && !said.contains(name), "{name}: {said}");
    let listens = unit.lines().find_map(|line| line.strip_prefix("ListenStream=")).context(name)?;
    ensure_known_settings(
        &BTreeMap::new(),
        &format!("[server]\nlisten = \"{listens}\"\n[admin]\nkey = \"{ADMIN_KEY}\"\n"),
    )
}

#[test]
fn the_image_starts_the_server_without_root() -> Result<()> {
    let text = fs::read_to_string(deploy("Containerfile"))?;
    let last = text.rsplit("\nFROM ").next().context("no stage")?;
    assert!(last.starts_with("gcr.io/distroless/") && last.contains("\nUSER nonroot"), "{last}");
    let array = |name: &str| -> Result<Vec<String>> {
        let line =
            last.lines().find_map(|line| line.strip_prefix(name)).context(name.to_owned())?;
        Ok(serde_json::from_str(line)?)
    };
    assert_eq!(array("ENTRYPOINT ")?, ["/usr/local/bin/postrider"]);
    ensure_known_command(&array("CMD ")?)?;
    let line = last.lines().find_map(|line| line.strip_prefix("ENV ")).context("no ENV")?;
    let variables = line.split(' ').filter_map(|pair| pair.split_once('='));
    ensure_known_settings(&variables.map(|(n, v)| (n.to_owned(), v.to_owned())).collect(), "")?;
    for source in last.lines().filter(|line| line.starts_with("COPY")) {
        let source = source.split_whitespace().find(|word| word.starts_with("/src/"));
        let source = source.context("a source")?.trim_start_matches("/src/");
        ensure!(source.starts_with("target/") || deploy("..").join(source).exists(), "no {source}");
    }
    Ok(())
}
