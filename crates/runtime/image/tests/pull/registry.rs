//! Debian's `docker-registry`, one process per test.

use crate::fixture::{INDEX, MANIFEST, TestImage, digest};
use reqwest::{Client, RequestBuilder};
use std::{
    io::{BufRead, BufReader},
    net::TcpListener,
    path::Path,
    process::{Child, Command, Stdio},
};
use tempfile::TempDir;

pub(crate) const USERNAME: &str = "keeper";
pub(crate) const PASSWORD: &str = "lagoon-pass";
/// The line of `htpasswd` for the two above.
const HTPASSWD: &str = "keeper:$2y$04$abcdefghijklmnopqrstuuIlHo5MD5QPK4bcSwn8kxq6FQLva8AYm\n";
const ATTEMPTS: usize = 20;

/// A registry that ends with the value.
pub(crate) struct Registry {
    child: Child,
    pub(crate) host: String,
    password: Option<&'static str>,
    _directory: TempDir,
}

impl Registry {
    pub(crate) fn open() -> Self {
        Self::start(None)
    }

    pub(crate) fn with_password() -> Self {
        Self::start(Some(PASSWORD))
    }

    fn start(password: Option<&'static str>) -> Self {
        let program = Path::new("/usr/bin/docker-registry");
        assert!(
            program.exists(),
            "this test needs the package docker-registry: apt-get install docker-registry"
        );
        let directory = tempfile::tempdir().unwrap();
        // The registry cannot tell which port it chose, so free ones are tried until one stays so.
        for _ in 0..ATTEMPTS {
            let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
            if let Some(child) = launch(directory.path(), port, password.is_some()) {
                let host = format!("127.0.0.1:{port}");
                return Self { child, host, password, _directory: directory };
            }
        }
        panic!("docker-registry did not start on any of {ATTEMPTS} ports");
    }

    pub(crate) fn reference(&self, name: &str) -> String {
        format!("{}/{name}", self.host)
    }

    /// Uploads an image and an index over it, tagged `tag` and `tag-index`.
    pub(crate) async fn push(&self, repository: &str, tag: &str, image: &TestImage) {
        for blob in image.blobs() {
            self.push_blob(repository, blob).await;
        }
        self.push_manifest(repository, tag, MANIFEST, image.manifest.clone()).await;
        self.push_manifest(repository, &format!("{tag}-index"), INDEX, image.index()).await;
    }

    async fn push_blob(&self, repository: &str, blob: &[u8]) {
        let url = format!("http://{}/v2/{repository}/blobs/uploads/", self.host);
        let begun = self.authorise(client().post(url)).send().await.unwrap();
        assert_eq!(begun.status(), 202);
        let place = begun.headers()["location"].to_str().unwrap().to_owned();
        let put = client().put(format!("{place}&digest={}", digest(blob))).body(blob.to_vec());
        assert_eq!(self.authorise(put).send().await.unwrap().status(), 201);
    }

    async fn push_manifest(&self, repository: &str, tag: &str, kind: &str, manifest: Vec<u8>) {
        let url = format!("http://{}/v2/{repository}/manifests/{tag}", self.host);
        let put = client().put(url).header("content-type", kind).body(manifest);
        assert_eq!(self.authorise(put).send().await.unwrap().status(), 201);
    }

    fn authorise(&self, request: RequestBuilder) -> RequestBuilder {
        match self.password {
            Some(password) => request.basic_auth(USERNAME, Some(password)),
            None => request,
        }
    }
}

impl Drop for Registry {
    fn drop(&mut self) {
        self.child.kill().expect("the registry runs until here");
        self.child.wait().expect("a killed child can be waited for");
    }
}

fn client() -> Client {
    let _installed = rustls::crypto::ring::default_provider().install_default();
    Client::builder().no_proxy().build().unwrap()
}

/// Starts the registry and waits until it says that it listens; none when it gives up.
fn launch(directory: &Path, port: u16, with_password: bool) -> Option<Child> {
    let mut text = format!(
        "version: 0.1\nlog:\n  level: info\n  accesslog:\n    disabled: true\n\
         storage:\n  filesystem:\n    rootdirectory: {0}/data\nhttp:\n  addr: 127.0.0.1:{port}\n",
        directory.display()
    );
    if with_password {
        std::fs::write(directory.join("htpasswd"), HTPASSWD).unwrap();
        let path = directory.join("htpasswd");
        text.push_str(&format!(
            "auth:\n  htpasswd:\n    realm: atoll\n    path: {}\n",
            path.display()
        ));
    }
    let config = directory.join("config.yml");
    std::fs::write(&config, text).unwrap();
    let mut child = Command::new("/usr/bin/docker-registry")
        .arg("serve")
        .arg(&config)
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines().map_while(Result::ok);
    if lines.any(|line| line.contains("listening on")) {
        // Its later lines must go somewhere, or it would block.
        std::thread::spawn(move || lines.for_each(drop));
        return Some(child);
    }
    child.wait().unwrap();
    None
}
