//! The bill of materials of the program: the crates that are part of it, in CycloneDX 1.5 (ECMA-424).

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

/// The bill of materials of a `program` in its version `version`, built for `triple` from a repository, as JSON.
pub fn of(repository: &Path, program: &str, triple: &str, version: &str) -> Result<String> {
    let output = Command::new(env!("CARGO"))
        .current_dir(repository)
        .args(["metadata", "--format-version", "1", "--locked", "--filter-platform", triple])
        .stderr(Stdio::inherit())
        .output()?;
    ensure!(output.status.success(), "cargo metadata ended with {}", output.status);
    let metadata: Value = serde_json::from_slice(&output.stdout)?;
    let lock = std::fs::read_to_string(repository.join("Cargo.lock"))?;
    let bill = bill(&metadata, &lock.parse()?, program, version)?;
    Ok(format!("{bill:#}\n"))
}

/// Combines cargo's metadata with the checksums in `Cargo.lock`.
fn bill(metadata: &Value, lock: &toml::Table, program: &str, version: &str) -> Result<Value> {
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_string();
    let packages: BTreeMap<String, Value> =
        list(&metadata["packages"]).into_iter().map(|it| (text(&it["id"]), it)).collect();
    let edges: BTreeMap<String, BTreeSet<String>> = list(&metadata["resolve"]["nodes"])
        .iter()
        .map(|node| {
            // Crates that build or test the program are no part of it.
            let is_part =
                |it: &Value| list(&it["dep_kinds"]).iter().any(|kind| kind["kind"].is_null());
            let parts = list(&node["deps"]).into_iter().filter(is_part);
            (text(&node["id"]), parts.map(|it| text(&it["pkg"])).collect())
        })
        .collect();
    let root = packages.iter().find(|(_, it)| it["name"] == program).map(|(id, _)| id);
    let root = root.with_context(|| format!("cargo metadata lists no package {program}"))?;
    let mut parts = BTreeSet::from([root.clone()]);
    let mut open = vec![root];
    while let Some(id) = open.pop() {
        open.extend(edges[id].iter().filter(|part| parts.insert((*part).clone())));
    }
    let purl = |id: &String| {
        let package = &packages[id];
        format!("pkg:cargo/{}@{}", text(&package["name"]), text(&package["version"]))
    };
    let component = |id: &String| {
        let package = &packages[id];
        let (name, version) = (text(&package["name"]), text(&package["version"]));
        // Older manifests have a stroke for "or".
        let licence = text(&package["license"]).replace('/', " OR ");
        let mut component = json!({
            "type": "library",
            "bom-ref": purl(id),
            "name": name,
            "version": version,
            "purl": purl(id),
            "licenses": [{ "expression": licence }],
        });
        if let Some(checksum) = checksum(lock, &name, &version) {
            component["hashes"] = json!([{ "alg": "SHA-256", "content": checksum }]);
        }
        component
    };
    let dependencies = parts.iter().map(|id| {
        let on: Vec<String> = edges[id].iter().map(&purl).collect();
        json!({ "ref": purl(id), "dependsOn": on })
    });
    let mut program = component(root);
    program["type"] = json!("application");
    program["version"] = json!(version);
    Ok(json!({
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": { "component": program },
        "components": parts.iter().filter(|id| *id != root).map(component).collect::<Vec<_>>(),
        "dependencies": dependencies.collect::<Vec<_>>(),
    }))
}

/// The SHA-256 of a crate's archive; `None`: the crate is in this repository.
fn checksum(lock: &toml::Table, name: &str, version: &str) -> Option<String> {
    let packages = lock.get("package")?.as_array()?;
    let is_it = |it: &&toml::Value| {
        let is = |key: &str, value: &str| it.get(key).and_then(toml::Value::as_str) == Some(value);
        is("name", name) && is("version", version)
    };
    Some(packages.iter().find(is_it)?.get("checksum")?.as_str()?.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bill_lists_linked_crates_with_checksum_and_licence() {
        let package = |name: &str, license: &str| json!({ "id": name, "name": name, "version": "1.0.0", "license": license });
        let dep = |name: &str, kind: Value| json!({ "pkg": name, "dep_kinds": [{ "kind": kind }] });
        let node = |name: &str, deps: Vec<Value>| json!({ "id": name, "deps": deps });
        let metadata = json!({
            "packages": [
                package("forebay", "MIT OR Apache-2.0"), package("a", "MIT/Apache-2.0"),
                package("b", "Zlib"), package("builder", "MIT"), package("tester", "MIT"),
            ],
            "resolve": { "nodes": [
                node("forebay", vec![dep("a", Value::Null), dep("builder", json!("build")),
                                     dep("tester", json!("dev"))]),
                node("a", vec![dep("b", Value::Null)]),
                node("b", vec![]),
                node("builder", vec![dep("tester", Value::Null)]),
                node("tester", vec![]),
            ] },
        });
        let lock = "[[package]]\nname = \"b\"\nversion = \"1.0.0\"\nchecksum = \"c0ffee\"\n";
        let bill = bill(&metadata, &lock.parse().unwrap(), "forebay", "1.0.0~1").unwrap();
        let component = |place: usize| &bill["components"][place];
        assert_eq!(bill["components"].as_array().unwrap().len(), 2, "{bill:#}");
        assert_eq!(component(0)["purl"], "pkg:cargo/a@1.0.0");
        assert_eq!(component(0)["licenses"][0]["expression"], "MIT OR Apache-2.0");
        assert!(component(0).get("hashes").is_none());
        assert_eq!(component(1)["hashes"][0]["content"], "c0ffee");
        assert_eq!(bill["metadata"]["component"]["version"], "1.0.0~1");
        let on = &bill["dependencies"][2];
        assert_eq!(
            (&on["ref"], &on["dependsOn"][0]),
            (&json!("pkg:cargo/forebay@1.0.0"), &json!("pkg:cargo/a@1.0.0"))
        );
    }
}
