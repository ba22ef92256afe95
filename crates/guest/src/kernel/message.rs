//! Messages of the Jupyter protocol 5.3: five signed JSON parts after a mark.

mod signature;

use crate::id;
use bytes::Bytes;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

pub(super) use signature::Key;

const MARK: &[u8] = b"<IDS|MSG>";
const VERSION: &str = "5.3";

/// The members of a header that are of use here.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct Header {
    pub(super) msg_type: String,
    #[serde(default)]
    pub(super) date: String,
}

/// A message from a kernel.
#[derive(Debug)]
pub(super) struct Message {
    pub(super) header: Header,
    /// The request that it belongs to; empty for none.
    pub(super) parent_id: String,
    pub(super) content: Value,
}

/// Who a kernel's client says it is, and the secret that both share.
#[derive(Debug)]
pub(super) struct Session {
    id: String,
    key: Key,
}

#[derive(Serialize)]
struct OwnHeader<'a> {
    msg_id: &'a str,
    session: &'a str,
    username: &'a str,
    date: String,
    msg_type: &'a str,
    version: &'a str,
}

impl Session {
    pub(super) fn new(key: Key) -> Self {
        Self { id: id::fresh(), key }
    }

    /// A request and its id.
    pub(super) fn request(&self, kind: &str, content: &Value) -> (String, Vec<Vec<u8>>) {
        let msg_id = id::fresh();
        let header = OwnHeader {
            msg_id: &msg_id,
            session: &self.id,
            username: "atoll",
            date: Timestamp::now().to_string(),
            msg_type: kind,
            version: VERSION,
        };
        let header = serde_json::to_vec(&header).expect("a header is plain text");
        let parts = [header, b"{}".to_vec(), b"{}".to_vec(), content.to_string().into_bytes()];
        let signature = self.key.sign(parts.iter().map(Vec::as_slice));
        let mut frames = vec![MARK.to_vec(), signature.into_bytes()];
        frames.extend(parts);
        (msg_id, frames)
    }

    /// Reads a message; nothing for one that is not signed with the shared secret or makes no
    /// sense, which is ignored as every client of a kernel ignores it.
    pub(super) fn read(&self, frames: &[Bytes]) -> Option<Message> {
        let mark = frames.iter().position(|frame| frame == MARK)?;
        let [signature, header, parent, metadata, content, ..] = &frames[mark + 1..] else {
            return None;
        };
        let signed = [header, parent, metadata, content].map(|part| &part[..]);
        if !self.key.verify(signed.into_iter(), signature) {
            return None;
        }
        let parent: Map<String, Value> = serde_json::from_slice(parent).ok()?;
        let parent_id = parent.get("msg_id").and_then(Value::as_str).unwrap_or_default();
        Some(Message {
            header: serde_json::from_slice(header).ok()?,
            parent_id: parent_id.to_owned(),
            content: serde_json::from_slice(content).ok()?,
        })
    }
}

/// What an execution is asked for with. A silent one shows nothing and is not counted.
pub(super) fn execute_request(code: &str, silent: bool) -> Value {
    json!({
        "code": code,
        "silent": silent,
        "store_history": !silent,
        "user_expressions": {},
        "allow_stdin": false,
        "stop_on_error": true,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frames(parts: Vec<Vec<u8>>) -> Vec<Bytes> {
        parts.into_iter().map(Bytes::from).collect()
    }

    #[test]
    fn what_is_signed_with_the_same_secret_is_read() {
        let session = Session::new(Key::new("a secret"));
        let (id, parts) = session.request("execute_request", &execute_request("1", false));
        let mut with_topic = frames(parts);
        with_topic.insert(0, Bytes::from_static(b"kernel.x.status"));
        let message = session.read(&with_topic).unwrap();
        assert!(message.parent_id.is_empty() && !id.is_empty());
        assert_eq!(message.header.msg_type, "execute_request");
        assert_eq!(message.content["code"], "1");
        message.header.date.parse::<Timestamp>().unwrap();
    }

    #[test]
    fn a_wrong_secret_a_changed_part_or_a_missing_one_is_ignored() {
        let session = Session::new(Key::new("a secret"));
        let (_, parts) = session.request("status", &json!({"execution_state": "idle"}));
        assert!(Session::new(Key::new("another")).read(&frames(parts.clone())).is_none());
        let mut changed = parts.clone();
        changed[5] = br#"{"execution_state":"busy"}"#.to_vec();
        assert!(session.read(&frames(changed)).is_none());
        for length in 0..parts.len() {
            assert!(session.read(&frames(parts[..length].to_vec())).is_none());
        }
        let mut unsigned = parts;
        unsigned[1] = Vec::new();
        assert!(session.read(&frames(unsigned)).is_none());
    }
}
