//! Users and groups of the host image, and their homes.

use super::plan::{Item, Plan};
use crate::Error;
use std::path::Path;

/// User and group 0.
pub(super) const ROOT: (u32, u32) = (0, 0);
/// The account that people work as.
pub(super) const USER: (u32, u32) = (1000, 1000);
/// Group that may read password hashes, as Debian numbers it.
const SHADOW: u32 = 42;

const PASSWD: &str = "root:x:0:0:root:/root:/bin/bash\n\
     daemon:x:1:1:daemon:/usr/sbin:/usr/sbin/nologin\n\
     nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n\
     user:x:1000:1000:user:/home/user:/bin/bash\n";
const GROUP: &str = "root:x:0:\ndaemon:x:1:\nadm:x:4:\ntty:x:5:\ndisk:x:6:\nmail:x:8:\nsudo:x:27:user\n\
     shadow:x:42:\nutmp:x:43:\nstaff:x:50:\nusers:x:100:\nnogroup:x:65534:\nuser:x:1000:\n";
/// No account has a password, and none can be guessed.
const SHADOW_FILE: &str = "root:*:19000:0:99999:7:::\ndaemon:*:19000:0:99999:7:::\n\
     nobody:*:19000:0:99999:7:::\nuser:*:19000:0:99999:7:::\n";
const GSHADOW: &str = "root:*::\ndaemon:*::\nadm:*::\ntty:*::\ndisk:*::\nmail:*::\nsudo:*::user\nshadow:*::\n\
     utmp:*::\nstaff:*::\nusers:*::\nnogroup:*::\nuser:!::\n";

/// Plans accounts and homes.
pub(super) fn add(plan: &mut Plan) -> Result<(), Error> {
    let files = [
        ("etc/passwd", PASSWD, 0o644, ROOT),
        ("etc/group", GROUP, 0o644, ROOT),
        ("etc/shadow", SHADOW_FILE, 0o640, (0, SHADOW)),
        ("etc/gshadow", GSHADOW, 0o640, (0, SHADOW)),
    ];
    for (path, content, mode, owner) in files {
        plan.add(path, Item::Text { content: content.to_owned(), mode, owner });
    }
    plan.add("home/user", Item::Directory { mode: 0o755, owner: USER });
    for (home, owner) in [("home/user", USER), ("root", ROOT)] {
        for name in [".bashrc", ".profile", ".bash_logout"] {
            plan.copy(&Path::new("/etc/skel").join(name), &Path::new(home).join(name), owner)?;
        }
    }
    Ok(())
}
