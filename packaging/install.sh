#!/bin/sh
# Installs the binary $1 below $3$2: $2 is the prefix at run time (absolute), and $3 precedes it (empty, or the root of
# a package). The laboratory's binary $4, if given, goes below $5$2; $5 defaults to $3.
set -eu
umask 022
binary=$1 prefix=$2 share=$3$2/share lib=$3$2/lib laboratory=${4-}
# sed writes the prefix into units: neither accepts every character.
case $prefix in
*[!A-Za-z0-9/._+-]* | [!/]* | "")
    echo "error: PREFIX=$prefix: allowed is an absolute path of letters, digits and /._+-, such as /usr/local" >&2
    exit 2
    ;;
esac
install -D -m 755 "$binary" "$3$prefix/bin/forebay"
# A copy without a laboratory near it, which may be of another commit, describes only its own commands.
alone=$(mktemp -d)
trap 'rm -r "$alone"' EXIT
install -m 755 "$binary" "$alone/forebay"
"$alone/forebay" man --out "$share/man/man1"
if [ -n "$laboratory" ]; then
    of_laboratory=${5-$3}$prefix
    pages=$(mktemp -d)
    "$laboratory" man --out "$pages"
    for page in "$pages"/*; do
        name=${page##*/}
        [ -e "$share/man/man1/$name" ] || install -D -m 644 "$page" "$of_laboratory/share/man/man1/$name"
    done
    rm -r "$pages"
    install -D -m 755 "$laboratory" "$of_laboratory/libexec/forebay/forebay-experiments"
fi
# Completions include the laboratory's commands if its binary is given.
completions() {
    mkdir -p "$share/$2"
    "${laboratory:-$alone/forebay}" completions "$1" >"$share/$2/$3"
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
