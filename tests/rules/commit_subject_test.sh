#!/usr/bin/env bash
# tools/commit_subject on subjects that are right and wrong.
set -uo pipefail
check=$(dirname "${BASH_SOURCE[0]}")/../../tools/commit_subject
message=$(mktemp)
trap 'rm -f "$message"' EXIT
failed=0

# expect CODE SUBJECT [TEXT]: runs the check, and compares its exit code and what it says.
expect() {
  printf '# a comment\n\n%s\n\nA body: with a colon.\n' "$2" >"$message"
  local said code=0
  said=$(bash "$check" "$message" 2>&1) || code=$?
  if [[ $code != "$1" || $said != *"${3-}"* ]]; then
    printf 'exit %d, not %d, for: %s\n%s\n' "$code" "$1" "$2" "$said"
    failed=1
  fi
}

expect 0 'Add random zoom'
expect 0 'Refuse key=value pairs such as seed:3 in one line'
expect 0 'Revert "Add random zoom"'
expect 0 "$(printf 'A%.0s' {1..72})"
expect 1 "$(printf 'A%.0s' {1..73})" '73 characters'
expect 1 'add random zoom' 'capital letter'
expect 1 'Tests: add random zoom' 'a topic'
expect 1 'bench/gpu: add random zoom' 'capital letter'
expect 1 'Add random zoom.' 'full stop'
exit "$failed"
