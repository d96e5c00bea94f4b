#!/bin/sh
# Installs the binary $1 below $3$2: where it will run from ($2, absolute), and what to put before that (empty, or the
# root of a package).
set -eu
umask 022
binary=$1 prefix=$2 share=$3$2/share lib=$3$2/lib
# The prefix goes into units, by way of sed: neither takes every character as it is.
case $prefix in
*[!A-Za-z0-9/._+-]* | [!/]* | "")
    echo "error: PREFIX=$prefix: allowed is an absolute path of letters, digits and /._+-, such as /usr/local" >&2
    exit 2
    ;;
esac
install -D -m 755 "$binary" "$3$prefix/bin/forebay"
"$binary" man --out "$share/man/man1"
completions() {
    mkdir -p "$share/$2"
    "$binary" completions "$1" >"$share/$2/$3"
}
completions bash bash-completion/completions forebay
completions zsh zsh/site-functions _forebay
completions fish fish/vendor_completions.d forebay.fish
packaging=$(dirname "$0")
install -D -m 644 "$packaging/sysusers.d/forebay.conf" "$lib/sysusers.d/forebay.conf"
install -D -m 644 "$packaging/tmpfiles.d/forebay.conf" "$lib/tmpfiles.d/forebay.conf"
for role in sendbox receivebox; do
    install -D -m 644 "$packaging/etc/$role.toml" "$share/forebay/examples/$role.toml"
done
install -D -m 644 "$packaging/etc/10-forebay.link" "$share/forebay/examples/10-forebay.link"
install -D -m 644 "$packaging/prometheus/forebay.rules.yml" "$share/forebay/prometheus/forebay.rules.yml"
install -D -m 644 "$packaging/grafana/forebay.json" "$share/forebay/grafana/forebay.json"
mkdir -p "$lib/systemd/system"
unit() {
    sed "s,ROLE,$2,g; s,/usr/bin/forebay,$prefix/bin/forebay," "$packaging/systemd/$1@.service" \
        "$packaging/systemd/sandbox.conf" >"$lib/systemd/system/forebay-$2@.service"
}
unit forebay-ROLE sendbox
unit forebay-ROLE receivebox
unit forebay-agent agent
sed "s,/usr/bin/forebay,$prefix/bin/forebay," "$packaging/systemd/forebay-triangle@.service" \
    >"$lib/systemd/system/forebay-triangle@.service"
install -D -m 644 "$packaging/systemd/forebay-sendbox-triangle.conf" \
    "$lib/systemd/system/forebay-sendbox@.service.d/10-triangle.conf"
