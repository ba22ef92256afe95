//! Commands in a mount namespace of their own, where an image's overlays are mounted.

use atoll_image::Image;
use std::{path::Path, process::Command};

/// Mounts the image at a scratch directory, runs a shell script with `$ROOT` set to it and gives
/// its output; fails the test when the script fails.
pub(crate) fn run_with(image: &Image, scratch: &Path, script: &str) -> String {
    let mut commands = String::from(
        "set -eu\nmount -t tmpfs tmpfs \"$SCRATCH\"\nROOT=$SCRATCH/root\nmkdir \"$ROOT\"\n",
    );
    for (number, root) in image.roots.iter().enumerate() {
        let lowers: Vec<_> = root.lowers.iter().map(|path| path.display().to_string()).collect();
        commands.push_str(&format!(
            "mkdir \"$SCRATCH/u{number}\" \"$SCRATCH/w{number}\"\n\
             mount -t overlay overlay -o lowerdir={},upperdir=$SCRATCH/u{number},workdir=$SCRATCH/w{number} \"$ROOT{}\"\n",
            lowers.join(":"),
            root.target.display(),
        ));
    }
    commands.push_str(script);
    let output = Command::new("unshare")
        .args(["--mount", "--propagation", "private", "sh", "-c", &commands])
        .env("SCRATCH", scratch)
        .output()
        .unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "{}{}", text(&output.stdout), text(&output.stderr));
    text(&output.stdout)
}
