//! Users and groups, read from `/etc/passwd` and `/etc/group` without NSS.

use crate::{Error, Result, sys};
use std::{fs::OpenOptions, io::Read, os::unix::fs::OpenOptionsExt, path::PathBuf};

/// Account files larger than this are cut; a hostile image cannot make the agent grow.
const FILE_BYTES_MAX: u64 = 1 << 20;
/// Supplementary groups taken from the group file, at most.
const GROUPS_MAX: usize = 1024;

/// Who a process or a file operation runs as.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// User id.
    pub uid: u32,
    /// Primary group id.
    pub gid: u32,
    /// Supplementary group ids.
    pub groups: Vec<u32>,
}

/// A user of the sandbox with what a login knows about them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Login {
    /// Login name, or the number of a user without a line.
    pub name: String,
    /// Home directory.
    pub home: PathBuf,
    /// Ids.
    pub identity: Identity,
    /// Somebody asked for this user; otherwise it is the sandbox's own.
    pub is_named: bool,
}

/// The account files' content at one moment.
#[derive(Debug, Default)]
pub struct Accounts {
    passwd: String,
    group: String,
}

/// One line of `/etc/passwd`.
#[derive(Debug, PartialEq, Eq)]
pub struct User<'a> {
    /// Login name.
    pub name: &'a str,
    /// User id.
    pub uid: u32,
    /// Primary group id.
    pub gid: u32,
    /// Home directory.
    pub home: &'a str,
}

impl Accounts {
    /// Reads the sandbox's account files; a missing file counts as empty.
    pub fn load() -> Self {
        Self { passwd: read_bounded("/etc/passwd"), group: read_bounded("/etc/group") }
    }

    /// Accounts from text, for callers that have the files' content already.
    pub fn parse(passwd: &str, group: &str) -> Self {
        Self { passwd: passwd.to_owned(), group: group.to_owned() }
    }

    /// All well-formed users in file order.
    pub fn users(&self) -> impl Iterator<Item = User<'_>> {
        self.passwd.lines().filter_map(|line| {
            let mut fields = line.split(':');
            let (name, _, uid) = (fields.next()?, fields.next()?, fields.next()?);
            let (gid, _, home) = (fields.next()?, fields.next()?, fields.next()?);
            Some(User { name, uid: uid.parse().ok()?, gid: gid.parse().ok()?, home })
        })
    }

    fn groups(&self) -> impl Iterator<Item = (&str, u32, &str)> {
        self.group.lines().filter_map(|line| {
            let mut fields = line.split(':');
            let (name, _, gid) = (fields.next()?, fields.next()?, fields.next()?);
            Some((name, gid.parse().ok()?, fields.next().unwrap_or("")))
        })
    }

    /// The user with this id.
    pub fn user_by_id(&self, uid: u32) -> Option<User<'_>> {
        self.users().find(|user| user.uid == uid)
    }

    /// The user's name, or the number as text.
    pub fn user_name(&self, uid: u32) -> String {
        self.user_by_id(uid).map_or_else(|| uid.to_string(), |user| user.name.to_owned())
    }

    /// The group's name, or the number as text.
    pub fn group_name(&self, gid: u32) -> String {
        let found = self.groups().find(|(_, id, _)| *id == gid);
        found.map_or_else(|| gid.to_string(), |(name, _, _)| name.to_owned())
    }

    /// A user id from a name or a number.
    pub fn uid(&self, text: &str) -> Result<u32> {
        if let Some(user) = self.users().find(|user| user.name == text) {
            return Ok(user.uid);
        }
        parse_id(text).ok_or_else(|| {
            Error::invalid(
                "owner",
                format!("no user {text:?} in /etc/passwd; use a name from it or a number"),
            )
        })
    }

    /// A group id from a name or a number.
    pub fn gid(&self, text: &str) -> Result<u32> {
        if let Some((_, gid, _)) = self.groups().find(|(name, _, _)| *name == text) {
            return Ok(gid);
        }
        parse_id(text).ok_or_else(|| {
            Error::invalid(
                "group",
                format!("no group {text:?} in /etc/group; use a name from it or a number"),
            )
        })
    }

    /// The identity for a user id: primary group as given, else from the user's line, else equal
    /// to the user id; supplementary groups as the group file lists them.
    pub fn identity(&self, uid: u32, gid: Option<u32>) -> Identity {
        let user = self.user_by_id(uid);
        let gid = gid.or(user.as_ref().map(|user| user.gid)).unwrap_or(uid);
        let member = |members: &str| {
            user.as_ref().is_some_and(|user| members.split(',').any(|name| name == user.name))
        };
        let groups = self
            .groups()
            .filter(|(_, id, members)| *id != gid && member(members))
            .map(|(_, id, _)| id)
            .take(GROUPS_MAX)
            .collect();
        Identity { uid, gid, groups }
    }

    /// The identity for `name`, `uid`, `uid:gid` or `name:group`.
    pub fn resolve(&self, spec: &str) -> Result<Identity> {
        match spec.split_once(':') {
            None => Ok(self.identity(self.uid(spec)?, None)),
            Some((user, group)) => Ok(self.identity(self.uid(user)?, Some(self.gid(group)?))),
        }
    }

    /// A user by the name in `/etc/passwd`, numbers not taken.
    pub fn login(&self, name: &str) -> Option<Login> {
        let user = self.users().find(|user| user.name == name)?;
        Some(self.login_as(self.identity(user.uid, Some(user.gid)), true))
    }

    /// The sandbox's own user, or the one that this process runs as.
    pub fn login_default(&self, user: Option<&Identity>) -> Login {
        let own = || self.identity(sys::effective_uid(), None);
        self.login_as(user.cloned().unwrap_or_else(own), false)
    }

    fn login_as(&self, identity: Identity, is_named: bool) -> Login {
        let (name, home) = (self.user_name(identity.uid), self.home(identity.uid));
        Login { name, home, identity, is_named }
    }

    /// The home directory for a user id; `/` when the user has no line.
    pub fn home(&self, uid: u32) -> PathBuf {
        let home = self.user_by_id(uid).map(|user| user.home).filter(|home| !home.is_empty());
        PathBuf::from(home.unwrap_or("/"))
    }
}

/// Parses a numeric id; the kernel reserves the largest value to mean "no change".
fn parse_id(text: &str) -> Option<u32> {
    text.parse().ok().filter(|id| *id != u32::MAX)
}

fn read_bounded(path: &str) -> String {
    let mut bytes = Vec::new();
    // Non-blocking, so that a pipe put in the file's place cannot hold a thread for ever.
    let opened = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(path);
    match opened.and_then(|file| file.take(FILE_BYTES_MAX).read_to_end(&mut bytes)) {
        Ok(_) => String::from_utf8_lossy(&bytes).into_owned(),
        Err(_) => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Accounts {
        Accounts::parse(
            "root:x:0:0:root:/root:/bin/sh\nbroken line\nann:x:1000:1001::/home/ann:/bin/sh\n",
            "root:x:0:\nann:x:1001:\nwheel:x:10:bob,ann\nvideo:x:44:annette\n",
        )
    }

    #[test]
    fn a_user_spec_resolves_names_and_numbers() {
        let ann = Identity { uid: 1000, gid: 1001, groups: vec![10] };
        let cases = [
            ("ann", Some(ann.clone())),
            ("1000", Some(ann)),
            ("ann:wheel", Some(Identity { uid: 1000, gid: 10, groups: vec![] })),
            ("5:6", Some(Identity { uid: 5, gid: 6, groups: vec![] })),
            ("77", Some(Identity { uid: 77, gid: 77, groups: vec![] })),
            ("nobody-here", None),
            ("ann:no-such", None),
            ("4294967295", None),
            ("", None),
        ];
        for (spec, want) in cases {
            assert_eq!(sample().resolve(spec).ok(), want, "{spec}");
        }
    }

    #[test]
    fn names_fall_back_to_numbers_and_home_to_the_root() {
        assert_eq!(sample().user_name(1000), "ann");
        assert_eq!(sample().user_name(4), "4");
        assert_eq!(sample().group_name(44), "video");
        assert_eq!(sample().home(1000), PathBuf::from("/home/ann"));
        assert_eq!(sample().home(4), PathBuf::from("/"));
    }
}
