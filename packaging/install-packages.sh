#!/bin/sh
# Installs the missing Debian packages of the list $1; fails with a message if that needs
# root.
set -eu
missing=
for package in $(sed 's/#.*//' "$1"); do
    dpkg-query -W -f '${Status}' "$package" 2>/dev/null | grep -q 'ok installed' ||
        missing="$missing $package"
done
[ -n "$missing" ] || exit 0
if [ "$(id -u)" -ne 0 ]; then
    echo "error: missing packages:$missing" >&2
    echo "install them as root: apt-get install --no-install-recommends$missing" >&2
    exit 1
fi
export DEBIAN_FRONTEND=noninteractive
apt-get update -qq
# shellcheck disable=SC2086 # one word a package
apt-get install -y -qq --no-install-recommends $missing >/dev/null
