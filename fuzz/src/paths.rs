//! Any text is a clean absolute path or a clear refusal; resolving a result again changes nothing.

#![no_main]

use std::path::{Component, Path};

use atoll_e2b::guest::path::resolve;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &str| {
    let home = Path::new("/home/user");
    let Ok(path) = resolve(input, home, Some(Path::new("/work"))) else { return };
    assert!(path.is_absolute(), "{path:?}");
    let clean = path.components().all(|c| matches!(c, Component::RootDir | Component::Normal(_)));
    assert!(clean, "{path:?}");
    let text = path.to_str().expect("text in, text out");
    assert!(!text.contains('\0'), "{text:?}");
    assert_eq!(resolve(text, home, None).as_deref(), Ok(path.as_path()));
});
