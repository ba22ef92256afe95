//! Values that parse and still can't be right.

use std::collections::BTreeSet;
use std::path::PathBuf;

use atoll_core::TenantId;
use atoll_engine::{POOL_NAME_BYTES_MAX, POOL_SIZE_MAX, POOLS_MAX, STOCK_TENANT, is_pool_name};

use super::Config;

/// Shorter keys can be guessed.
const KEY_CHARS_MIN: usize = 16;

/// Why a configuration can't be used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file can't be read.
    #[error("the configuration file {path} can't be read")]
    Read {
        /// Which.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// It is no TOML, or has a key that is not known here.
    #[error("the configuration file is wrong: {0}")]
    Parse(Box<toml::de::Error>),
    /// A value can't be right.
    #[error("{key}: {problem}")]
    Value {
        /// Of which key.
        key: String,
        /// What is wrong, and what to write instead.
        problem: String,
    },
}

fn wrong(key: impl Into<String>, problem: impl Into<String>) -> ConfigError {
    ConfigError::Value { key: key.into(), problem: problem.into() }
}

impl Config {
    /// Refuses values that can't be right.
    ///
    /// # Errors
    /// [`ConfigError::Value`], naming the key.
    pub fn check(&self) -> Result<(), ConfigError> {
        self.check_tenants()?;
        self.check_limits()?;
        self.check_pools()?;
        for (index, path) in self.runtime.allowed_host_paths.iter().enumerate() {
            if !path.is_absolute() {
                let key = format!("runtime.allowed_host_paths[{index}]");
                return Err(wrong(key, "write an absolute path"));
            }
        }
        let isolation = &self.runtime.isolation;
        if isolation != "native" && !self.runtime.oci.contains(isolation) {
            let problem = format!("{isolation:?} is neither \"native\" nor a name in runtime.oci");
            return Err(wrong("runtime.isolation", problem));
        }
        if self.public_host.as_deref().is_some_and(|host| host.contains("://") || host.is_empty()) {
            return Err(wrong(
                "public_host",
                "write a host without a scheme, such as box.example:80",
            ));
        }
        Ok(())
    }

    fn check_tenants(&self) -> Result<(), ConfigError> {
        let (mut names, mut keys) = (BTreeSet::new(), BTreeSet::new());
        for (index, tenant) in self.tenants.iter().enumerate() {
            let key = |member: &str| format!("tenants[{index}].{member}");
            if TenantId::parse(&tenant.name).is_err() {
                return Err(wrong(key("name"), "use 1 to 48 of a-z and 0-9"));
            }
            if tenant.name == STOCK_TENANT {
                let problem = "is the one that owns warm sandboxes; choose another name";
                return Err(wrong(key("name"), problem));
            }
            if !names.insert(&tenant.name) {
                return Err(wrong(key("name"), "another tenant has this name"));
            }
            if tenant.keys.is_empty() {
                return Err(wrong(key("keys"), "give at least one key"));
            }
            for api_key in &tenant.keys {
                if api_key.len() < KEY_CHARS_MIN || !api_key.bytes().all(|b| b.is_ascii_graphic()) {
                    let problem = format!("use at least {KEY_CHARS_MIN} visible ASCII characters");
                    return Err(wrong(key("keys"), problem));
                }
                if !keys.insert(api_key) {
                    return Err(wrong(key("keys"), "a key belongs to one tenant only"));
                }
            }
        }
        Ok(())
    }

    fn check_pools(&self) -> Result<(), ConfigError> {
        if self.pool.len() > POOLS_MAX {
            return Err(wrong("pool", format!("there are at most {POOLS_MAX} pools; remove some")));
        }
        let mut names = BTreeSet::new();
        for (index, pool) in self.pool.iter().enumerate() {
            let key = |member: &str| format!("pool[{index}].{member}");
            if !is_pool_name(&pool.name) {
                let problem = format!("use 1 to {POOL_NAME_BYTES_MAX} of a-z, 0-9, -, _ and .");
                return Err(wrong(key("name"), problem));
            }
            if !names.insert(&pool.name) {
                return Err(wrong(key("name"), "another pool has this name"));
            }
            if pool.size > POOL_SIZE_MAX {
                return Err(wrong(key("size"), format!("must not be above {POOL_SIZE_MAX}")));
            }
            if pool.size > self.limits.sandboxes_per_tenant_max {
                let problem = "must not be above limits.sandboxes_per_tenant_max";
                return Err(wrong(key("size"), problem));
            }
        }
        Ok(())
    }

    fn check_limits(&self) -> Result<(), ConfigError> {
        let limits = &self.limits;
        if limits.timeout_seconds_min > limits.timeout_seconds_max {
            let problem = "must not be above limits.timeout_seconds_max";
            return Err(wrong("limits.timeout_seconds_min", problem));
        }
        for (key, value) in [
            ("limits.timeout_seconds_max", limits.timeout_seconds_max),
            ("limits.header_seconds_max", limits.header_seconds_max),
            ("limits.connections_max", limits.connections_max as u64),
            ("limits.actions_at_once", limits.actions_at_once as u64),
            ("defaults.cpu_millis", self.defaults.cpu_millis),
            ("defaults.memory_mib", self.defaults.memory_mib),
            ("defaults.pids", self.defaults.pids),
        ] {
            if value == 0 {
                return Err(wrong(key, "must be above 0"));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_file_is_the_default() {
        let config = Config::parse("").unwrap();
        assert_eq!(config.listen.port(), 8080);
        assert_eq!(config.limits.timeout_seconds_max, 86_400);
    }

    #[test]
    fn mistakes_are_named() {
        for (text, said) in [
            ("lisen = 1", "lisen"),
            ("[limits]\ntimeout_max = 1", "timeout_max"),
            ("[[tenants]]\nname = \"A\"\nkeys = []", "tenants[0].name"),
            ("[[tenants]]\nname = \"a\"\nkeys = []", "tenants[0].keys"),
            ("[[tenants]]\nname = \"a\"\nkeys = [\"short\"]", "tenants[0].keys"),
            ("[limits]\nconnections_max = 0", "limits.connections_max"),
            ("[limits]\ntimeout_seconds_min = 99999999", "limits.timeout_seconds_min"),
            ("[runtime]\nisolation = \"kata\"", "runtime.isolation"),
            ("[runtime]\nallowed_host_paths = [\"x\"]", "runtime.allowed_host_paths[0]"),
            ("[[pool]]\nname = \"A\"\nsize = 1", "pool[0].name"),
            ("[[pool]]\nname = \"a\"\nsize = 100000", "pool[0].size"),
            ("public_host = \"http://x\"", "public_host"),
        ] {
            let error = Config::parse(text).unwrap_err().to_string();
            assert!(error.contains(said), "{text:?} said {error:?}");
        }
    }

    #[test]
    fn what_the_engine_refuses_is_refused_here() {
        let pool = |name: &str, size: usize| format!("[[pool]]\nname = {name:?}\nsize = {size}\n");
        let plenty = format!("[limits]\nsandboxes_per_tenant_max = {}\n", POOL_SIZE_MAX + 1);
        let long = "a".repeat(POOL_NAME_BYTES_MAX);
        let many: String = (0..=POOLS_MAX).map(|number| pool(&format!("p{number}"), 0)).collect();
        for (text, said) in [
            (plenty.clone() + &pool("a", POOL_SIZE_MAX + 1), "pool[0].size"),
            (pool(&format!("{long}a"), 1), "pool[0].name"),
            (pool("a/b", 1), "pool[0].name"),
            (many, "pool: "),
            (
                format!("[[tenants]]\nname = {STOCK_TENANT:?}\nkeys = [\"0123456789abcdef\"]"),
                "tenants[0].name",
            ),
        ] {
            let error = Config::parse(&text).unwrap_err().to_string();
            assert!(error.contains(said), "{text:?} said {error:?}");
        }
        Config::parse(&(plenty + &pool(&long, POOL_SIZE_MAX) + &pool("a.b-c_1", 0))).unwrap();
    }

    #[test]
    fn a_full_file_is_read() {
        let config = Config::parse(
            r#"
            listen = "0.0.0.0:0"
            data_dir = "/tmp/x"
            [[tenants]]
            name = "a"
            keys = ["0123456789abcdef"]
            [limits]
            allow_no_expiry = true
            [images.aliases]
            mine = "oci:/images/mine"
            [runtime]
            kind = "sim"
            isolation = "runc"
            oci = ["runc"]
            allowed_host_paths = ["/srv/volumes"]
            [runtime.network]
            uplink = { namespace = "/run/netns/test" }
            allow = ["192.168.7.0/24"]
            "#,
        )
        .unwrap();
        assert!(config.limits.allow_no_expiry);
        assert_eq!(
            config.runtime.network.uplink,
            super::super::Uplink::Namespace("/run/netns/test".into())
        );
    }
}
