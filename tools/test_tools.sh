#!/bin/sh
# Emulators and tracers that some tests use; installed where that is possible, skipped (with a message
# by the test) where it is not.
missing=""
command -v qemu-aarch64 >/dev/null 2>&1 || missing="$missing qemu-user"
command -v strace >/dev/null 2>&1 || missing="$missing strace"
[ -z "$missing" ] && exit 0
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
  echo "installing$missing ..."
  (apt-get install -y -qq $missing || { apt-get update -qq && apt-get install -y -qq $missing; }) >/dev/null 2>&1 \
    || echo "could not install$missing: the tests that need them are skipped"
else
  echo "not installed:$missing (apt-get install$missing): the tests that need them are skipped"
fi
exit 0
