#!/bin/busybox sh
# The first program of a guest, in its initial file system: loads what the root needs, makes it, goes there.
# The root is this machine's own, or a release of Debian (`r2ccl.debian`), read-only; what the guest writes stays in
# its memory, or on its disk if it has one.
/bin/busybox mkdir -p /proc /sys /dev /machine /debian /upper /root
PATH=/bin
/bin/busybox --install -s /bin
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
case " $(cat /proc/cmdline) " in
*" r2ccl.try "*) # does this accelerator get as far as here?
    echo "r2ccl: booted" >/dev/console
    poweroff -f
    ;;
esac
for module in $(cat /modules/order); do
    insmod "/modules/$module" || echo "r2ccl: $module cannot be loaded"
done
echo /bin/modprobe >/proc/sys/kernel/modprobe
files() { # files TAG: mounts what QEMU shares under that name
    mount -t 9p -o trans=virtio,version=9p2000.L,msize=512000,cache=loose,ro "$1" "/$1" || poweroff -f
}
files machine
lower=/machine
case " $(cat /proc/cmdline) " in *" r2ccl.debian "*) files debian && lower=/debian ;; esac
if [ -b /dev/vda ]; then
    mount -t ext4 /dev/vda /upper || poweroff -f
else
    mount -t tmpfs -o mode=755 upper /upper
fi
mkdir -p /upper/changed /upper/work
mount -t overlay -o lowerdir=$lower,upperdir=/upper/changed,workdir=/upper/work overlay /root || poweroff -f
mount -t tmpfs -o mode=755 run /root/run
mkdir /root/run/guest
cp /bin/busybox /root/run/guest/
while read -r source target; do # folders of this machine that a release of Debian has not
    mkdir -p "/root$target"
    mount -o bind "/machine$source" "/root$target"
done </binds
for folder in dev proc sys; do
    mount -o move "/$folder" "/root/$folder"
done
for word in $(cat /root/proc/cmdline); do
    case $word in r2ccl.host=*) exec switch_root /root /bin/sh "${word#r2ccl.host=}" ;; esac
done
echo "r2ccl: no r2ccl.host on the command line"
