//! What a path argument means: a pure function of the text, the user's home and the workdir.

use std::path::{Component, Path, PathBuf};

/// The longest path that the kernel takes, without its terminator.
const PATH_BYTES_MAX: usize = 4095;

/// Why a path argument means nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PathError {
    /// It has a NUL byte.
    #[error("the path contains a NUL byte; remove it")]
    Nul,
    /// It is longer than the kernel takes.
    #[error("the path is longer than {PATH_BYTES_MAX} bytes; shorten it")]
    TooLong,
    /// It begins with somebody's name.
    #[error("the home of another user can't be expanded; write its path")]
    OtherHome,
}

/// The absolute path without `.` and `..`: nothing means the workdir (or the home), `~` the home,
/// and a relative path begins at the home.
pub fn resolve(path: &str, home: &Path, workdir: Option<&Path>) -> Result<PathBuf, PathError> {
    if path.contains('\0') {
        return Err(PathError::Nul);
    }
    let joined = match path {
        "" => workdir.unwrap_or(home).to_owned(),
        "~" => home.to_owned(),
        _ => match path.strip_prefix('~') {
            Some(rest) => match rest.strip_prefix('/') {
                Some(below) => home.join(below.trim_start_matches('/')),
                None => return Err(PathError::OtherHome),
            },
            None => home.join(path),
        },
    };
    let clean = clean(&joined);
    if clean.as_os_str().len() > PATH_BYTES_MAX {
        return Err(PathError::TooLong);
    }
    Ok(clean)
}

fn clean(path: &Path) -> PathBuf {
    let mut clean = PathBuf::from("/");
    for part in path.components() {
        match part {
            Component::Normal(name) => clean.push(name),
            // At the root this does nothing, as in the kernel.
            Component::ParentDir => drop(clean.pop()),
            Component::RootDir | Component::CurDir | Component::Prefix(_) => {}
        }
    }
    clean
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn resolved(path: &str) -> Result<PathBuf, PathError> {
        resolve(path, Path::new("/home/user"), Some(Path::new("/work")))
    }

    #[test]
    fn paths_begin_where_the_contract_says() {
        let cases = [
            ("", "/work"),
            ("~", "/home/user"),
            ("~/a", "/home/user/a"),
            ("~//etc", "/home/user/etc"),
            ("a/b", "/home/user/a/b"),
            ("./a/./b/", "/home/user/a/b"),
            ("../x", "/home/x"),
            ("/a//b/../c", "/a/c"),
            ("/../../etc/passwd", "/etc/passwd"),
            ("a~", "/home/user/a~"),
            ("$HOME", "/home/user/$HOME"),
        ];
        for (given, want) in cases {
            assert_eq!(resolved(given), Ok(PathBuf::from(want)), "{given:?}");
        }
        assert_eq!(resolve("", Path::new("/h"), None), Ok(PathBuf::from("/h")));
        assert_eq!(resolved("~root/x"), Err(PathError::OtherHome));
        assert_eq!(resolved("a\0b"), Err(PathError::Nul));
        assert_eq!(resolved(&"x".repeat(5000)), Err(PathError::TooLong));
    }

    proptest! {
        #[test]
        fn every_answer_is_absolute_and_final(path in "[a~./\\PC]{0,60}") {
            if let Ok(found) = resolved(&path) {
                prop_assert!(found.is_absolute());
                let is_plain = |c: Component| matches!(c, Component::Normal(_) | Component::RootDir);
                prop_assert!(found.components().all(is_plain));
                let again = resolved(found.to_str().unwrap());
                prop_assert_eq!(again, Ok(found));
            }
        }
    }
}
