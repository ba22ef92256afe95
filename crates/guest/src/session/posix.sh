# The same program for images that only have a plain shell: functions, aliases and traps live as
# long as the shell does, and are not in the state that survives it.
exec 8<&0 9>&2 0</dev/null 2>&1
__atoll_home=$1 __atoll_saved=0 __atoll_code=0

__atoll_last() { return "$__atoll_code"; }

__atoll_save() {
  __atoll_saved=$((__atoll_saved + 1))
  {
    set
    export -p
    echo 'command cd -- "$PWD"'
    set +o
    echo "# saved $__atoll_saved"
  } >|"$__atoll_home/state.$((__atoll_saved % 2))"
} 2>/dev/null

trap __atoll_save EXIT
if [ -n "$2" ]; then . "$2" >/dev/null 2>&1; fi
set --

while { IFS=' ' read -r __atoll_run __atoll_enter <&8; } 2>/dev/null; do
  if [ -n "$__atoll_enter" ] && ! . "$__atoll_home/enter" 8<&- 9>&-; then
    __atoll_code=1
  elif __atoll_last; then
    . "$__atoll_home/run" 8<&- 9>&-
    __atoll_code=$?
  else
    . "$__atoll_home/run" 8<&- 9>&-
    __atoll_code=$?
  fi
  { echo "$__atoll_run $__atoll_code" >&9; __atoll_save; } 2>/dev/null
done
