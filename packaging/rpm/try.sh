#!/bin/sh
# Tries the .rpm $1 in a root with nothing else in it: the program needs no file of a distribution, an edited file of
# /etc/forebay outlives an upgrade, and a removal leaves only that. Root and rpm. Scripts are not run: there is no shell.
set -eu
package=$(realpath "$1")
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
fail() {
    echo "error: $*" >&2
    exit 1
}
# Debian's rpm has its database in the home of root.
rpm() { command rpm --root "$root" --dbpath /rpmdb --nodeps --noscripts "$@"; }
rpm --install "$package"
rpm --verify forebay || fail "not as packed"
chroot "$root" /usr/bin/forebay --version
chroot "$root" /usr/bin/forebay keygen /etc/forebay/bundle.key
chroot "$root" /usr/bin/forebay check-config /etc/forebay/sendbox.toml
echo "# mine" >>"$root/etc/forebay/sendbox.toml"
rpm --upgrade --force "$package"
tail -n 1 "$root/etc/forebay/sendbox.toml" | grep -qx '# mine' || fail "an edited file was overwritten"
rm "$root/etc/forebay/bundle.key"
rpm --erase forebay 2>/dev/null
left=$(find "$root" -path "$root/rpmdb" -prune -o -type f -print)
[ "$left" = "$root/etc/forebay/sendbox.toml.rpmsave" ] || fail "left over: $left"
