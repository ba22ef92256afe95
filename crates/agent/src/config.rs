use serde::Deserialize;
use std::collections::BTreeMap;

/// What a launcher tells the agent about its sandbox; unknown members are ignored.
#[derive(Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(default)]
pub(crate) struct Config {
    /// The sandbox's id.
    pub(crate) id: String,
    /// The program to run beside serving, with its arguments; empty for none.
    pub(crate) entrypoint: Vec<String>,
    /// The sandbox's variables.
    pub(crate) env: BTreeMap<String, String>,
    /// Where the entrypoint and commands start.
    pub(crate) cwd: Option<String>,
    /// Who the entrypoint runs as, and commands that name nobody: `name`, `uid`, `uid:gid` or
    /// `name:group`.
    pub(crate) user: Option<String>,
    /// A secret that every caller must present.
    pub(crate) access_token: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_may_be_missing_null_or_unknown() {
        let text = r#"{"id":"s1","entrypoint":["tail","-f","/dev/null"],"env":{"A":"b"},
            "cwd":null,"user":null,"later":{"x":1}}"#;
        let config: Config = serde_json::from_str(text).unwrap();
        assert_eq!(config.entrypoint, ["tail", "-f", "/dev/null"]);
        assert_eq!(config.env["A"], "b");
        assert_eq!((config.cwd, config.user), (None, None));
        assert_eq!(serde_json::from_str::<Config>("{}").unwrap(), Config::default());
    }
}
