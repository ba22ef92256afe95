# The program of a session's shell where the image has bash. $1 is the session's directory, $2 the
# state to begin with, if any. Control lines arrive on stdin, reports leave through stderr; both are
# moved to numbers of their own and closed around every run, so that no command sees them.
exec 198<&0 199>&2 0</dev/null 2>&1
__atoll_home=$1 __atoll_saved=0 __atoll_code=0
shopt -s expand_aliases

__atoll_last() { return "$__atoll_code"; }

# Functions come before aliases, which would change how they are read, and options come last.
__atoll_save() {
  __atoll_saved=$((__atoll_saved + 1))
  {
    builtin declare -f
    builtin declare -p
    builtin alias -p
    builtin trap -p
    builtin shopt -p
    builtin umask -p
    builtin printf 'builtin cd -- %q\n' "$PWD"
    builtin set +o
    builtin printf '# saved %s\n' "$__atoll_saved"
  } >|"$__atoll_home/state.$((__atoll_saved % 2))"
} 2>/dev/null

trap __atoll_save EXIT
if [ -n "$2" ]; then builtin . "$2" >/dev/null 2>&1; fi
set --

# The condition gives the text the $? of the run before it, also under `set -e`.
while { IFS=' ' builtin read -r -u 198 __atoll_run __atoll_enter; } 2>/dev/null; do
  if [ -n "$__atoll_enter" ] && ! builtin . "$__atoll_home/enter" 198<&- 199>&-; then
    __atoll_code=1
  elif __atoll_last; then
    builtin . "$__atoll_home/run" 198<&- 199>&-
    __atoll_code=$?
  else
    builtin . "$__atoll_home/run" 198<&- 199>&-
    __atoll_code=$?
  fi
  { builtin printf '%s %s\n' "$__atoll_run" "$__atoll_code" >&199; __atoll_save; } 2>/dev/null
done
