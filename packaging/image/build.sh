#!/bin/sh
# Makes an OCI image with Debian 12 and the program $1 of version $2: the archive $3. Needs root, mmdebstrap and
# buildah.
set -eu
umask 022
binary=$1 version=$2 image=$3
packaging=$(dirname "$0")/..
work=$(mktemp -d)
# buildah stores all its files here, and ignores this machine's configuration.
buildah() { command buildah --storage-driver vfs --root "$work/store" --runroot "$work/run" "$@"; }
trap 'buildah rm --all >/dev/null 2>&1 || :; rm -rf "$work"' EXIT

# Libraries of the program, tools that `forebay doctor` calls, and the tool that makes accounts.
mmdebstrap --quiet --variant=essential --include=libelf1,zlib1g,iproute2,ethtool,passwd \
    --aptopt='APT::Install-Recommends "false"' --dpkgopt='path-exclude=/usr/share/doc/*' \
    --dpkgopt='path-exclude=/usr/share/man/*' --dpkgopt='path-exclude=/usr/share/locale/*' \
    --dpkgopt='path-include=/usr/share/doc/*/copyright' bookworm "$work/root.tar"
sh "$packaging/install.sh" "$binary" /usr "$work/forebay" >/dev/null
strip "$work/forebay/usr/bin/forebay"
rm -rf "$work/forebay/usr/lib/systemd" "$work/forebay/usr/share/man" "$work/forebay/usr/share/zsh" \
    "$work/forebay/usr/share/fish" "$work/forebay/usr/share/bash-completion"
mkdir -p "$work/forebay/etc/forebay" "$work/forebay/run/forebay" "$work/forebay/var/lib/forebay"

container=$(buildah from scratch)
buildah add --quiet "$container" "$work/root.tar" / >/dev/null
buildah add --quiet "$container" "$work/forebay" / >/dev/null
# The accounts of packaging/sysusers.d, since no systemd makes them here.
mounted=$(buildah mount "$container")
for account in forebay forebay-python; do
    chroot "$mounted" useradd --system --no-create-home --home-dir /nonexistent --shell /usr/sbin/nologin "$account"
done
chroot "$mounted" chown root:forebay /run/forebay
chroot "$mounted" chmod 0775 /run/forebay
chroot "$mounted" chown forebay:forebay /var/lib/forebay
rm -f "$mounted/etc/passwd-" "$mounted/etc/group-" "$mounted/etc/shadow-" "$mounted/etc/gshadow-"
buildah umount "$container" >/dev/null
buildah config --entrypoint '["/usr/bin/forebay"]' --cmd '["--help"]' --volume /etc/forebay \
    --stop-signal SIGTERM \
    --label org.opencontainers.image.title=forebay \
    --label org.opencontainers.image.version="$version" \
    --label org.opencontainers.image.source=https://github.com/forebay/forebay \
    --label org.opencontainers.image.licenses='(MIT OR Apache-2.0) AND GPL-2.0-only' \
    --label invalid.forebay.capabilities="$(cat "$packaging/image/capabilities")" "$container"
rm -f "$image"
buildah commit --quiet --format oci --timestamp "${SOURCE_DATE_EPOCH:-0}" --rm "$container" "oci-archive:$image:forebay:$version" >/dev/null
