//! `cargo xtask supply`: checks licences, bans and sources of all dependencies by the rules of `deny.toml`, from what
//! cargo itself knows, without another tool, for the platform that it runs on. `cargo xtask sbom`: lists them.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::licence::is_allowed;
use crate::shell;

const REGISTRY: &str = "registry+https://github.com/rust-lang/crates.io-index";

#[derive(Deserialize)]
struct CargoMetadata {
    packages: Vec<CargoPackage>,
    resolve: ResolvedGraph,
}

#[derive(Debug, Clone, Deserialize)]
struct CargoPackage {
    id: String,
    name: String,
    version: String,
    license: Option<String>,
    license_file: Option<String>,
    /// Absent for our own.
    source: Option<String>,
    repository: Option<String>,
}

#[derive(Deserialize)]
struct ResolvedGraph {
    nodes: Vec<ResolvedNode>,
}

#[derive(Deserialize)]
struct ResolvedNode {
    id: String,
    dependencies: Vec<String>,
}

/// The rules of `deny.toml` that are checked here.
#[derive(Deserialize)]
struct DenyRules {
    licenses: LicenceRules,
    bans: BanRules,
}

#[derive(Deserialize)]
struct LicenceRules {
    allow: Vec<String>,
}

#[derive(Deserialize)]
struct BanRules {
    deny: Vec<BannedPackage>,
}

#[derive(Deserialize)]
struct BannedPackage {
    name: String,
    reason: String,
    /// Packages that may have it all the same.
    #[serde(default)]
    wrappers: Vec<String>,
}

/// Checks everything, and says how much that was.
pub(crate) fn check() -> Result<()> {
    let root = shell::root();
    shell::heading("licences, bans and sources of the dependencies");
    let metadata = metadata(&root)?;
    let rules: DenyRules =
        toml::from_str(&std::fs::read_to_string(root.join("deny.toml"))?).context("deny.toml")?;
    let flaws = flaws(&metadata, &rules);
    ensure!(flaws.is_empty(), "{}", flaws.join("\n"));
    eprintln!("{} packages are fine", metadata.packages.len());
    Ok(())
}

fn metadata(root: &Path) -> Result<CargoMetadata> {
    let compiler = shell::output(root, &["rustc", "-vV"])?;
    let host = compiler.lines().find_map(|line| line.strip_prefix("host: "));
    let host = host.context("rustc names no host")?;
    // Fetches what a fresh machine does not have yet; what other platforms need is neither fetched nor looked at.
    let mut command = shell::command(&["cargo", "metadata", "--format-version=1", "--locked"])?;
    command.args(["--all-features", "--filter-platform", host]);
    let output = command.current_dir(root).output().context("cargo metadata")?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "cargo metadata failed: {said}");
    serde_json::from_slice(&output.stdout).context("what cargo metadata prints")
}

fn flaws(metadata: &CargoMetadata, rules: &DenyRules) -> Vec<String> {
    let mut flaws = Vec::new();
    let names: BTreeMap<&str, &CargoPackage> =
        metadata.packages.iter().map(|package| (package.id.as_str(), package)).collect();
    for package in metadata.packages.iter().filter(|package| package.source.is_some()) {
        let shown = format!("{} {}", package.name, package.version);
        match (&package.license, &package.license_file) {
            (Some(licence), _) if is_allowed(licence, &rules.licenses.allow) => {}
            (Some(licence), _) => {
                flaws.push(format!("{shown}: the licence {licence} is not allowed"))
            }
            (None, file) => flaws.push(format!("{shown}: no licence is named (file: {file:?})")),
        }
        if package.source.as_deref() != Some(REGISTRY) {
            flaws.push(format!("{shown}: it comes from {:?}", package.source));
        }
    }
    for banned in &rules.bans.deny {
        let users: BTreeSet<&str> = metadata
            .resolve
            .nodes
            .iter()
            .filter(|node| {
                node.dependencies
                    .iter()
                    .any(|id| names.get(id.as_str()).is_some_and(|p| p.name == banned.name))
            })
            .filter_map(|node| names.get(node.id.as_str()).map(|package| package.name.as_str()))
            .collect();
        for user in users.iter().filter(|user| !banned.wrappers.iter().any(|name| name == **user)) {
            flaws.push(format!("{user} uses {}, which is banned: {}", banned.name, banned.reason));
        }
    }
    flaws
}

/// Prints a list of everything that the program is made of, in the form of CycloneDX 1.5.
pub(crate) fn sbom() -> Result<()> {
    let root = shell::root();
    let metadata = metadata(&root)?;
    let checksums = checksums(&root)?;
    println!("{:#}", bill(&metadata, &checksums));
    Ok(())
}

/// The SHA-256 of each package, by name and version, from the lock file.
fn checksums(root: &Path) -> Result<BTreeMap<(String, String), String>> {
    #[derive(Deserialize)]
    struct LockFile {
        package: Vec<LockedPackage>,
    }
    #[derive(Deserialize)]
    struct LockedPackage {
        name: String,
        version: String,
        checksum: Option<String>,
    }
    let text = std::fs::read_to_string(root.join("Cargo.lock"))?;
    let lock: LockFile = toml::from_str(&text).context("Cargo.lock")?;
    let known = lock.package.into_iter();
    Ok(known
        .filter_map(|package| Some(((package.name, package.version), package.checksum?)))
        .collect())
}

fn bill(metadata: &CargoMetadata, checksums: &BTreeMap<(String, String), String>) -> Value {
    let shipped = shipped(metadata);
    let reference =
        |package: &CargoPackage| format!("pkg:cargo/{}@{}", package.name, package.version);
    let component = |package: &&CargoPackage| {
        let mut component = json!({
            "type": "library",
            "bom-ref": reference(package),
            "name": package.name,
            "version": package.version,
            "purl": reference(package),
            "licenses": [{"expression": package.license.clone().unwrap_or_default().replace('/', " OR ")}],
        });
        let key = (package.name.clone(), package.version.clone());
        if let Some(checksum) = checksums.get(&key) {
            component["hashes"] = json!([{"alg": "SHA-256", "content": checksum}]);
        }
        if let Some(repository) = &package.repository {
            component["externalReferences"] = json!([{"type": "vcs", "url": repository}]);
        }
        component
    };
    let mut parts: Vec<_> = metadata.packages.iter().filter(|p| shipped.contains(&p.id)).collect();
    parts.sort_by(|a, b| (&a.name, &a.version).cmp(&(&b.name, &b.version)));
    let by_id: BTreeMap<&str, &CargoPackage> =
        metadata.packages.iter().map(|package| (package.id.as_str(), package)).collect();
    let depends = |node: &ResolvedNode| {
        let on = node.dependencies.iter().filter(|id| shipped.contains(*id));
        let on: Vec<_> = on.filter_map(|id| by_id.get(id.as_str()).map(|p| reference(p))).collect();
        by_id
            .get(node.id.as_str())
            .map(|package| json!({"ref": reference(package), "dependsOn": on}))
    };
    let nodes = metadata.resolve.nodes.iter().filter(|node| shipped.contains(&node.id));
    let program = parts.iter().find(|package| package.name == "postrider");
    json!({
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {"component": program.map(component)},
        "components": parts.iter().filter(|p| p.name != "postrider").map(component).collect::<Vec<_>>(),
        "dependencies": nodes.filter_map(depends).collect::<Vec<_>>(),
    })
}

/// What the program depends on, directly or not. Tools and tests of ours are left out.
fn shipped(metadata: &CargoMetadata) -> BTreeSet<String> {
    let nodes: BTreeMap<&str, &ResolvedNode> =
        metadata.resolve.nodes.iter().map(|node| (node.id.as_str(), node)).collect();
    let program = metadata.packages.iter().find(|package| package.name == "postrider");
    let mut open: Vec<String> = program.map(|package| package.id.clone()).into_iter().collect();
    let mut found = BTreeSet::new();
    while let Some(id) = open.pop() {
        let node = nodes.get(id.as_str());
        if found.insert(id) {
            open.extend(node.iter().flat_map(|node| node.dependencies.iter().cloned()));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn example(licence: &str, source: &str) -> CargoMetadata {
        serde_json::from_value(json!({
            "packages": [
                {"id": "a", "name": "postrider", "version": "1.0.0", "license": "MIT", "source": null},
                {"id": "b", "name": "part", "version": "2.0.0", "license": licence, "source": source},
            ],
            "resolve": {"nodes": [
                {"id": "a", "dependencies": ["b"]},
                {"id": "b", "dependencies": []},
            ]},
        }))
        .unwrap()
    }

    fn rules(banned: &str) -> DenyRules {
        let text = format!(
            "[licenses]\nallow = [\"MIT\"]\n[bans]\ndeny = [{{ name = \"{banned}\", reason = \"why\" }}]"
        );
        toml::from_str(&text).unwrap()
    }

    #[test]
    fn a_wrong_licence_source_or_package_is_found() {
        assert!(flaws(&example("MIT", REGISTRY), &rules("other")).is_empty());
        assert!(flaws(&example("GPL-3.0", REGISTRY), &rules("other"))[0].contains("GPL-3.0"));
        assert!(flaws(&example("MIT", "git+https://x"), &rules("other"))[0].contains("git+https"));
        assert!(flaws(&example("MIT", REGISTRY), &rules("part"))[0].contains("banned: why"));
    }

    #[test]
    fn the_bill_lists_what_is_shipped_with_its_hash() {
        let hashes = BTreeMap::from([(("part".to_owned(), "2.0.0".to_owned()), "ab".to_owned())]);
        let bill = bill(&example("MIT", REGISTRY), &hashes);
        assert_eq!(bill["components"][0]["purl"], "pkg:cargo/part@2.0.0");
        assert_eq!(bill["components"][0]["hashes"][0]["content"], "ab");
        assert_eq!(bill["dependencies"][0]["dependsOn"][0], "pkg:cargo/part@2.0.0");
    }
}
