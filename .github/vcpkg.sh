#!/bin/sh
# Fetches vcpkg into the folder $1 and builds it, at the commit that vcpkg.json names as its
# baseline: then the versions of all ports are there without the history.
set -eu
commit=$(sed -n 's/.*"builtin-baseline": "\([0-9a-f]*\)".*/\1/p' vcpkg.json)
git init -q "$1"
git -C "$1" fetch -q --depth 1 https://github.com/microsoft/vcpkg "$commit"
git -C "$1" checkout -q FETCH_HEAD
if [ "${RUNNER_OS:-}" = Windows ]; then
  cmd //c "$1\\bootstrap-vcpkg.bat -disableMetrics"
else
  "$1/bootstrap-vcpkg.sh" -disableMetrics
fi
