//! Putting uploaded files into place.

/// Makes the folder `$1` for `$2` (`user:group`): only folders that are new get that owner.
pub(super) const MAKE_FOLDER: &str = r#"
make_folder() {
    [ ! -d "$1" ] || return 0
    first=$1 up=$1
    while [ ! -d "$up" ]; do first=$up; up=$(dirname "$up"); done
    mkdir -p "$1"
    chown -R "$2" "$first"
}
"#;

/// Unpacks `$1` into `$2` and moves `$3` from there to `$4`, for `$5` with the mode `$6`, relative
/// to `$7`. Directories are merged by tar: it replaces links to files instead of writing through
/// them, follows links to directories (`/lib`), and leaves existing directories as they are.
const PLACE: &str = r#"
archive=$1 room=$2 source=$3 target=$4 owner=$5 mode=$6 place=$7
trap 'chmod -R u+rwx "$room" 2>/dev/null; rm -rf "$archive" "$room" "$room.failed" "$room.plain"' EXIT
mkdir -p "$room"
# Not every tar sees by itself that an archive is compressed.
if gzip -d < "$archive" > "$room.plain" 2>/dev/null; then mv -f "$room.plain" "$archive"; fi
tar -x -p -o -f "$archive" -C "$room"
case $target in /*) ;; *) target=$place/$target ;; esac
from=$room/$source
if [ -L "$from" ] || [ -f "$from" ]; then
    chown -h "$owner" "$from"
    [ -z "$mode" ] || [ -L "$from" ] || chmod "$mode" "$from"
    case $target in
        */) make_folder "${target%/}" "$owner" ;;
        *) make_folder "$(dirname "$target")" "$owner" ;;
    esac
    mv -f "$from" "$target"
elif [ -d "$from" ]; then
    chown -R -h "$owner" "$from"
    [ -z "$mode" ] || chmod -R "$mode" "$from"
    make_folder "$target" "$owner"
    if tar --version 2>/dev/null | grep -q GNU; then
        { tar -c -f - -C "$from" . || touch "$room.failed"; } |
            tar -x -p -f - -C "$target" --keep-directory-symlink --no-overwrite-dir
        [ ! -e "$room.failed" ]
    else
        cp -a "$from/." "$target"
    fi
else
    echo "the uploaded files have no $source" >&2
    exit 1
fi
"#;

/// The script; its arguments are those of [`arguments`].
pub(super) fn script() -> String {
    format!("set -eu{MAKE_FOLDER}{PLACE}")
}

/// Files within the upload: what a pattern begins with, for clients have already chosen.
pub(super) fn source(pattern: &str) -> String {
    let plain = |part: &&str| !part.contains(['*', '?', '[', '{']);
    let parts = pattern.split('/').filter(|part| !part.is_empty() && *part != ".");
    let parts: Vec<&str> = parts.take_while(plain).collect();
    if parts.is_empty() { ".".to_owned() } else { parts.join("/") }
}

/// `user:group` for chown; a user alone brings its own group.
pub(super) fn owner(owner: &str) -> String {
    if owner.contains(':') { owner.to_owned() } else { format!("{owner}:") }
}

#[cfg(test)]
mod tests;
