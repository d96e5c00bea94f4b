#!/bin/busybox sh
# The first program of a guest that tries a package: unpacks a Debian into memory, which becomes systemd's.
/bin/busybox mount -t tmpfs -o size=80% root /new
/bin/busybox tar -x -f /root.tar -C /new
/bin/busybox rm /root.tar
exec /bin/busybox switch_root /new /lib/systemd/systemd
