#!/bin/sh
# Tests the .rpm $1 in an otherwise empty root. The program must need no file of a distribution, an edited file in
# /etc/forebay must survive an upgrade, and a removal must leave only that file. Needs root and rpm. Scripts do not run:
# there is no shell.
set -eu
package=$(realpath "$1")
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
fail() {
    echo "error: $*" >&2
    exit 1
}
# Debian's rpm keeps its database in root's home folder.
rpm() { command rpm --root "$root" --dbpath /rpmdb --nodeps --noscripts "$@"; }
rpm --install "$package"
rpm --verify forebay || fail "installed files differ from the package"
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
