//! Any file of claims is refused with its place, or gives the plans to run.

use forebay_lab::judge::Claims;

/// The bytes are a file of claims.
pub fn run(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    match Claims::read(&text, "claims.toml") {
        Ok(claims) => {
            for plan in &claims.plan {
                let all = plan.variants().chain([plan.clone()]);
                for part in
                    all.flat_map(|it| it.seeds.keys().map(|name| it.part(name)).collect::<Vec<_>>())
                {
                    assert!(part.starts_with(&plan.name), "{part}");
                }
            }
        }
        Err(error) => {
            let message = format!("{error:#}");
            assert!(message.starts_with("claims.toml:"), "{message}");
        }
    }
}
