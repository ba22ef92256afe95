use crate::guest::json::Number;
use atoll_guest::{
    files::{Attributes, Entry, Kind},
    watch::{Change, Event},
};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// A message without members.
#[derive(Debug, Serialize)]
pub(super) struct Empty {}

#[derive(Debug, Deserialize)]
pub(super) struct PathRequest {
    pub(super) path: Option<String>,
}

#[derive(Debug, Deserialize)]
pub(super) struct MoveRequest {
    pub(super) source: Option<String>,
    pub(super) destination: Option<String>,
}

#[derive(Debug, Deserialize)]
pub(super) struct ListDirRequest {
    pub(super) path: Option<String>,
    pub(super) depth: Option<Number>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct WatchRequest {
    pub(super) path: Option<String>,
    pub(super) recursive: Option<bool>,
    #[serde(alias = "include_entry")]
    pub(super) include_entry: Option<bool>,
    #[serde(alias = "allow_network_mounts")]
    pub(super) allow_network_mounts: Option<bool>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct WatcherRequest {
    #[serde(alias = "watcher_id")]
    pub(super) watcher_id: Option<String>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct WatcherAnswer {
    pub(super) watcher_id: String,
}

#[derive(Debug, Serialize)]
pub(super) struct Events {
    pub(super) events: Vec<FilesystemEvent>,
}

#[derive(Debug, Serialize)]
pub(super) struct FilesystemEvent {
    name: String,
    #[serde(rename = "type")]
    kind: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    entry: Option<EntryInfo>,
}

impl FilesystemEvent {
    pub(super) fn new(event: &Event) -> Self {
        Self {
            name: event.name.to_string_lossy().into_owned(),
            kind: match event.change {
                Change::Create => "EVENT_TYPE_CREATE",
                Change::Write => "EVENT_TYPE_WRITE",
                Change::Remove => "EVENT_TYPE_REMOVE",
                Change::Rename => "EVENT_TYPE_RENAME",
                Change::Chmod => "EVENT_TYPE_CHMOD",
            },
            entry: event.entry.as_ref().map(EntryInfo::new),
        }
    }
}

#[derive(Debug, Serialize)]
pub(super) struct EntryAnswer {
    entry: EntryInfo,
}

impl EntryAnswer {
    pub(super) fn new(entry: &Entry) -> Self {
        Self { entry: EntryInfo::new(entry) }
    }
}

#[derive(Debug, Serialize)]
pub(super) struct Entries {
    entries: Vec<EntryInfo>,
}

impl Entries {
    pub(super) fn new(entries: &[Entry]) -> Self {
        Self { entries: entries.iter().map(EntryInfo::new).collect() }
    }
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct EntryInfo {
    name: String,
    #[serde(rename = "type")]
    kind: &'static str,
    path: String,
    /// 64-bit numbers travel as text.
    size: String,
    mode: u32,
    permissions: String,
    owner: String,
    group: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    modified_time: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    symlink_target: Option<String>,
    #[serde(skip_serializing_if = "Attributes::is_empty")]
    metadata: Attributes,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    is_symlink: bool,
}

impl EntryInfo {
    pub(super) fn new(entry: &Entry) -> Self {
        let text = |path: &std::path::Path| path.to_string_lossy().into_owned();
        // The root has no name but itself.
        let name = entry.path.file_name().map_or_else(|| "/".into(), |name| name.to_string_lossy());
        let modified = Timestamp::try_from(entry.modified_at).ok();
        Self {
            name: name.into_owned(),
            kind: match entry.kind {
                Kind::File => "FILE_TYPE_FILE",
                Kind::Directory => "FILE_TYPE_DIRECTORY",
                Kind::Symlink | Kind::Other => "FILE_TYPE_UNSPECIFIED",
            },
            path: text(&entry.path),
            size: entry.size.to_string(),
            mode: entry.mode,
            permissions: permissions(entry.raw_mode),
            owner: entry.owner.clone(),
            group: entry.group.clone(),
            modified_time: modified.map(|moment| format!("{moment:.9}")),
            symlink_target: entry.link_target.as_deref().map(text),
            metadata: entry.attributes.clone(),
            is_symlink: entry.is_symlink(),
        }
    }
}

/// A mode in the letters of the original: the type and special bits, then three times `rwx`.
fn permissions(mode: u32) -> String {
    const FORMAT: u32 = 0o170000;
    let kind = match mode & FORMAT {
        0o040000 => "d",
        0o120000 => "L",
        0o060000 => "D",
        0o010000 => "p",
        0o140000 => "S",
        0o020000 => "Dc",
        _ => "",
    };
    // The letter of a character device comes behind those of the set-id bits.
    let (device, character) = if kind == "Dc" { ("D", "c") } else { (kind, "") };
    let special = |bit, letter| if mode & bit != 0 { letter } else { "" };
    let mut letters = String::from(device);
    letters.push_str(special(0o4000, "u"));
    letters.push_str(special(0o2000, "g"));
    letters.push_str(character);
    letters.push_str(special(0o1000, "t"));
    if letters.is_empty() {
        letters.push('-');
    }
    for (index, letter) in "rwxrwxrwx".chars().enumerate() {
        letters.push(if mode & (0o400 >> index) != 0 { letter } else { '-' });
    }
    letters
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn permissions_are_written_like_the_original() {
        let cases = [
            (0o100644, "-rw-r--r--"),
            (0o040755, "drwxr-xr-x"),
            (0o120777, "Lrwxrwxrwx"),
            (0o041777, "dtrwxrwxrwx"),
            (0o104755, "urwxr-xr-x"),
            (0o020666, "Dcrw-rw-rw-"),
            (0o060660, "Drw-rw----"),
            (0o010600, "prw-------"),
            (0o140700, "Srwx------"),
        ];
        for (mode, want) in cases {
            assert_eq!(permissions(mode), want, "{mode:o}");
        }
    }
}
