//! `atoll cp`: one file, in or out.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::ExitCode;

use tokio::io::{AsyncWrite, AsyncWriteExt};

use crate::client::Client;
use crate::error::Error;

/// A side of the copy.
#[derive(Debug, PartialEq, Eq)]
enum Place<'a> {
    Here(&'a str),
    Pipe,
    Inside { id: &'a str, path: &'a str },
}

impl<'a> Place<'a> {
    /// `ID:/path` is inside; a file here whose name has a colon is written with `./`.
    fn parse(text: &'a str) -> Self {
        match text.split_once(':') {
            _ if text == "-" => Self::Pipe,
            Some((id, path)) if !id.is_empty() && !id.contains(['/', '.']) => {
                Self::Inside { id, path }
            }
            _ => Self::Here(text),
        }
    }
}

/// Copies.
pub(super) async fn run(client: &Client, from: &str, to: &str) -> Result<ExitCode, Error> {
    match (Place::parse(from), Place::parse(to)) {
        (Place::Inside { id, path }, Place::Pipe) => {
            download(client, id, path, tokio::io::stdout(), Error::Output).await?;
        }
        (Place::Inside { id, path }, Place::Here(file)) => {
            download_file(client, id, path, file).await?;
        }
        (Place::Pipe, Place::Inside { id, path }) => {
            client.upload(id, path, 644, tokio::io::stdin()).await?;
        }
        (Place::Here(file), Place::Inside { id, path }) => upload(client, file, id, path).await?,
        (Place::Inside { .. }, Place::Inside { .. }) => {
            return Err(Error::Usage("cp: copy by way of `-`: one side must be here".to_owned()));
        }
        _ => {
            return Err(Error::Usage("cp: one side must be in a sandbox, as ID:/path".to_owned()));
        }
    }
    Ok(ExitCode::SUCCESS)
}

async fn upload(client: &Client, file: &str, id: &str, path: &str) -> Result<(), Error> {
    let failed = |source| Error::File { path: file.to_owned(), source };
    let content = tokio::fs::File::open(file).await.map_err(failed)?;
    let about = content.metadata().await.map_err(failed)?;
    if about.is_dir() {
        let hint =
            format!("cp: {file} is a folder; pack it: tar c {file} | atoll cp - {id}:/x.tar");
        return Err(Error::Usage(hint));
    }
    let name = Path::new(file).file_name().map(|n| n.to_string_lossy()).unwrap_or_default();
    let path = if path.ends_with('/') { format!("{path}{name}") } else { path.to_owned() };
    client.upload(id, &path, wire_mode(about.permissions().mode()), content).await
}

/// Into a file beside the target first: a broken copy must not replace a good file.
async fn download_file(client: &Client, id: &str, path: &str, file: &str) -> Result<(), Error> {
    let name = Path::new(path).file_name().unwrap_or_default();
    let target = if Path::new(file).is_dir() { Path::new(file).join(name) } else { file.into() };
    let mut part = target.clone().into_os_string();
    part.push(".part");
    let part = std::path::PathBuf::from(part);
    let failed = |source| Error::File { path: target.display().to_string(), source };
    let content = tokio::fs::File::create(&part).await.map_err(failed)?;
    let result = match download(client, id, path, content, failed).await {
        Ok(()) => tokio::fs::rename(&part, &target).await.map_err(failed),
        Err(error) => Err(error),
    };
    if result.is_err() {
        tokio::fs::remove_file(&part).await.ok();
    }
    result
}

async fn download(
    client: &Client,
    id: &str,
    path: &str,
    mut to: impl AsyncWrite + Unpin,
    failed: impl Fn(std::io::Error) -> Error,
) -> Result<(), Error> {
    let mut response = client.download(id, path).await?;
    while let Some(piece) = response.chunk().await.map_err(|_| Error::CutOff)? {
        to.write_all(&piece).await.map_err(&failed)?;
    }
    to.flush().await.map_err(&failed)
}

/// Permission bits as the wire writes them: octal digits read as a decimal number.
fn wire_mode(mode: u32) -> u32 {
    let digit = |shift: u32| (mode >> shift) & 7;
    digit(6) * 100 + digit(3) * 10 + digit(0)
}

#[cfg(test)]
mod tests {
    use super::{Place, wire_mode};

    #[test]
    fn places_are_told_apart() {
        assert_eq!(Place::parse("-"), Place::Pipe);
        assert_eq!(Place::parse("abc:/x:y"), Place::Inside { id: "abc", path: "/x:y" });
        for here in ["file", "./a:b", "/tmp/a:b", "a.b:c", ":x"] {
            assert_eq!(Place::parse(here), Place::Here(here));
        }
    }

    #[test]
    fn modes_are_octal_digits_in_decimal() {
        assert_eq!(wire_mode(0o100_644), 644);
        assert_eq!(wire_mode(0o755), 755);
        assert_eq!(wire_mode(0o007), 7);
    }
}
