#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# What a node's first process does in its new namespaces before the node runs
# anything: node.sh NAME DISK [HIERARCHY...], with the hierarchies of cgroups of
# version 1, if there are any. The disk becomes the node's /var.
set -eu
name=$1 disk=$2
shift 2

mount --make-rprivate /
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t bpf bpf /sys/fs/bpf
echo "$name" >/proc/sys/kernel/hostname

mount -t tmpfs -o mode=755 tmpfs /run
mkdir /run/netns /run/lock
mount --bind "$disk" /var

# Groups as the node sees them, and the files by which its processes join them.
: >/run/cgroups
if [ $# = 0 ]; then
	mount -t cgroup2 cgroup2 /sys/fs/cgroup
	# A group of version 2 whose processes' groups have controllers has none itself.
	mkdir /sys/fs/cgroup/init
	echo /sys/fs/cgroup/init/cgroup.procs >>/run/cgroups
	echo 0 >/sys/fs/cgroup/init/cgroup.procs
else
	mount -t tmpfs -o mode=755 tmpfs /sys/fs/cgroup
fi
for hierarchy; do
	dir=/sys/fs/cgroup/$hierarchy
	mkdir "$dir"
	case $hierarchy in
	unified) mount -t cgroup2 cgroup2 "$dir" ;;
	systemd) mount -t cgroup -o none,name=systemd cgroup "$dir" ;;
	*) mount -t cgroup -o "$hierarchy" cgroup "$dir" ;;
	esac
	echo "$dir/cgroup.procs" >>/run/cgroups
done

# Settings of the whole kernel that a kubelet wants to change: it finds them as it
# wants them, and the machine keeps its own.
for setting in vm/overcommit_memory=1 kernel/panic=10 kernel/panic_on_oops=1; do
	file=/run/$(basename "${setting%=*}")
	echo "${setting#*=}" >"$file"
	mount --bind "$file" "/proc/sys/${setting%=*}"
done

# The kubelet reports each start of the machine by another ID.
cat /proc/sys/kernel/random/uuid >/run/boot_id
mount --bind /run/boot_id /proc/sys/kernel/random/boot_id

# What the kubelet mounts is seen by pods that ask for it.
mount --make-rshared /
